"""The two measurements that a probe is made of, on any engine: how long a step takes, and what it emits.

`time_cell` keeps exactly B requests decoding and counts only clean steps, those in which B requests decode and none
prefills. `continue_prompts` lets every prompt run to its end of text and counts what each request-step emitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from workers.probe.engine import Engine, EngineError, Step
from workers.probe.pace import Pace

STEPS_PER_CLEAN_STEP = 20
"""A repeat that needs more engine steps than this for one clean step cannot be measured: its requests end too soon."""


@dataclass(frozen=True)
class Workload:
    """What the requests are. `prompts` are token ids, [prompt][token]."""

    prompts: Sequence[Sequence[int]]
    output_tokens: int
    temperature: float


@dataclass(frozen=True)
class Timing:
    """The clean steps of one repeat. `request_steps` = steps x batch size; `drafted_steps` of them carried a draft.

    `step_pace_ms` is the machine's pace beside each step, empty if it was not watched.
    """

    seconds: float
    steps: int
    emitted_tokens: int
    request_steps: int
    drafted_steps: int
    drafted_tokens: int
    accepted_per_position: list[int]
    step_ms: list[float]
    step_drafted_tokens: list[int]
    step_pace_ms: list[float]


@dataclass
class Continuation:
    """One prompt continued: its tokens, and the acceptance of its decode steps.

    The first token comes from the prefill and is no decode step's: `emitted_tokens` leaves it out.
    """

    prompt: int
    prompt_tokens: int
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    emitted_tokens: int = 0
    request_steps: int = 0
    drafted_steps: int = 0
    drafted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)


def time_cell(
    engine: Engine,
    workload: Workload,
    *,
    batch_size: int,
    draft_tokens: int,
    steps: int,
    first_prompt: int = 0,
    pace: Pace | None = None,
) -> Timing:
    """Time `steps` clean steps of one cell, watching the machine's pace if asked to.

    The requests take the prompts in turn from `first_prompt` on, run past their end of text, and are replaced as they
    finish, so that a repeat of another arm with the same `first_prompt` sees the same prompts.
    """
    prompts = workload.prompts
    engine.set_draft_tokens(draft_tokens)
    requests = count()
    clean: list[Step] = []
    paces_ms: list[float] = []

    def add() -> None:
        number = next(requests)
        engine.add_request(
            f"time-{number}",
            prompts[(first_prompt + number) % len(prompts)],
            max_tokens=workload.output_tokens,
            ignore_end=True,
            temperature=workload.temperature,
        )

    for _ in range(batch_size):
        add()
    try:
        for _ in range(steps * STEPS_PER_CLEAN_STEP):
            step = engine.step()
            pace_ms = pace.reading_ms() if pace else None
            if step.decoding == batch_size and step.prefilling == 0:
                clean.append(step)
                if pace_ms is not None:
                    paces_ms.append(round(pace_ms, 5))
                if len(clean) == steps:
                    break
            for _ in range(sum(output.finish_reason is not None for output in step.outputs)):
                add()
        else:
            raise EngineError(
                f"only {len(clean)} of {steps * STEPS_PER_CLEAN_STEP} steps had {batch_size} requests decoding and "
                f"none prefilling: raise output_tokens ({workload.output_tokens}), lower batch size {batch_size}, "
                "or raise kv_cache_memory_bytes in engine_args if the KV cache has no room for so many"
            )
    finally:
        engine.abort_all()
    return _timing(clean, batch_size, paces_ms)


def _timing(steps: Sequence[Step], batch_size: int, paces_ms: list[float]) -> Timing:
    return Timing(
        seconds=sum(step.seconds for step in steps),
        steps=len(steps),
        emitted_tokens=sum(len(output.token_ids) for step in steps for output in step.outputs),
        request_steps=len(steps) * batch_size,
        drafted_steps=sum(step.drafted_steps for step in steps),
        drafted_tokens=sum(step.drafted_tokens for step in steps),
        accepted_per_position=_add_up([step.accepted_per_position for step in steps]),
        step_ms=[round(step.seconds * 1e3, 4) for step in steps],
        step_drafted_tokens=[step.drafted_tokens for step in steps],
        step_pace_ms=paces_ms,
    )


def continue_prompts(
    engine: Engine, workload: Workload, *, batch_size: int, draft_tokens: int, prompts: Sequence[int]
) -> Iterator[Continuation]:
    """Continue these prompts (by index) to their end of text, at most `batch_size` at a time; each as it ends."""
    engine.set_draft_tokens(draft_tokens)
    waiting = list(reversed(prompts))
    running: dict[str, Continuation] = {}

    def add() -> None:
        index = waiting.pop()
        request_id = f"continue-{index}"
        running[request_id] = Continuation(index, len(workload.prompts[index]))
        engine.add_request(
            request_id,
            workload.prompts[index],
            max_tokens=workload.output_tokens,
            ignore_end=False,
            temperature=workload.temperature,
        )

    while waiting and len(running) < batch_size:
        add()
    while running:
        for output in engine.step().outputs:
            continuation = running[output.request_id]
            if continuation.token_ids:
                continuation.emitted_tokens += len(output.token_ids)
                continuation.request_steps += 1
            continuation.token_ids.extend(output.token_ids)
            if output.finish_reason is not None:
                continuation.finish_reason = output.finish_reason
                _count_acceptance(continuation, output.accepted_per_step, output.drafted_per_step)
                del running[output.request_id]
                if waiting:
                    add()
                yield continuation


def _count_acceptance(continuation: Continuation, accepted: Sequence[int], drafted: Sequence[int]) -> None:
    """Fill in the drafts of a finished request from its steps that carried one, in order."""
    carried = [(a, d) for a, d in zip(accepted, drafted, strict=True) if d]
    continuation.drafted_steps = len(carried)
    continuation.drafted_tokens = sum(d for _, d in carried)
    positions = max((d for _, d in carried), default=0)
    continuation.accepted_per_position = [sum(a > i for a, _ in carried) for i in range(positions)]


def _add_up(rows: Sequence[Sequence[int]]) -> list[int]:
    width = max((len(row) for row in rows), default=0)
    return [sum(row[i] for row in rows if i < len(row)) for i in range(width)]
