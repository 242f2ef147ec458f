"""How far a probe is, told while it runs: one live line on a terminal, a plain line now and then anywhere else."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from service.client import ProbeEvent
from service.terminal import printable

PLAIN_LINE_SECONDS = 5.0
PACE_FROM = 0.1
"""Share of the repeats that has to be done for a pace: the first ones carry a whole engine load each."""


@dataclass
class ProbeProgress:
    """What the events so far say. Times are of one monotonic clock, in seconds.

    `done_before` are the timed repeats that were done when the watching began at `started_at`: they took none of it.
    """

    started_at: float
    done_before: int = 0
    arm: str | None = None
    activity: str = "waiting for a worker"
    done: int = 0
    total: int | None = None
    running_since: float | None = None

    def hear(self, event: ProbeEvent, now: float) -> str | None:
        """Take in an event; a line if it says something that should not be lost."""
        data = event.data
        match event.kind:
            case "status":
                self.arm = None
                if data["status"] == "running":
                    self.running_since = now
                self.activity = "waiting for a worker" if data["status"] == "queued" else data["status"]
            case "arm":
                self.arm = data["arm"]
                self.activity = {"started": "loading the engine", "loaded": "warming up"}.get(
                    data["state"], data["state"]
                )
            case "repeat":
                self.arm, self.done, self.total = data["arm"], data["done"], data["total"]
                self.activity = f"timing {_cell(data)}"
            case "generation":
                self.arm = data["arm"]
                self.activity = f"continuing prompts, {_cell(data)}"
            case "log":
                return printable(str(data["line"]))
        return None

    def what(self) -> str:
        """What goes on at this moment."""
        return f"{printable(self.arm)}: {self.activity}" if self.arm else self.activity

    def seconds_left(self, now: float) -> float | None:
        """At the pace since it was seen to run, engine loads included; None until there is a pace.

        None too once every planned repeat is done: what noise adds to the plan is not known beforehand.
        """
        paced = self.done - self.done_before
        if self.running_since is None or not self.total or self.done >= self.total or paced < PACE_FROM * self.total:
            return None
        return (now - self.running_since) * (self.total - self.done) / paced

    def line(self, now: float) -> str:
        """All of it in words."""
        parts = [f"{clock(now - self.started_at)}  {self.what()}"]
        if self.total:
            parts.append(f"{self.done} of {self.total} repeats done")
        if (left := self.seconds_left(now)) is not None:
            parts.append(f"about {clock(left)} left")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


@contextmanager
def showing(
    progress: ProbeProgress, console: Console, now: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[ProbeEvent], None]]:
    """Show the progress on this console for the time of the block, which hands every event to what it is given."""
    if console.is_terminal:
        with Live(
            get_renderable=lambda: _live_line(progress, now()), console=console, refresh_per_second=4, transient=True
        ):
            yield lambda event: _log(console, progress.hear(event, now()))
    else:
        yield _PlainLines(progress, console, now).tell


class _PlainLines:
    """A line at every change of arm or status, else at most one in a few seconds."""

    def __init__(self, progress: ProbeProgress, console: Console, now: Callable[[], float]) -> None:
        self._progress, self._console, self._now = progress, console, now
        self._written_at = float("-inf")

    def tell(self, event: ProbeEvent) -> None:
        now = self._now()
        _log(self._console, self._progress.hear(event, now))
        if event.kind in ("status", "arm") or now - self._written_at >= PLAIN_LINE_SECONDS:
            self._written_at = now
            _log(self._console, self._progress.line(now))


def _log(console: Console, line: str | None) -> None:
    if line:
        console.print(Text(line), soft_wrap=True)


def _live_line(progress: ProbeProgress, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, 1, None, None):
        table.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    left = progress.seconds_left(now)
    told = [f"{progress.done}/{progress.total}"] if progress.total else []
    told += [clock(now - progress.started_at)]
    told += [f"{clock(left)} left"] if left is not None else []
    bar = ProgressBar(total=progress.total, completed=progress.done, width=20) if progress.total else ""
    spinner = Spinner("dots")
    spinner.start_time = progress.started_at
    table.add_row(spinner, Text(progress.what()), bar, Text(" ".join(told)))
    return table


def _cell(data: Mapping[str, Any]) -> str:
    context = f"context {data['context_length']}, " if data["context_length"] else ""
    plural = "" if data["draft_tokens"] == 1 else "s"
    return f"{context}batch size {data['batch_size']}, {data['draft_tokens']} draft token{plural}"
