"""One arm: everything that is measured in one engine load, in the order in which it is measured.

Nothing is kept here: each finished measurement is handed to `emit` at once, and what an earlier attempt already
measured is not measured again.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from service.science import TimedRepeat, cell_time, fit_pace
from workers.probe.engine import Engine
from workers.probe.measure import Timing, Workload, continue_prompts, time_cell
from workers.probe.pace import Pace
from workers.probe.prompts import at_context_length, check_room, encode_prompts
from workers.probe.spec import MINIMUM_REPEATS, ArmSpec, Cell

EXTRA_REPEATS = 2
"""A noisy cell is measured again, at most so often."""
WARM_UP_STEPS = 3

Emit = Callable[[str, Mapping[str, Any]], None]
"""Takes the kind of a message and its fields."""


def run_arm(spec: ArmSpec, engine: Engine, emit: Emit) -> None:
    """Measure what is missing of an arm on a loaded engine."""
    started = time.monotonic()
    deadline = started + spec.seconds - engine.description.import_seconds - engine.description.load_seconds
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
    emit("warmed_up", {"seconds": time.monotonic() - started})

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
