"""Rows of a probe in the form that `service.science` takes them.

Rows are the tables' own, or a child's plain ones: only their attributes matter, and nothing here knows a database.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.science import (
    PRIOR_DRIFT,
    Acceptance,
    DrafterMeasurements,
    MachinePace,
    Measurements,
    TimedRepeat,
    fit_pace,
)

BASELINE, CONTROL, DRAFTER = "baseline", "control", "drafter:"
"""Arms by name; a drafter's is followed by the drafter's own."""


class RepeatRow(Protocol):
    """A timed repeat of a cell; see `service.models.Repeat`."""

    arm: str
    context_length: int
    batch_size: int
    draft_tokens: int
    repeat: int
    step_ms: list[float]
    step_drafted_tokens: list[int]
    step_pace_ms: list[float]


class GenerationRow(Protocol):
    """A continued prompt; see `service.models.Generation`."""

    arm: str
    context_length: int
    draft_tokens: int
    prompt: int
    emitted_tokens: int
    request_steps: int
    drafted_steps: int
    drafted_tokens: int
    accepted_per_position: list[int]


@dataclass(frozen=True)
class Measured:
    """What a probe has measured so far, by context length, and the pace of its machine if that was watched."""

    contexts: tuple[Measurements, ...]
    pace: MachinePace | None

    @property
    def prior_drift(self) -> float:
        """How far launches are taken to drift before a control has said anything, as a share."""
        return max(PRIOR_DRIFT, self.pace.drift if self.pace else 0.0)


def measured(
    repeats: Sequence[RepeatRow],
    generations: Sequence[GenerationRow],
    drafters: Sequence[str],
    context_lengths: Mapping[int, int],
) -> Measured:
    """All rows together, step times at the machine's best pace.

    `drafters` are the names of all that are to have measurements; `context_lengths` are those of the rows, with what
    each is to be called, as 0 stands for prompts as they came. Rows count in the order of their repeat or prompt.
    """
    repeats = sorted(repeats, key=lambda row: row.repeat)
    generations = sorted(generations, key=lambda row: row.prompt)
    pace = fit_pace(_by_cell(repeats))
    return Measured(
        tuple(
            _at_one_length(
                [row for row in repeats if row.context_length == length],
                [row for row in generations if row.context_length == length],
                drafters,
                shown,
                pace,
            )
            for length, shown in context_lengths.items()
        ),
        pace,
    )


def _at_one_length(
    repeats: Sequence[RepeatRow],
    generations: Sequence[GenerationRow],
    drafters: Sequence[str],
    context_length: int,
    pace: MachinePace | None,
) -> Measurements:
    timed: dict[str, dict[tuple[int, int], list[TimedRepeat]]] = defaultdict(lambda: defaultdict(list))
    for repeat in repeats:
        if repeat.step_ms:
            steps = TimedRepeat(
                step_ms=pace.at_best(repeat.step_ms, repeat.step_pace_ms) if pace else np.array(repeat.step_ms),
                step_drafted_tokens=np.array(repeat.step_drafted_tokens, dtype=np.float64),
            )
            timed[repeat.arm][repeat.batch_size, repeat.draft_tokens].append(steps)
    continued: dict[str, dict[int, list[GenerationRow]]] = defaultdict(lambda: defaultdict(list))
    for generation in generations:
        continued[generation.arm][generation.draft_tokens].append(generation)
    return Measurements(
        context_length=context_length,
        baseline={size: cell for (size, _), cell in timed[BASELINE].items()},
        control={size: cell for (size, _), cell in timed[CONTROL].items()},
        drafters={
            drafter: DrafterMeasurements(
                acceptance={
                    draft_tokens: _acceptance(rows, draft_tokens)
                    for draft_tokens, rows in continued[DRAFTER + drafter].items()
                    if sum(row.request_steps for row in rows) and sum(row.emitted_tokens for row in rows)
                },
                repeats=dict(timed[DRAFTER + drafter]),
            )
            for drafter in drafters
        },
    )


def _acceptance(rows: Sequence[GenerationRow], draft_tokens: int) -> Acceptance:
    """Counts by prompt, in the order of the rows; positions that were never reached count as not accepted.

    A prompt whose first token ended it has no decode step to tell of, and is left out.
    """
    rows = [row for row in rows if row.request_steps]
    accepted = [(row.accepted_per_position + [0] * draft_tokens)[:draft_tokens] for row in rows]
    return Acceptance(
        emitted_tokens=np.array([row.emitted_tokens for row in rows], dtype=np.float64),
        request_steps=np.array([row.request_steps for row in rows], dtype=np.float64),
        drafted_steps=np.array([row.drafted_steps for row in rows], dtype=np.float64),
        drafted_tokens=np.array([row.drafted_tokens for row in rows], dtype=np.float64),
        accepted_per_position=np.array(accepted, dtype=np.float64),
    )


def _by_cell(repeats: Sequence[RepeatRow]) -> list[list[tuple[list[float], list[float]]]]:
    """Step times and the pace beside them, [cell][repeat]."""
    cells = defaultdict(list)
    for repeat in repeats:
        place = (repeat.arm, repeat.context_length, repeat.batch_size, repeat.draft_tokens)
        cells[place].append((repeat.step_ms, repeat.step_pace_ms))
    return list(cells.values())
