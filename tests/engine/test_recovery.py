"""The real engine under a worker: killed with it, cancelled, refusing; and who goes on after that."""

import signal
import time

import pytest
from sqlalchemy import Engine
from sqlmodel import Session, col, select

from service.database import transaction
from service.demo import DEMO_MODEL
from service.models import Launch, ProbeStatus, Repeat
from service.probes import cancel_probe
from service.queue import ProbeQueue
from service.settings import Settings
from tests.workers.probing import (
    ask_for,
    count,
    ended,
    engine_processes,
    events_of,
    probe_of,
    repeats_of,
    running_arms,
    wait_until,
    worker,
)

TARGET = {"model": DEMO_MODEL, "dtype": "float32"}
PROMPTS = [{"prompt": f"def f{i}(x):\n    return"} for i in range(4)]
BATCH_SIZES, MAX_DRAFT_TOKENS, REPEATS, MOST_EXTRA_REPEATS = [1, 2], 2, 3, 2


@pytest.mark.engine
def test_after_a_kill_in_the_middle_of_an_arm_the_next_worker_measures_only_what_is_missing(
    settings: Settings, engine: Engine
) -> None:
    queue = ProbeQueue(engine)
    probe_id = ask_for(
        engine,
        queue,
        engine="vllm",
        target=TARGET,
        batch_sizes=BATCH_SIZES,
        max_draft_tokens=MAX_DRAFT_TOKENS,
        repeats=REPEATS,
        workload={"prompts": PROMPTS, "output_tokens": 24},
    )
    queue.close()
    with worker(settings) as process:
        wait_until(lambda: count(engine, Repeat, probe_id, Repeat.arm == "drafter:ngram") >= 4, seconds=200)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not engine_processes(), seconds=2)
    kept = repeats_of(engine, probe_id)
    assert probe_of(engine, probe_id).status == ProbeStatus.RUNNING
    with worker(settings):
        wait_until(ended(engine, probe_id), seconds=200)
    wait_until(lambda: not engine_processes(), seconds=2)

    probe = probe_of(engine, probe_id)
    assert (probe.status, probe.error) == (ProbeStatus.SUCCEEDED, None)
    rows = repeats_of(engine, probe_id)
    ks = {"baseline": [0], "drafter:ngram": range(MAX_DRAFT_TOKENS + 1), "control": [0]}
    planned = {(arm, b, k, r) for arm in ks for b in BATCH_SIZES for k in ks[arm] for r in range(REPEATS)}
    assert planned <= rows.keys()
    assert {place[3] for place in rows.keys() - planned} <= set(range(REPEATS, REPEATS + MOST_EXTRA_REPEATS))
    # As they were: measured once, by the load that was killed.
    assert {place: (rows[place].launch_id, rows[place].step_ms) for place in kept} == {
        place: (row.launch_id, row.step_ms) for place, row in kept.items()
    }
    told = [event.data for event in events_of(engine, probe_id, "repeat")]
    places = [(data["arm"], data["batch_size"], data["draft_tokens"], data["repeat"]) for data in told]
    assert sorted(places) == sorted(rows)
    with Session(engine) as session:
        loads = session.exec(select(Launch).where(Launch.probe_id == probe_id).order_by(col(Launch.id))).all()
    assert [load.arm for load in loads] == ["baseline", "drafter:ngram", "drafter:ngram", "control"]
    # The engine's code is imported once by each worker, not by each arm.
    assert [load.import_seconds > 1 for load in loads] == [True, False, True, False]


@pytest.mark.engine
@pytest.mark.sqlite_only
def test_a_cancelled_engine_is_gone_in_two_seconds_and_one_without_memory_leaves_its_worker_alive(
    settings: Settings, engine: Engine
) -> None:
    queue = ProbeQueue(engine)
    workload = {"prompts": PROMPTS, "output_tokens": 24}
    cancelled = ask_for(engine, queue, engine="vllm", target=TARGET, workload=workload)
    no_room = TARGET | {"engine_args": {"max_model_len": 1024, "kv_cache_memory_bytes": 400_000}}
    with worker(settings) as process:
        wait_until(lambda: count(engine, Repeat, cancelled), seconds=200)
        assert running_arms()
        started = time.monotonic()
        with transaction(engine) as session:
            cancel_probe(session, cancelled)
        queue.cancel(cancelled)
        wait_until(lambda: not running_arms(), seconds=5)
        assert time.monotonic() - started < 2

        refused = ask_for(engine, queue, engine="vllm", target=no_room, workload=workload)
        simulated = ask_for(engine, queue)
        wait_until(ended(engine, refused, simulated), seconds=200)
        assert process.poll() is None
    queue.close()
    assert probe_of(engine, cancelled).status == ProbeStatus.CANCELLED
    probe = probe_of(engine, refused)
    assert probe.status == ProbeStatus.FAILED
    assert probe.error is not None
    assert probe.error.startswith("the KV cache is too small for one request of max_model_len=1024 tokens")
    assert len(probe.error) < 400
    assert probe_of(engine, simulated).status == ProbeStatus.SUCCEEDED
