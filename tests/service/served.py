"""The real application behind a real socket, with someone who plays the worker by writing what a worker writes."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import uvicorn
from sqlalchemy import Engine
from sqlmodel import col, select

from service.app import create_app
from service.database import transaction
from service.events import add_event
from service.models import Probe, ProbeStatus, Worker, now
from service.server import listening_socket
from service.settings import Settings
from tests.processes import environment_of
from tests.service.measured import insert_measurements

Result = TypeVar("Result")


@contextmanager
def serving(settings: Settings, port: int = 0) -> Iterator[str]:
    """The application of these settings in a thread; its address."""
    with listening_socket("127.0.0.1", port) as listener:
        # A stream that is open keeps a server which no signal stops from ending.
        config = uvicorn.Config(create_app(settings), log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def worker_of(engine: Engine, *, error: str | None = None) -> Iterator[None]:
    """Someone in a thread who takes the next queued probe and plays it to its end: well, or failing with `error`."""

    def work() -> None:
        probe_id = until(lambda: queued_probe(engine))
        play_start(engine, probe_id)
        if error is None:
            insert_measurements(engine, probe_id, step_ms=15, tokens_per_step=2)
        end_probe(engine, probe_id, ProbeStatus.FAILED if error else ProbeStatus.SUCCEEDED, error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def queued_probe(engine: Engine) -> str | None:
    """The id of a probe that waits, if there is one."""
    with transaction(engine) as session:
        return session.exec(select(Probe.id).where(col(Probe.status) == ProbeStatus.QUEUED)).first()


def play_start(engine: Engine, probe_id: str) -> None:
    """The probe runs: one launch, and a repeat of it."""
    with transaction(engine) as session:
        probe = session.get_one(Probe, probe_id)
        probe.status, probe.started_at = ProbeStatus.RUNNING, now()
        probe.resolved = {"engine": {"name": "vllm", "version": "0.32.0"}, "revision": None}
        add_event(session, probe_id, "status", status="running")
        add_event(session, probe_id, "arm", arm="baseline", state="started")
        add_event(session, probe_id, "arm", arm="baseline", state="loaded")
        cell = {"context_length": 0, "batch_size": 1, "draft_tokens": 0, "repeat": 0, "step_ms": 10.0}
        add_event(session, probe_id, "repeat", arm="baseline", **cell, done=1, total=4)
        add_event(session, probe_id, "log", line="baseline: the clocks are \x1b[31mnot\x1b[0m fixed")


def end_probe(engine: Engine, probe_id: str, status: ProbeStatus, error: str | None = None) -> None:
    """The probe has this final status."""
    with transaction(engine) as session:
        probe = session.get_one(Probe, probe_id)
        probe.status, probe.error, probe.finished_at = status, error, now()
        add_event(session, probe_id, "status", status=status, error=error)


def insert_worker(engine: Engine, hardware: str) -> None:
    """A worker of this label that was just heard of."""
    with transaction(engine) as session:
        session.add(Worker(id=f"test/{hardware}", hardware=hardware, host="test", pid=1))


def breakeven(
    *arguments: str | Path, settings: Settings | None = None, token: str | None = None
) -> subprocess.Popen[str]:
    """The program as a person starts it, in a terminal of 100 columns that is none."""
    variables = {"COLUMNS": "100", "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    variables |= environment_of(settings) if settings else {}
    variables |= {"BREAKEVEN_TOKEN": token} if token else {}
    command = [sys.executable, "-m", "service", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, once it has ended."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def heard(process: subprocess.Popen[str], text: str) -> None:
    """Read what a command says on standard error up to the first line with this text in it."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} was never said: {said}")


def run(*arguments: str | Path, settings: Settings | None = None) -> tuple[int, str, str]:
    """Run a command to its end: exit code, standard output, standard error."""
    return finished(breakeven(*arguments, settings=settings))


def until(look: Callable[[], Result | None], seconds: float = 60) -> Result:
    """What `look` sees once it sees something."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return seen
