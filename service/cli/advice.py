"""`breakeven advice`: the answer of a probe, or the newest that matches a question."""

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.connection import JsonOption, ServerOption, connect, say
from service.exit_codes import ExitCode

if TYPE_CHECKING:
    from service.client import Client, NothingMeasuredError
    from service.documents import AdviceDocument


def read_advice(
    probe_id: Annotated[str | None, typer.Argument(help="The probe's id.")] = None,
    model: Annotated[str | None, typer.Option(help="Or the newest succeeded probe of this model,")] = None,
    hardware: Annotated[str | None, typer.Option(metavar="LABEL", help="on this hardware.")] = None,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """At each batch size: speculate or not, with which drafter, how many draft tokens, how much faster, and why."""
    if (probe_id is None) == (model is None and hardware is None) or (model is None) != (hardware is None):
        raise typer.BadParameter("name either a PROBE_ID, or both --model and --hardware")
    with connect(server, worker=False) as connection:
        if probe_id is not None:
            raise typer.Exit(show_advice(connection.client, probe_id, json=json))
        assert model is not None
        assert hardware is not None
        from service.client import NothingMeasuredError

        try:
            advice = connection.client.find_advice(model, hardware)
        except NothingMeasuredError as error:
            _offer_nearest(error)
            raise
        print_advice(advice, json=json)
        raise typer.Exit(exit_code(advice))


def show_advice(client: "Client", probe_id: str, *, json: bool) -> ExitCode:
    """Print the advice of a probe, say on standard error why it is not complete, and give the exit code."""
    advice = client.advice(probe_id)
    print_advice(advice, json=json)
    if advice.complete:
        return exit_code(advice)
    probe = client.get_probe(probe_id)
    say(f"breakeven: probe {probe.id} is {probe.status}" + (f": {probe.error}" if probe.error else ""))
    return ExitCode.PROBE_ENDED if probe.status in ("failed", "cancelled") else ExitCode.NO_EVIDENCE


def exit_code(advice: "AdviceDocument") -> ExitCode:
    """Of a complete advice: inconclusive only if it is at every batch size."""
    decided = any(row.verdict != "inconclusive" for row in advice.batch_sizes)
    return ExitCode.DONE if decided else ExitCode.NO_EVIDENCE


def print_advice(advice: "AdviceDocument", *, json: bool) -> None:
    """The advice on standard output: the document, or what a person reads."""
    if json:
        typer.echo(advice.model_dump_json(indent=2))
        return
    from rich.console import Console

    from service.terminal import SMALLEST_WIDTH, render_advice

    # Narrower, the table would lose figures; a terminal wraps what is too wide for it.
    console = Console()
    console.width = max(console.width, SMALLEST_WIDTH)
    console.print(render_advice(advice))


def _offer_nearest(error: "NothingMeasuredError") -> None:
    for offer in error.problem.get("nearest", ()):
        differs = ", ".join(offer["differs"])
        say(f"nearest: probe {offer['probe_id']} of {offer['model']} on {offer['hardware']} (differs in {differs})")
