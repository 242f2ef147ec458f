"""One arm: everything that is measured in one engine load, in the order in which it is measured.

Nothing is kept here: each finished measurement is handed to `emit` at once, and what an earlier attempt already
measured is not measured again.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from service.science import TimedRepeat, cell_time, fit_pace
from workers.probe.engine import Engine, LaunchSpec
from workers.probe.measure import Timing, Workload, continue_prompts, time_cell
from workers.probe.pace import Pace
from workers.probe.prompts import at_context_length, check_room, encode_prompts

MINIMUM_REPEATS = 3
EXTRA_REPEATS = 2
"""A noisy cell is measured again, at most so often."""
WARM_UP_STEPS = 3

Cell = tuple[int, int, int]
"""(context length, batch size, draft tokens); a context length of 0 stands for prompts as they came."""

Emit = Callable[[str, Mapping[str, Any]], None]
"""Takes the kind of a message and its fields."""


@dataclass(frozen=True)
class ArmSpec:
    """What to measure in one launch.

    Fields:
        cells: to be timed, `repeats` times each, `steps` clean steps a repeat.
        continuations: (context length, batch size, draft tokens) at which every prompt is continued to its end.
        watch_pace: whether the engine's cores are shared with other programs, so that their pace is part of a timing.
        done_repeats: cells with the repeat's number, done_prompts: continuations with the prompt's index: rows that
            an earlier attempt left.
        seconds: for the load and all that is measured; once they have passed no further round of repeats starts, if
            every cell has MINIMUM_REPEATS.
    """

    arm: str
    engine: str
    launch: LaunchSpec
    prompts: list[dict[str, Any]]
    output_tokens: int
    temperature: float
    cells: list[Cell]
    repeats: int
    steps: int
    seconds: float
    watch_pace: bool
    continuations: list[Cell] = field(default_factory=list)
    done_repeats: list[tuple[int, int, int, int]] = field(default_factory=list)
    done_prompts: list[tuple[int, int, int, int]] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ArmSpec":
        """Of `dataclasses.asdict` that went through JSON."""
        rows = ("cells", "continuations", "done_repeats", "done_prompts")
        launch = LaunchSpec(**{**data["launch"], "draft_tokens": tuple(data["launch"]["draft_tokens"])})
        return cls(**{**data, "launch": launch, **{k: [tuple(r) for r in data[k]] for k in rows}})


def run_arm(spec: ArmSpec, engine: Engine, emit: Emit) -> None:
    """Measure what is missing of an arm on a loaded engine."""
    load_seconds = engine.description.import_seconds + engine.description.load_seconds
    deadline = time.monotonic() + spec.seconds - load_seconds
    pace = Pace() if spec.watch_pace else None
    workloads = _workloads(spec, engine)
    done_repeats, done_prompts = set(spec.done_repeats), set(spec.done_prompts)
    rounds = [[cell for cell in spec.cells if (*cell, repeat) not in done_repeats] for repeat in range(spec.repeats)]
    for context_length, batch_size, draft_tokens in dict.fromkeys(cell for cells in rounds for cell in cells):
        time_cell(
            engine,
            workloads[context_length],
            batch_size=batch_size,
            draft_tokens=draft_tokens,
            steps=WARM_UP_STEPS,
        )

    for context_length, batch_size, draft_tokens in spec.continuations:
        workload = workloads[context_length]
        place = (context_length, batch_size, draft_tokens)
        missing = [i for i in range(len(workload.prompts)) if (*place, i) not in done_prompts]
        if missing:
            for continuation in continue_prompts(
                engine, workload, batch_size=batch_size, draft_tokens=draft_tokens, prompts=missing
            ):
                emit("generation", _place(*place) | asdict(continuation))

    timings: dict[Cell, list[Timing]] = {}

    def time_round(repeat: int, cells: list[Cell]) -> None:
        # Another order every round, so that no cell always follows the same one.
        random.Random(f"{spec.arm} {repeat}").shuffle(cells)
        for cell in cells:
            context_length, batch_size, draft_tokens = cell
            timing = time_cell(
                engine,
                workloads[context_length],
                batch_size=batch_size,
                draft_tokens=draft_tokens,
                steps=spec.steps,
                first_prompt=repeat * batch_size,
                pace=pace,
            )
            timings.setdefault(cell, []).append(timing)
            emit("repeat", _place(*cell) | {"repeat": repeat} | asdict(timing))

    for repeat, cells in enumerate(rounds):
        if repeat >= MINIMUM_REPEATS and time.monotonic() > deadline:
            emit("log", {"line": f"{spec.arm}: time is up after {repeat} of {spec.repeats} repeats of each cell"})
            return
        time_round(repeat, cells)
    for repeat in range(spec.repeats, spec.repeats + EXTRA_REPEATS):
        noisy = [
            cell for cell, seen in timings.items() if (*cell, repeat) not in done_repeats and _is_noisy(cell, seen)
        ]
        if noisy and time.monotonic() < deadline:
            time_round(repeat, noisy)


def _is_noisy(cell: Cell, timings: Sequence[Timing]) -> bool:
    """Whether a cell's repeats scatter more than they should, their shares of drafts and the pace set aside."""
    pace = fit_pace([[(t.step_ms, t.step_pace_ms) for t in timings]])
    repeats = [
        TimedRepeat(
            pace.at_best(t.step_ms, t.step_pace_ms) if pace else np.asarray(t.step_ms),
            np.asarray(t.step_drafted_tokens),
        )
        for t in timings
    ]
    drafted_tokens = sum(t.drafted_tokens for t in timings) / sum(t.request_steps for t in timings)
    return cell_time(repeats, cell[1], drafted_tokens).noisy


def _place(context_length: int, batch_size: int, draft_tokens: int) -> dict[str, int]:
    return {"context_length": context_length, "batch_size": batch_size, "draft_tokens": draft_tokens}


def _workloads(spec: ArmSpec, engine: Engine) -> dict[int, Workload]:
    encoded = encode_prompts(engine, spec.prompts)
    workloads = {}
    for context_length in dict.fromkeys(cell[0] for cell in [*spec.cells, *spec.continuations]):
        prompts = at_context_length(encoded, context_length)
        check_room(
            prompts,
            output_tokens=spec.output_tokens,
            draft_tokens=spec.launch.max_draft_tokens,
            max_context=engine.description.max_context_tokens,
        )
        workloads[context_length] = Workload(prompts, spec.output_tokens, spec.temperature)
    return workloads
