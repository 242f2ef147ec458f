"""A probe through the real queue: a worker process, the durable workflow, children, rows. Simulated engine."""

import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine
from sqlmodel import Session, col, select

from service.database import transaction
from service.errors import NoEvidenceError
from service.evidence import Question, find_evidence
from service.models import Generation, Launch, ProbeStatus, Repeat
from service.probes import cancel_probe
from service.queue import ProbeQueue
from service.settings import Settings
from tests.workers.probing import (
    ask_for,
    count,
    ended,
    events_of,
    probe_of,
    repeats_of,
    running_arms,
    taking_time,
    wait_until,
    worker,
)


@pytest.fixture
def ask(engine: Engine) -> Iterator[Callable[..., str]]:
    """Queues a probe, and gives its id."""
    queue = ProbeQueue(engine)
    yield lambda **changes: ask_for(engine, queue, **changes)
    queue.close()


def launches_of(engine: Engine, probe_id: str) -> list[Launch]:
    with Session(engine) as session:
        return list(session.exec(select(Launch).where(Launch.probe_id == probe_id).order_by(col(Launch.id))))


def test_a_probe_goes_from_the_queue_through_every_arm_into_rows_and_events(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask()
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=60)
    probe = probe_of(engine, probe_id)
    assert (probe.status, probe.error) == (ProbeStatus.SUCCEEDED, None)
    assert probe.resolved is not None
    assert probe.resolved["engine"] == {"name": "simulated", "version": "1"}
    launches = launches_of(engine, probe_id)
    assert [launch.arm for launch in launches] == ["baseline", "drafter:ngram", "control"]
    assert all(launch.worker == probe.worker and launch.warm_up_seconds is not None for launch in launches)
    assert count(engine, Repeat, probe_id) == 2 * 3 + 2 * 3 * 3 + 2 * 3 == 30
    assert count(engine, Generation, probe_id) == 6 * 2 + 6 * 2
    arms = {launch.id: launch.arm for launch in launches}
    assert all(arms[row.launch_id] == row.arm for row in repeats_of(engine, probe_id).values())
    statuses = [event.data["status"] for event in events_of(engine, probe_id, "status")]
    assert statuses == [ProbeStatus.QUEUED, ProbeStatus.RUNNING, ProbeStatus.SUCCEEDED]
    repeats = [event.data for event in events_of(engine, probe_id, "repeat")]
    assert [data["done"] for data in repeats] == list(range(1, 31))
    assert {data["total"] for data in repeats} == {30}
    with Session(engine) as session, pytest.raises(NoEvidenceError):  # made-up figures are no evidence
        find_evidence(session, Question(model="a-model", hardware="cpu"))


def test_the_relaunch_mode_loads_the_engine_anew_for_each_k_and_measures_the_same_cells(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    one_load, relaunch = ask(), ask(relaunch=True)
    assert one_load != relaunch
    with worker(settings):
        wait_until(ended(engine, one_load, relaunch), seconds=60)
    assert probe_of(engine, relaunch).status == ProbeStatus.SUCCEEDED, probe_of(engine, relaunch).error
    launches = launches_of(engine, relaunch)
    assert [(launch.arm, launch.draft_tokens) for launch in launches] == [
        ("baseline", [0]),
        ("drafter:ngram", [0]),
        ("drafter:ngram", [1]),
        ("drafter:ngram", [2]),
        ("control", [0]),
    ]
    rows = repeats_of(engine, relaunch)
    assert rows.keys() == repeats_of(engine, one_load).keys()
    own_k = {launch.id: launch.draft_tokens for launch in launches}
    assert all(own_k[row.launch_id] == [row.draft_tokens] for row in rows.values())
    assert count(engine, Generation, relaunch) == count(engine, Generation, one_load)
    totals = {event.data["total"] for event in events_of(engine, relaunch, "repeat")}
    assert totals == {30}


def test_an_engine_that_refuses_fails_the_probe_with_its_reason_and_the_worker_goes_on(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    wrong = ask(target={"model": "a-model", "engine_args": {"speed": 1}})
    right = ask()
    with worker(settings) as process:
        wait_until(ended(engine, right), seconds=60)
        assert process.poll() is None
    probe = probe_of(engine, wrong)
    assert probe.status == ProbeStatus.FAILED
    assert probe.error is not None
    assert probe.error.startswith("the simulated engine has no option 'speed'; it has acceptance,")
    assert probe_of(engine, right).status == ProbeStatus.SUCCEEDED


def test_cancelling_a_running_probe_kills_its_engine_within_two_seconds(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask(target=taking_time(200))
    queue = ProbeQueue(engine)
    with worker(settings) as process:
        wait_until(lambda: count(engine, Launch, probe_id), seconds=30)
        assert running_arms()
        started = time.monotonic()
        with transaction(engine) as session:
            cancel_probe(session, probe_id)
        queue.cancel(probe_id)
        wait_until(lambda: not running_arms())
        assert time.monotonic() - started < 2
        rows = count(engine, Repeat, probe_id)
        after = ask()
        wait_until(ended(engine, after), seconds=60)
        assert process.poll() is None
    queue.close()
    assert probe_of(engine, probe_id).status == ProbeStatus.CANCELLED
    assert count(engine, Repeat, probe_id) == rows
    assert probe_of(engine, after).status == ProbeStatus.SUCCEEDED
