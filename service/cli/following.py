"""A command that waits for a probe: shows its progress, then its advice, and leaves it in order when interrupted."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from service.cli.advice import show_advice
from service.cli.connection import Connection, say
from service.client import RequestRefusedError
from service.exit_codes import ExitCode
from service.progress import ProbeProgress, showing

if TYPE_CHECKING:
    from service.client import Client
    from service.documents import ProbeDocument

INTERRUPTED = 130
WORKER_START_SECONDS = 30.0


def follow(connection: Connection, probe: "ProbeDocument", *, created: bool, json: bool) -> int:
    """Wait until the probe has ended, print its advice, and give the exit code.

    Interrupted, it leaves the probe to its service. Where that ends with the command, it cancels what it created.
    """
    client = connection.client
    try:
        with _terminable():
            tell_of_workers(client, probe, patience=WORKER_START_SECONDS if connection.temporary else 0.0)
            progress = ProbeProgress(started_at=time.monotonic(), done_before=probe.progress.repeats_done)
            with showing(progress, Console(stderr=True)) as tell:
                for event in client.events(probe.id):
                    tell(event)
    except KeyboardInterrupt:
        return _leave(connection, probe.id, created=created)
    return show_advice(client, probe.id, json=json)


def tell_of_workers(client: "Client", probe: "ProbeDocument", *, patience: float = 0.0) -> None:
    """Say so if no worker can take the probe within `patience` seconds, and where there are workers."""
    deadline = time.monotonic() + patience
    while probe.status == "queued":
        labels = [hardware.label for hardware in client.hardware() if hardware.live_workers]
        if probe.hardware in labels:
            return
        if time.monotonic() >= deadline:
            there = f"live workers are there for {', '.join(labels)}" if labels else "no worker lives at all"
            say(
                f"no worker works for {probe.hardware}, and the probe waits until one does: "
                f"breakeven worker --hardware {probe.hardware} ({there})"
            )
            return
        time.sleep(0.5)
        probe = client.get_probe(probe.id)


def how_to_go_on(connection: Connection, probe_id: str) -> str:
    """What a person can do about a probe that nobody waits for."""
    url = connection.client.url
    server = f" --server {url}" if connection.remote else ""
    return f"its advice:  breakeven advice {probe_id}{server}\nits end:     curl -X DELETE {url}/v1/probes/{probe_id}"


def _leave(connection: Connection, probe_id: str, *, created: bool) -> int:
    if not (connection.temporary and created):
        say(f"\nprobe {probe_id} goes on without this command\n{how_to_go_on(connection, probe_id)}")
        return INTERRUPTED
    say("\ncancelling the probe, since its service ends with this command")
    try:
        connection.client.cancel(probe_id)
    except RequestRefusedError:
        # It ended by itself at this moment.
        say(f"probe {probe_id} is {connection.client.get_probe(probe_id).status}")
    return ExitCode.PROBE_ENDED


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM interrupts the block as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
