"""Many probes, several workers, and a kill every two seconds: all succeed, and no repeat is measured twice."""

import random
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from service.queue import ProbeQueue
from service.settings import Settings
from tests.workers.probing import (
    ask_for,
    assert_measured_once,
    ended,
    engine_processes,
    events_of,
    start_worker,
    taking_time,
    wait_until,
)

WORKERS = ("one", "two", "three")
KILL_SECONDS = 2.0
LIMIT_SECONDS = 500.0
PATIENCE = {"beat_seconds": 0.5, "fence_seconds": 4.0, "dead_seconds": 6.0}
"""A busy machine may keep a worker from its beats for a while: that alone is no reason to end."""
REPEATS = 3 + 3 * 2 + 3


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("probes", [4, pytest.param(30, marks=pytest.mark.long)])
def test_probes_survive_a_kill_of_one_of_three_workers_every_two_seconds(
    settings: Settings, engine: Engine, probes: int, record_property: Callable[[str, object], None]
) -> None:
    settings = settings.model_copy(update=PATIENCE)
    queue = ProbeQueue(engine)
    probe_ids = [
        ask_for(engine, queue, batch_sizes=[1], max_draft_tokens=1, target=taking_time(2, seed=number))
        for number in range(probes)
    ]
    queue.close()
    everything_ended, chance, kills = ended(engine, *probe_ids), random.Random(0), 0
    workers = {name: start_worker(settings, name) for name in WORKERS}
    deadline, next_kill = time.monotonic() + LIMIT_SECONDS, time.monotonic() + KILL_SECONDS
    try:
        while not everything_ended():
            assert time.monotonic() < deadline, f"not all probes had ended after {kills} kills"
            time.sleep(max(0.0, next_kill - time.monotonic()))
            next_kill += KILL_SECONDS
            victim = chance.choice(WORKERS)
            workers[victim].kill()
            workers[victim].wait()
            kills += 1
            # Those that ended themselves, too: a loaded machine may have kept one from its beats for too long.
            for name, process in workers.items():
                if process.poll() is not None:
                    workers[name] = start_worker(settings, name)
    finally:
        for process in workers.values():
            process.kill()
            process.wait()
    wait_until(lambda: not engine_processes(), seconds=2)
    for probe_id in probe_ids:
        assert_measured_once(engine, probe_id, REPEATS)
    attempts = sum(
        event.data["state"] == "started" for probe_id in probe_ids for event in events_of(engine, probe_id, "arm")
    )
    record_property("kills", kills)
    record_property("attempts_at_arms", attempts)
    assert attempts > 3 * probes, f"{kills} kills never hit an arm"
