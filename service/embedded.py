"""The embedded service as a command finds it: the one that runs for BREAKEVEN_HOME, else one for the command's time."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.client import Client
from service.exit_codes import CommandError, ExitCode
from service.home import HomeUnusableError, ServiceRecord, Use, is_held, read_record, use_home
from service.settings import settings
from service.worker_process import own_code_environment

START_SECONDS = 90.0
"""A migration on a slow disk, with the imports of a loaded machine."""
GRACE_SECONDS = 20.0
"""Beside the time that the service gives its worker for the repeat that it finishes first."""
POLL_SECONDS = 0.1


class EmbeddedServiceError(CommandError):
    """No service runs for this home, and none could be started."""

    exit_code = ExitCode.UNREACHABLE


@dataclass(frozen=True)
class EmbeddedService:
    """Where it listens, and whether it ends with the last command that uses it."""

    url: str
    temporary: bool


@contextmanager
def embedded_service(home: Path, *, worker: bool, say: Callable[[str], None]) -> Iterator[EmbeddedService]:
    """The service of this home for the time of the block. Raises EmbeddedServiceError.

    One that is started for it keeps a worker if `worker`, and is gone after the block, unless other commands use it
    by then: it then ends with the last of them, and also if this process is killed.
    """
    if worker:
        _let_reader_end(home)
    with use_home(home) as use:
        if record := _running(home, worker=worker):
            yield EmbeddedService(record.url, temporary=record.while_used)
            return
        say(f"no service runs for {home}: starting one for the time of this command")
        child = _start(home, worker=worker)
        try:
            record = _ready(home, child, worker=worker)
            yield EmbeddedService(record.url, temporary=record.while_used)
        finally:
            _stop(child, use)


def _let_reader_end(home: Path) -> None:
    """Wait while a command that only reads has a service without a worker: not yet a user, or that would not end."""
    deadline = time.monotonic() + START_SECONDS
    while is_held(home) and time.monotonic() < deadline:
        record = read_record(home)
        if record is None or record.worker or not record.while_used:
            return
        time.sleep(POLL_SECONDS)


def _running(home: Path, *, worker: bool) -> ServiceRecord | None:
    """The service that runs for this home, once it is ready; None if none does."""
    deadline = time.monotonic() + START_SECONDS
    while is_held(home):
        record = read_record(home)
        # One without a worker that only waits for a short command to end is of no use for measuring.
        if record and (record.worker or not worker or not record.while_used) and _answers(record):
            return record
        if time.monotonic() > deadline:
            raise EmbeddedServiceError(f"the service of {home} does not get ready: stop it, and see {home}/service.log")
        time.sleep(POLL_SECONDS)
    return None


def _answers(record: ServiceRecord) -> bool:
    with Client(record.url) as client:
        return client.is_ready()


def _start(home: Path, *, worker: bool) -> subprocess.Popen[bytes]:
    # A session of its own: at a Ctrl-C this command decides what happens to the probe before the service ends.
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--while-used"]
    try:
        log = (home / "service.log").open("ab")
    except OSError as error:
        raise HomeUnusableError(home, error) from None
    with log:
        return subprocess.Popen(
            command if worker else [*command, "--no-worker"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=own_code_environment(),
        )


def _ready(home: Path, child: subprocess.Popen[bytes], *, worker: bool) -> ServiceRecord:
    deadline = time.monotonic() + START_SECONDS
    while child.poll() is None:
        if time.monotonic() > deadline:
            raise EmbeddedServiceError(
                f"the embedded service is not ready after {START_SECONDS:g} s: see {home}/service.log"
            )
        record = read_record(home)
        if record and record.pid == child.pid and _answers(record):
            return record
        time.sleep(POLL_SECONDS)
    # Of two commands that start one at once, one is told that the home is taken: it uses the other's.
    if record := _running(home, worker=worker):
        return record
    log = home / "service.log"
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    raise EmbeddedServiceError(
        f"the embedded service did not start: {lines[-1] if lines else f'exit code {child.returncode}'} (see {log})"
    )


def _stop(child: subprocess.Popen[bytes], use: Use) -> None:
    if child.poll() is not None or not use.becomes_sole():
        return
    child.terminate()
    try:
        child.wait(settings().stop_seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
