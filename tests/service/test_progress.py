import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from service.client import ProbeEvent
from service.progress import ProbeProgress, clock, showing


def event(kind: str, **data: Any) -> ProbeEvent:
    return ProbeEvent("1", kind, data)


def repeat(done: int, total: int = 100, **place: Any) -> ProbeEvent:
    cell = {"context_length": 0, "batch_size": 4, "draft_tokens": 3, "repeat": 0, "step_ms": 10.0, **place}
    return event("repeat", arm="drafter:ngram", done=done, total=total, **cell)


def test_time_left_follows_the_pace_of_what_was_watched() -> None:
    progress = ProbeProgress(started_at=0.0, done_before=20)
    progress.hear(event("status", status="running"), now=1000.0)
    progress.hear(repeat(29), now=1010.0)
    assert progress.seconds_left(1010.0) is None
    progress.hear(repeat(40), now=1030.0)
    assert progress.seconds_left(1030.0) == pytest.approx(90.0)
    progress.hear(repeat(100), now=1100.0)
    assert progress.seconds_left(1100.0) is None


def test_a_line_tells_arm_cell_repeats_and_both_times() -> None:
    progress = ProbeProgress(started_at=0.0)
    progress.hear(event("status", status="running"), now=1.0)
    progress.hear(repeat(25, context_length=1024, draft_tokens=1), now=61.0)
    assert progress.line(61.0) == (
        "1:01  drafter:ngram: timing context 1024, batch size 4, 1 draft token, 25 of 100 repeats done, about 3:00 left"
    )


def test_a_clock_has_hours_only_where_there_are_any() -> None:
    assert [clock(0.4), clock(59.6), clock(3600)] == ["0:00", "1:00", "1:00:00"]


def test_what_is_no_terminal_gets_a_line_per_change_and_one_every_few_seconds() -> None:
    console = Console(file=io.StringIO(), width=100)
    times: Iterator[float] = iter([0.0, 1.0, *(2.0 + 0.1 * step for step in range(100)), 13.0])
    with showing(ProbeProgress(started_at=0.0), console, now=lambda: next(times)) as tell:
        tell(event("status", status="running"))
        tell(event("arm", arm="drafter:ngram", state="loaded"))
        for done in range(100):
            tell(repeat(done + 1))
        tell(event("status", status="succeeded"))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0] == "0:00  running"
    assert "warming up" in lines[1]
    assert "41 of 100 repeats done, about 0:09 left" in lines[2]
    assert "91 of 100 repeats done, about 0:01 left" in lines[3]
    assert lines[4] == "0:13  succeeded, 100 of 100 repeats done"


def test_a_terminal_gets_one_live_line_that_fits() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with showing(ProbeProgress(started_at=0.0), console, now=lambda: 61.0) as tell:
        tell(event("status", status="running"))
        tell(event("arm", arm="drafter:" + "long" * 50, state="started"))
        tell(event("log", line="clocks are \x1b[2Jnot fixed"))
        tell(repeat(50))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "50/100 1:01 0:00 left" in shown
    assert "clocks are  [2Jnot fixed" in shown


def test_an_event_of_a_kind_that_is_new_is_passed_over() -> None:
    progress = ProbeProgress(started_at=0.0)
    assert progress.hear(event("novelty", anything=1), now=1.0) is None
    assert progress.line(1.0) == "0:01  waiting for a worker"
