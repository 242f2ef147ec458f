"""Real worker processes, probes for them on the simulated engine, and what can be seen of both from outside."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlmodel import Session, col, func, select

from service.database import transaction
from service.models import Event, Probe, ProbeStatus, Repeat, Worker
from service.probes import create_probe
from service.queue import ProbeQueue
from service.schemas import ProbeRequest
from service.settings import Settings
from tests.processes import environment_of

IMPATIENT = {"beat_seconds": 0.2, "fence_seconds": 2.0, "dead_seconds": 3.0}
"""Settings with which a worker that dies is missed soon."""

CLOCK_SECONDS = 0.02
"""How far the clock may be off by which a repeat is said to have ended: it is read when the repeat is told of."""

Place = tuple[str, int, int, int]


def worker_log(settings: Settings, name: str = "") -> Path:
    """What the workers of this name say."""
    return settings.home / f"worker-{name}.log"


def start_worker(settings: Settings, name: str = "") -> subprocess.Popen[bytes]:
    """A worker process for the label `cpu`; one of another name has a home of its own, so that both can work."""
    environment = os.environ | environment_of(settings) | {"BREAKEVEN_HOME": str(settings.home / name)}
    command = [sys.executable, "-m", "workers", "--hardware", "cpu"]
    with worker_log(settings, name).open("ab") as log:
        return subprocess.Popen(command, env=environment, stderr=log)


def pid_of_owner(engine: Engine, probe_id: str) -> int:
    """The process of the worker that measures this probe."""
    with Session(engine) as session:
        return session.get_one(Worker, session.get_one(Probe, probe_id).worker).pid


@contextmanager
def worker(settings: Settings, name: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A worker process for the time of the block, at whose end it is killed."""
    with start_worker(settings, name) as process:
        try:
            yield process
        finally:
            process.kill()


def probe_request(**changes: Any) -> ProbeRequest:
    """A small probe on the simulated engine: 30 repeats in three arms."""
    fields: dict[str, Any] = {
        "engine": "simulated",
        "target": {"model": "a-model", "engine_args": {"noise": 0.001}},
        "hardware": "cpu",
        "drafters": [{"method": "ngram"}],
        "batch_sizes": [1, 2],
        "max_draft_tokens": 2,
        "repeats": 3,
        "workload": {"prompts": [{"prompt": f"prompt {i}"} for i in range(6)], "output_tokens": 40},
    }
    return ProbeRequest.model_validate(fields | changes)


def taking_time(decode_ms: float = 3, **options: Any) -> dict[str, Any]:
    """A target whose steps really take their time."""
    return {"model": "a-model", "engine_args": {"sleep": True, "noise": 0.001, "decode_ms": decode_ms, **options}}


def ask_for(engine: Engine, queue: ProbeQueue, /, **changes: Any) -> str:
    """Queue a probe; its id."""
    with transaction(engine) as session:
        return create_probe(session, queue, probe_request(**changes))[0].id


def probe_of(engine: Engine, probe_id: str) -> Probe:
    with Session(engine) as session:
        return session.get_one(Probe, probe_id)


def ended(engine: Engine, *probe_ids: str) -> Callable[[], bool]:
    """Whether all of these probes have a final status."""
    return lambda: all(ProbeStatus(probe_of(engine, probe_id).status).final for probe_id in probe_ids)


def count(engine: Engine, table: Any, probe_id: str, *conditions: Any) -> int:
    with Session(engine) as session:
        statement = select(func.count()).select_from(table).where(col(table.probe_id) == probe_id, *conditions)
        return session.exec(statement).one()


def repeats_of(engine: Engine, probe_id: str) -> dict[Place, Repeat]:
    with Session(engine) as session:
        rows = session.exec(select(Repeat).where(Repeat.probe_id == probe_id)).all()
    return {(row.arm, row.batch_size, row.draft_tokens, row.repeat): row for row in rows}


def events_of(engine: Engine, probe_id: str, *kinds: str) -> list[Event]:
    with Session(engine) as session:
        statement = select(Event).where(Event.probe_id == probe_id, col(Event.kind).in_(kinds))
        return list(session.exec(statement.order_by(col(Event.id))))


def assert_measured_once(engine: Engine, probe_id: str, repeats: int) -> None:
    """Every cell is there, no repeat was measured twice, and no two engines measured at one time."""
    probe = probe_of(engine, probe_id)
    assert (probe.status, probe.error) == (ProbeStatus.SUCCEEDED, None)
    rows = repeats_of(engine, probe_id)
    assert len(rows) == repeats
    told = [event.data for event in events_of(engine, probe_id, "repeat")]
    places = [(data["arm"], data["batch_size"], data["draft_tokens"], data["repeat"]) for data in told]
    assert sorted(places) == sorted(rows)
    # A row's time is when its repeat ended: of repeats that really took their seconds, one after the other.
    by_clock = sorted((row.created_at.timestamp() - row.seconds, row.created_at.timestamp()) for row in rows.values())
    for (_, end), (start, _) in pairwise(by_clock):
        assert start > end - CLOCK_SECONDS


def live_workers(engine: Engine) -> list[Worker]:
    with Session(engine) as session:
        return list(session.exec(select(Worker).order_by(Worker.id)))


def engine_processes() -> set[int]:
    """Processes of engines that this test has brought about: those that run an arm, and those that fork them."""
    this_test = os.environ["PYTEST_CURRENT_TEST"].split(" (")[0].encode()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_engine = (process / "cmdline").read_bytes().endswith(b"-m\0workers.probe\0")
            if is_engine and b"PYTEST_CURRENT_TEST=" + this_test in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


def running_arms() -> set[int]:
    """Processes that run an arm: forked by another process of engines."""
    processes = engine_processes()
    return {pid for pid in processes if _parent(pid) in processes}


def _parent(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return None


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
