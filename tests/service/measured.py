"""Rows of probes as a worker leaves them, with figures chosen by hand instead of measured."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine
from sqlmodel import Session

from service.database import transaction
from service.events import add_event
from service.models import Generation, Launch, Probe, ProbeStatus, Repeat, now
from service.probes import create_probe
from service.queue import ProbeQueue
from service.schemas import ProbeRequest

DECODE_MS = 10.0
STEPS = 20
PROMPTS = 8
ENGINE = {"name": "vllm", "version": "0.32.0"}


def request(**changes: Any) -> dict[str, Any]:
    """A small valid probe request, which needs no worker."""
    return {
        "target": {"model": "tiny-moe"},
        "hardware": "cpu",
        "drafters": [{"method": "ngram"}],
        "batch_sizes": [1, 4],
        "max_draft_tokens": 2,
        "workload": {"prompts": [{"prompt": f"prompt {number}"} for number in range(PROMPTS)]},
        "wait_for_worker": True,
        **changes,
    }


def insert_probe(engine: Engine, /, *, status: ProbeStatus, days_old: float = 0, **changes: Any) -> str:
    """A probe of this status, without a job; its id."""
    queue = ProbeQueue(engine)
    resolved = changes.pop("resolved", {"engine": ENGINE, "revision": "abc123", "dtype": "bfloat16"})
    with transaction(engine) as session:
        probe, created = create_probe(session, queue, ProbeRequest.model_validate(request(fresh=True, **changes)))
        assert created
        probe.status, probe.resolved = status, resolved
        probe.created_at = now() - timedelta(days=days_old)
        if status != ProbeStatus.QUEUED:
            probe.started_at = probe.created_at
        if status.final:
            probe.finished_at = probe.created_at
            add_event(session, probe.id, "status", status=status)
    queue.close()
    return probe.id


def insert_measurements(engine: Engine, probe_id: str, *, step_ms: float, tokens_per_step: int) -> None:
    """All rows of a finished probe with one drafter: its steps take `step_ms` and emit `tokens_per_step` at any K.

    A step without draft tokens takes 10 ms in every arm.
    """
    with transaction(engine) as session:
        probe = session.get_one(Probe, probe_id)
        for arm in ("baseline", "drafter:ngram", "control"):
            session.add(Launch(probe_id=probe_id, arm=arm, import_seconds=1, load_seconds=2, engine=ENGINE))
            drafts = probe.request["max_draft_tokens"] if arm.startswith("drafter") else 0
            for context_length in probe.request["workload"]["context_lengths"] or [0]:
                cells = [(size, k) for size in probe.request["batch_sizes"] for k in range(drafts + 1)]
                session.add_all(_repeats(probe_id, arm, context_length, cells, step_ms, tokens_per_step))
                _add_generations(session, probe_id, arm, context_length, drafts, tokens_per_step)


def _repeats(
    probe_id: str, arm: str, context_length: int, cells: list[tuple[int, int]], drafted_ms: float, tokens: int
) -> Iterable[Repeat]:
    for batch_size, draft_tokens in cells:
        for repeat in range(5):
            # A little scatter, the same in every run of the tests.
            factor = 1 + 0.002 * ((repeat * 7 + batch_size + draft_tokens) % 5 - 2)
            step_ms = (drafted_ms if draft_tokens else DECODE_MS) * factor
            yield Repeat(
                probe_id=probe_id,
                arm=arm,
                context_length=context_length,
                batch_size=batch_size,
                draft_tokens=draft_tokens,
                repeat=repeat,
                seconds=STEPS * step_ms / 1000,
                steps=STEPS,
                emitted_tokens=STEPS * batch_size * (tokens if draft_tokens else 1),
                request_steps=STEPS * batch_size,
                drafted_steps=STEPS * batch_size if draft_tokens else 0,
                drafted_tokens=STEPS * batch_size * draft_tokens,
                step_ms=[step_ms] * STEPS,
                step_drafted_tokens=[batch_size * draft_tokens] * STEPS,
                step_pace_ms=[],
                accepted_per_position=[STEPS] * draft_tokens,
            )


def _add_generations(session: Session, probe_id: str, arm: str, context_length: int, drafts: int, tokens: int) -> None:
    if arm == "control":
        return
    cells = [(8, k) for k in range(1, drafts + 1)] if drafts else [(1, 0), (8, 0)]
    for batch_size, draft_tokens in cells:
        for prompt in range(PROMPTS):
            steps = 20 + prompt
            session.add(
                Generation(
                    probe_id=probe_id,
                    arm=arm,
                    context_length=context_length,
                    batch_size=batch_size,
                    draft_tokens=draft_tokens,
                    prompt=prompt,
                    prompt_tokens=context_length or 30 + prompt,
                    token_ids=[prompt, 1, 2],
                    finish_reason="stop",
                    emitted_tokens=steps * (tokens if draft_tokens else 1),
                    request_steps=steps,
                    drafted_steps=steps if draft_tokens else 0,
                    drafted_tokens=steps * draft_tokens,
                    accepted_per_position=[steps * (tokens > position + 1) for position in range(draft_tokens)],
                )
            )
