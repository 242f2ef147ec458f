"""The pace of this core, read while other programs really share it."""

import os
import statistics
import subprocess
import sys
import time

from workers.probe.pace import Pace


def mean_reading_ms(pace: Pace, seconds: float) -> float:
    readings = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        readings.append(pace.reading_ms())
    return statistics.mean(readings)


def test_programs_on_the_same_core_lengthen_the_reading() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    pace = Pace()
    try:
        alone_ms = mean_reading_ms(pace, 1.0)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
        try:
            time.sleep(0.3)
            shared_ms = mean_reading_ms(pace, 1.0)
        finally:
            for process in busy:
                process.kill()
                process.wait()
    finally:
        os.sched_setaffinity(0, allowed)
    assert shared_ms > 1.5 * alone_ms


def test_a_reading_covers_what_ran_between_two_calls() -> None:
    pace = Pace()
    pace.reading_ms()
    started = time.perf_counter()
    reading_ms = pace.reading_ms()
    assert 0 < reading_ms < (time.perf_counter() - started) * 1e3 * 3
