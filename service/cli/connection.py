"""How a command reaches its service: the one of --server, else the embedded one."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import arguments
from service.exit_codes import CommandError

if TYPE_CHECKING:
    from service.client import Client

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="BREAKEVEN_SERVER",
        callback=arguments.server_url,
        help="The service to talk to, with the token in BREAKEVEN_TOKEN; without it, the embedded one.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the document alone on standard output, everything else on standard error.")
]


@dataclass(frozen=True)
class Connection:
    """A client of the service.

    Fields:
        remote: it was named with --server; else it is the embedded one.
        temporary: it ends when no command uses it any more.
    """

    client: "Client"
    remote: bool
    temporary: bool


@contextmanager
def connect(server: str | None, *, worker: bool) -> Iterator[Connection]:
    """The service for the time of the block; one that has to be started for it keeps a worker if `worker`."""
    from service.client import Client

    if server:
        token = os.environ.get("BREAKEVEN_TOKEN")
        if token and not re.fullmatch(r"[!-~]+", token):
            raise CommandError("BREAKEVEN_TOKEN holds a character that no token has: set it to the token alone")
        with Client(server, token) as client:
            yield Connection(client, remote=True, temporary=False)
        return

    from service.embedded import embedded_service
    from service.settings import settings

    with embedded_service(settings().home, worker=worker, say=say) as service, Client(service.url) as client:
        yield Connection(client, remote=False, temporary=service.temporary)


def say(line: str) -> None:
    """Tell the person at the terminal something that is not the answer."""
    typer.echo(line, err=True)
