"""Workers that die, freeze, lose the database or are told to stop: what becomes of their jobs. On both databases."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlmodel import Session, select

from service.database import transaction
from service.events import add_event
from service.models import Launch, Probe, ProbeStatus, Repeat, Worker, now
from service.queue import ProbeQueue
from service.settings import Settings
from tests.processes import environment_of
from tests.workers.probing import (
    IMPATIENT,
    ask_for,
    assert_measured_once,
    count,
    ended,
    engine_processes,
    events_of,
    live_workers,
    pid_of_owner,
    probe_of,
    repeats_of,
    taking_time,
    wait_until,
    worker,
    worker_log,
)
from workers.presence import AcceleratorTakenError, hold_accelerators
from workers.record import MOST_DEATHS, deaths_in_a_row, end_probe, take_probe

REPEATS = 3 + 3 * 2 + 3


@pytest.fixture
def ask(engine: Engine) -> Iterator[Callable[..., str]]:
    """Queues a probe of one batch size with K = 0 and 1, and gives its id."""
    queue = ProbeQueue(engine)
    yield lambda **changes: ask_for(engine, queue, batch_sizes=[1], max_draft_tokens=1, **changes)
    queue.close()


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    """Settings with which a worker that dies is missed soon."""
    return settings.model_copy(update=IMPATIENT)


@pytest.fixture(autouse=True)
def _no_engine_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not engine_processes(), seconds=2)


def in_the_drafters_arm(engine: Engine, probe_id: str) -> Callable[[], bool]:
    """Whether the second arm has measured something."""
    return lambda: count(engine, Repeat, probe_id, Repeat.arm == "drafter:ngram") >= 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_ends_leaves_its_job_to_the_next_of_its_kind(
    settings: Settings, engine: Engine, ask: Callable[..., str], how: signal.Signals
) -> None:
    probe_id = ask(target=taking_time())
    with worker(settings) as process:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        process.send_signal(how)
        process.wait(10)
    kept = repeats_of(engine, probe_id)
    assert bool(live_workers(engine)) == (how == signal.SIGKILL)
    assert probe_of(engine, probe_id).status == ProbeStatus.RUNNING
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=60)
    assert_measured_once(engine, probe_id, REPEATS)
    again = repeats_of(engine, probe_id)
    assert {place: again[place].launch_id for place in kept} == {place: row.launch_id for place, row in kept.items()}
    with Session(engine) as session:
        loads = session.exec(select(Launch.arm).where(Launch.probe_id == probe_id).order_by(Launch.id)).all()
    assert list(loads) == ["baseline", "drafter:ngram", "drafter:ngram", "control"]


def test_a_worker_that_is_told_to_stop_finishes_its_repeat_and_another_goes_on_at_once(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    """With the patience of production: nobody waits for a worker that has said goodbye."""
    probe_id = ask(target=taking_time(15))  # a repeat takes about 0.4 s
    with worker(settings, "one"), worker(settings, "two"):
        wait_until(lambda: len(live_workers(engine)) == 2, seconds=30)
        wait_until(lambda: count(engine, Repeat, probe_id) >= 2, seconds=60)
        owner = probe_of(engine, probe_id).worker
        assert owner is not None
        before = count(engine, Repeat, probe_id)
        stopped_at = time.monotonic()
        os.kill(pid_of_owner(engine, probe_id), signal.SIGTERM)
        wait_until(lambda: len(live_workers(engine)) == 1, seconds=10)
        # The one that was under way when they were counted, and one more if that ended before the signal came.
        assert before < count(engine, Repeat, probe_id) <= before + 2
        assert events_of(engine, probe_id, "arm")[-1].data["state"] == "handed_back"
        wait_until(lambda: probe_of(engine, probe_id).worker != owner, seconds=20)
        assert time.monotonic() - stopped_at < 15
        wait_until(ended(engine, probe_id), seconds=120)
    assert_measured_once(engine, probe_id, REPEATS)


def test_the_job_of_a_worker_that_was_killed_goes_to_another(
    impatient: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask(target=taking_time())
    with worker(impatient, "one"), worker(impatient, "two"):
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        owner = probe_of(engine, probe_id).worker
        assert owner is not None
        os.kill(pid_of_owner(engine, probe_id), signal.SIGKILL)
        wait_until(ended(engine, probe_id), seconds=60)
    assert probe_of(engine, probe_id).worker != owner
    assert_measured_once(engine, probe_id, REPEATS)


def test_a_worker_that_was_frozen_ends_itself_when_it_thaws(
    impatient: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask(target=taking_time())
    with worker(impatient, "one") as one, worker(impatient, "two") as two:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        owner = probe_of(engine, probe_id).worker
        assert owner is not None
        frozen, name = (one, "one") if one.pid == pid_of_owner(engine, probe_id) else (two, "two")
        frozen.send_signal(signal.SIGSTOP)
        wait_until(lambda: probe_of(engine, probe_id).worker != owner, seconds=30)
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(10) == -signal.SIGKILL
        # By the clock of its last beat; or, if it froze between a look at that clock and a write, by the row.
        assert "it ends here" in worker_log(impatient, name).read_text()
        wait_until(ended(engine, probe_id), seconds=60)
    assert_measured_once(engine, probe_id, REPEATS)


def test_a_worker_that_cannot_reach_the_database_ends_itself(
    impatient: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask(target=taking_time())
    with worker(impatient) as process:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        with engine.connect() as connection:
            locking = "BEGIN IMMEDIATE" if engine.dialect.name == "sqlite" else "LOCK TABLE worker"
            connection.execute(text(locking))
            assert process.wait(20) == -signal.SIGKILL
            connection.rollback()
    with worker(impatient):
        wait_until(ended(engine, probe_id), seconds=60)
    assert_measured_once(engine, probe_id, REPEATS)


def test_a_database_that_is_locked_for_a_while_costs_nothing(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    hasty = settings.model_copy(update={"busy_timeout_seconds": 0.2})
    probe_id = ask(target=taking_time())
    with worker(hasty) as process:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        with engine.connect() as connection:
            locking = "BEGIN IMMEDIATE" if engine.dialect.name == "sqlite" else "LOCK TABLE repeat"
            connection.execute(text(locking))
            time.sleep(3)
            connection.rollback()
        wait_until(ended(engine, probe_id), seconds=60)
        assert process.poll() is None
    assert_measured_once(engine, probe_id, REPEATS)


def test_connections_that_break_cost_nothing(
    database: str, settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    if database == "sqlite":
        pytest.skip("a file has no connections that break")
    probe_id = ask(target=taking_time(10))
    with worker(settings) as process:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        for _ in range(6):
            with engine.connect() as connection:
                of_others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                broken = connection.execute(text(f"SELECT pg_terminate_backend(pid) {of_others}")).all()
            assert broken
            time.sleep(0.3)
        wait_until(ended(engine, probe_id), seconds=60)
        assert process.poll() is None
    assert_measured_once(engine, probe_id, REPEATS)


def test_a_job_whose_workers_all_die_before_they_measure_anything_is_given_up(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask()
    with transaction(engine) as session:
        for _ in range(MOST_DEATHS):
            add_event(session, probe_id, "arm", arm="baseline", state="started")
            add_event(session, probe_id, "arm", arm="baseline", state="loaded")
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=60)
    probe = probe_of(engine, probe_id)
    assert probe.status == ProbeStatus.FAILED
    assert probe.error is not None
    assert probe.error.startswith(f"{MOST_DEATHS} workers in a row died in baseline before they had measured anything")


def test_deaths_with_a_measurement_in_between_are_bad_luck(engine: Engine, ask: Callable[..., str]) -> None:
    probe_id = ask()

    def tell(kind: str, **data: object) -> int:
        with transaction(engine) as session:
            add_event(session, probe_id, kind, **data)
            session.flush()
            return deaths_in_a_row(session, probe_id)

    assert tell("arm", state="started") == 1
    assert tell("arm", state="started") == 2
    assert tell("repeat", done=1) == 0
    assert tell("arm", state="started") == 1
    assert tell("arm", state="handed_back") == 0
    assert tell("arm", state="started") == 1
    assert tell("generation", prompt=1) == 0


def test_a_probe_whose_worker_died_after_the_last_arm_is_ended_by_the_next(
    engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask()
    with transaction(engine) as session:
        assert take_probe(session, probe_id, "a-worker/that/died") is not None
    with transaction(engine) as session:
        end_probe(session, probe_id, ProbeStatus.SUCCEEDED)
    assert probe_of(engine, probe_id).status == ProbeStatus.SUCCEEDED


def run_second_worker(settings: Settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workers", "--hardware", "cpu"],
        env=os.environ | environment_of(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.sqlite_only
def test_a_second_worker_of_the_same_home_is_refused(settings: Settings, engine: Engine) -> None:
    with worker(settings):
        wait_until(lambda: live_workers(engine), seconds=30)
        second = run_second_worker(settings)
    assert second.returncode == 2
    assert "another worker already uses cpu" in second.stderr


@pytest.mark.sqlite_only
def test_workers_that_share_an_accelerator_are_refused_and_others_are_not(settings: Settings) -> None:
    one, two, three = (f"GPU-of-a-test-{os.getpid()}-{number}" for number in range(3))
    with hold_accelerators("2xThing", [one, two], settings):
        taken = pytest.raises(AcceleratorTakenError, match=rf"already uses 1xThing \({two}\) on this host")
        with taken, hold_accelerators("1xThing", [two], settings):
            pass
        with hold_accelerators("1xThing", [three], settings):
            pass
    with hold_accelerators("1xThing", [two], settings):
        pass
    for path in Path("/tmp").glob(f"breakeven-GPU-of-a-test-{os.getpid()}-*.lock"):
        path.unlink()


def test_a_worker_that_is_told_to_stop_while_it_loads_goes_at_once_and_it_is_no_death(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    probe_id = ask(target=taking_time(load_seconds=60))
    with worker(settings) as process:
        wait_until(lambda: events_of(engine, probe_id, "arm"), seconds=60)
        process.terminate()
        assert process.wait(10) == 0
    states = [event.data["state"] for event in events_of(engine, probe_id, "arm")]
    assert states == ["started", "handed_back"]
    with transaction(engine) as session:
        assert deaths_in_a_row(session, probe_id) == 0


def test_a_worker_refuses_a_database_of_another_schema(empty_settings: Settings) -> None:
    done = run_second_worker(empty_settings)
    assert done.returncode == 2
    assert "start `breakeven serve` of the same release on it first" in done.stderr


def test_only_sqlite_is_refused_to_workers_of_several_hosts(settings: Settings, engine: Engine) -> None:
    with transaction(engine) as session:
        session.add(Worker(id="elsewhere/cpu/all", hardware="cpu", host="elsewhere", pid=1))
    if engine.dialect.name == "sqlite":
        refused = run_second_worker(settings)
        assert refused.returncode == 2
        assert "a worker on elsewhere uses it: SQLite serves one host" in refused.stderr
        return
    with worker(settings):
        wait_until(lambda: {each.host for each in live_workers(engine)} == {"elsewhere", socket.gethostname()}, 30)


def test_a_row_of_a_worker_that_lost_its_job_is_refused(
    settings: Settings, engine: Engine, ask: Callable[..., str]
) -> None:
    """Whatever the queue believes: the probe's own row says whose measurements count."""
    probe_id = ask(target=taking_time())
    with worker(settings) as process:
        wait_until(in_the_drafters_arm(engine, probe_id), seconds=60)
        with transaction(engine) as session:
            session.get_one(Probe, probe_id).worker = "elsewhere/cpu/all"
        lost_at = now()
        assert process.wait(10) == -signal.SIGKILL
        assert "is measured by elsewhere/cpu/all by now" in worker_log(settings).read_text()
    assert all(row.created_at <= lost_at for row in repeats_of(engine, probe_id).values())
