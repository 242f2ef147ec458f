"""A probe through the real queue: a worker process, the durable workflow, children, rows. Simulated engine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlmodel import Session, col, func, select

from service.database import transaction
from service.errors import NoEvidenceError
from service.evidence import Question, find_evidence
from service.models import Event, Generation, Launch, Probe, ProbeStatus, Repeat, Worker
from service.probes import cancel_probe, create_probe
from service.queue import ProbeQueue
from service.schemas import ProbeRequest
from service.settings import Settings
from tests.workers.test_child import children, wait_until


@contextmanager
def worker(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process for the label `cpu`, killed at the end of the block."""
    environment = os.environ | {"BREAKEVEN_HOME": str(settings.home)}
    with subprocess.Popen([sys.executable, "-m", "workers", "--hardware", "cpu"], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def request(**changes: Any) -> ProbeRequest:
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


@pytest.fixture
def queue(engine: Engine) -> Iterator[ProbeQueue]:
    queue = ProbeQueue(engine)
    yield queue
    queue.close()


@pytest.fixture
def ask(engine: Engine, queue: ProbeQueue) -> Callable[..., str]:
    """Queue a probe; its id."""

    def create(**changes: Any) -> str:
        with transaction(engine) as session:
            return create_probe(session, queue, request(**changes))[0].id

    return create


def status_of(engine: Engine, probe_id: str) -> str:
    with Session(engine) as session:
        return session.get_one(Probe, probe_id).status


def ended(engine: Engine, probe_id: str) -> Callable[[], bool]:
    return lambda: ProbeStatus(status_of(engine, probe_id)).final


def count(engine: Engine, table: Any, probe_id: str, *conditions: Any) -> int:
    with Session(engine) as session:
        statement = select(func.count()).select_from(table).where(col(table.probe_id) == probe_id, *conditions)
        return session.exec(statement).one()


def test_a_probe_goes_from_the_queue_through_every_arm_into_rows_and_events(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask()
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=60)
    with Session(engine) as session:
        probe = session.get_one(Probe, probe_id)
        assert (probe.status, probe.error) == (ProbeStatus.SUCCEEDED, None)
        assert probe.resolved is not None
        assert probe.resolved["engine"] == {"name": "simulated", "version": "1"}
        arms = session.exec(select(Launch.arm).where(Launch.probe_id == probe_id).order_by(col(Launch.id))).all()
        events = session.exec(select(Event).where(Event.probe_id == probe_id).order_by(col(Event.id))).all()
    assert list(arms) == ["baseline", "drafter:ngram", "control"]
    assert count(engine, Repeat, probe_id) == 2 * 3 + 2 * 3 * 3 + 2 * 3 == 30
    assert count(engine, Generation, probe_id) == 6 * 2 + 6 * 2
    statuses = [event.data["status"] for event in events if event.kind == "status"]
    assert statuses == [ProbeStatus.QUEUED, ProbeStatus.RUNNING, ProbeStatus.SUCCEEDED]
    repeats = [event.data for event in events if event.kind == "repeat"]
    assert [data["done"] for data in repeats] == list(range(1, 31))
    assert {data["total"] for data in repeats} == {30}
    with Session(engine) as session, pytest.raises(NoEvidenceError):  # made-up figures are no evidence
        find_evidence(session, Question(model="a-model", hardware="cpu"))


def test_an_engine_that_refuses_fails_the_probe_with_its_reason_and_the_worker_goes_on(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    wrong = ask(target={"model": "a-model", "engine_args": {"speed": 1}})
    right = ask()
    with worker(settings) as process:
        wait_until(ended(engine, right), seconds=60)
        assert process.poll() is None
    with Session(engine) as session:
        probe = session.get_one(Probe, wrong)
        assert probe.status == ProbeStatus.FAILED
        assert probe.error is not None
        assert probe.error.startswith("the simulated engine has no option 'speed'; it has acceptance,")
    assert status_of(engine, right) == ProbeStatus.SUCCEEDED


def test_cancelling_a_running_probe_kills_its_engine_within_two_seconds(
    settings: Settings, engine: Engine, queue: ProbeQueue, ask: Callable[..., str]
) -> None:
    before = children()
    probe_id = ask(target={"model": "a-model", "engine_args": {"sleep": True, "decode_ms": 200}})
    with worker(settings) as process:
        wait_until(lambda: count(engine, Launch, probe_id), seconds=30)
        started = time.monotonic()
        with transaction(engine) as session:
            cancel_probe(session, probe_id)
        queue.cancel(probe_id)
        wait_until(lambda: not children() - before)
        assert time.monotonic() - started < 2
        after = ask()
        wait_until(ended(engine, after), seconds=60)
        assert process.poll() is None
    assert status_of(engine, probe_id) == ProbeStatus.CANCELLED
    assert status_of(engine, after) == ProbeStatus.SUCCEEDED


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_ends_leaves_no_engine_and_the_next_one_measures_only_what_is_missing(
    settings: Settings, engine: Engine, ask: Callable[..., str], how: signal.Signals
) -> None:
    before = children()
    probe_id = ask(target={"model": "a-model", "engine_args": {"sleep": True, "decode_ms": 3}})
    with worker(settings) as process:
        wait_until(lambda: count(engine, Repeat, probe_id, col(Repeat.arm) == "drafter:ngram") >= 4, seconds=60)
        process.send_signal(how)
        process.wait(10)
        wait_until(lambda: not children() - before, seconds=2)
    with Session(engine) as session:
        kept = {
            (r.arm, r.batch_size, r.draft_tokens, r.repeat): (r.created_at, r.seconds)
            for r in session.exec(select(Repeat).where(Repeat.probe_id == probe_id))
        }
        assert session.exec(select(Worker)).all() == [] or how == signal.SIGKILL
    assert status_of(engine, probe_id) == ProbeStatus.RUNNING
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=60)
    assert status_of(engine, probe_id) == ProbeStatus.SUCCEEDED
    with Session(engine) as session:
        rows = session.exec(select(Repeat).where(Repeat.probe_id == probe_id)).all()
        again = {(r.arm, r.batch_size, r.draft_tokens, r.repeat): (r.created_at, r.seconds) for r in rows}
        loads = session.exec(select(Launch.arm).where(Launch.probe_id == probe_id).order_by(col(Launch.id))).all()
    assert len(rows) == 30
    assert {place: again[place] for place in kept} == kept
    assert list(loads) == ["baseline", "drafter:ngram", "drafter:ngram", "control"]


def test_a_second_worker_for_the_same_accelerators_is_refused(settings: Settings, engine: Engine) -> None:
    with worker(settings):
        wait_until(lambda: worker_rows(engine))
        environment = os.environ | {"BREAKEVEN_HOME": str(settings.home)}
        second = subprocess.run(
            [sys.executable, "-m", "workers", "--hardware", "cpu"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 2
    assert "another worker already uses cpu on this host" in second.stderr


def worker_rows(engine: Engine) -> int:
    with Session(engine) as session:
        return session.exec(select(func.count()).select_from(Worker)).one()


def test_a_worker_refuses_a_database_of_another_schema(settings: Settings) -> None:
    (settings.home / "breakeven.sqlite").unlink()
    environment = os.environ | {"BREAKEVEN_HOME": str(settings.home)}
    done = subprocess.run(
        [sys.executable, "-m", "workers", "--hardware", "cpu"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "start `breakeven serve` of the same release on it first" in done.stderr
