"""`breakeven serve` and `breakeven worker`: the processes that stay."""

import os
from typing import Annotated

import typer

from service.cli import arguments


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on; only this machine's own for now.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", parser=arguments.port, help="The port to listen on; 0 takes a free one.")
    ] = 8421,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Serve only: workers run elsewhere.")] = False,
    while_used: Annotated[bool, typer.Option("--while-used", hidden=True)] = False,
) -> None:
    """Serve, and keep one worker alive, on the data of BREAKEVEN_HOME (default: ./data)."""
    from service.server import serve as serve_until_stopped
    from service.settings import settings

    serve_until_stopped(settings(), host, port, worker=not no_worker, while_used=while_used)


def work(
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", callback=arguments.hardware_label, help="The label to work for; detected if not given."
        ),
    ] = None,
) -> None:
    """Measure probes on this machine until stopped. Needs the service's database: BREAKEVEN_HOME or DATABASE_URL."""
    from service.worker_process import own_code_environment, worker_command

    command = worker_command(hardware)
    os.execve(command[0], command, own_code_environment())
