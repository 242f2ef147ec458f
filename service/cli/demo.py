"""`breakeven demo`: the whole job on the model that ships with the project."""

import typer

from service.cli.connection import JsonOption, ServerOption, connect, say
from service.exit_codes import ExitCode


def run_demo(server: ServerOption = None, json: JsonOption = False) -> None:
    """Probe the small mixture-of-experts model that ships with Breakeven, on the CPU, and print the advice."""
    from service.cli.following import follow
    from service.demo import DEMO_REQUEST

    with connect(server, worker=True) as connection:
        probe, created = connection.client.create_probe(DEMO_REQUEST)
        say(f"probe {probe.id}: {probe.model} on {probe.hardware}, in real engine launches; this takes a few minutes")
        outcome = follow(connection, probe, created=created, json=json)
        # Small differences on a busy machine may leave every verdict open: the demo has done its work even so.
        raise typer.Exit(ExitCode.DONE if outcome is ExitCode.NO_EVIDENCE else outcome)
