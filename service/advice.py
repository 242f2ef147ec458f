"""Advice, computed from a probe's rows whenever it is read: rows in, `service.science` in the middle, document out."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from sqlmodel import Session, col, func, select

from service.documents import (
    AdviceDocument,
    AdvisedWorkload,
    BatchSizeAdvice,
    DivergenceDocument,
    LaunchDocument,
    OutputsDocument,
    ScheduleDocument,
)
from service.measured import BASELINE, DRAFTER, measured
from service.models import Generation, Launch, Probe, ProbeStatus, Repeat
from service.schemas import ProbePlan
from service.science import (
    MachinePace,
    OutputComparison,
    compare_outputs,
    recommend,
)

BUSY_RATIO = 1.1
"""A machine that is slower than its best by more than this is worth a warning."""


def advise(session: Session, probe: Probe) -> AdviceDocument:
    """The advice that the rows written so far support; what they do not is null, and verdicts are inconclusive."""
    plan = ProbePlan.model_validate(probe.request)
    repeats = session.exec(select(Repeat).where(Repeat.probe_id == probe.id).order_by(col(Repeat.repeat))).all()
    generations = session.exec(
        select(Generation).where(Generation.probe_id == probe.id).order_by(col(Generation.prompt))
    ).all()
    seen = measured(
        repeats,
        generations,
        [drafter.name for drafter in plan.drafters],
        {length: shown_context_length(length, generations) for length in plan.workload.context_lengths or [0]},
    )
    advice = recommend(seen.contexts, plan.batch_sizes, prior_drift=seen.prior_drift)
    outputs = None if plan.workload.temperature else compare_generations(generations)
    resolved = probe.resolved or {}
    return AdviceDocument(
        probe_id=probe.id,
        complete=probe.status == ProbeStatus.SUCCEEDED,
        model=probe.model,
        revision=resolved.get("revision") or plan.target.revision,
        hardware=probe.hardware,
        evidence="simulated" if plan.engine == "simulated" else "measured",
        engine=resolved.get("engine"),
        created_at=probe.created_at,
        workload=AdvisedWorkload(**plan.workload.model_dump(include=set(AdvisedWorkload.model_fields))),
        engine_loads=session.exec(
            select(func.count()).select_from(Launch).where(col(Launch.probe_id) == probe.id)
        ).one(),
        measured_seconds=sum(repeat.seconds for repeat in repeats),
        noise_floor=advice.noise_floor,
        margin=advice.margin,
        outputs=_outputs_document(outputs),
        launch=LaunchDocument.model_validate(advice.launch),
        batch_sizes=[BatchSizeAdvice.model_validate(_unknown_as_none(row)) for row in advice.rows],
        schedule=[
            ScheduleDocument(context_length=length or None, ranges=list(schedule.ranges))
            for length, schedule in advice.schedules.items()
        ],
        warnings=[*_warnings_of(probe, plan, seen.pace), *advice.warnings, *(outputs.warnings if outputs else ())],
    )


def shown_context_length(context_length: int, generations: Iterable[Generation]) -> int:
    """The context length itself; of prompts as they came (0) the median of their tokens, 0 until it is known."""
    if context_length:
        return context_length
    tokens = {each.prompt: each.prompt_tokens for each in generations if each.context_length == 0}
    return round(median(tokens.values())) if tokens else 0


def compare_generations(generations: Sequence[Generation]) -> OutputComparison:
    """Drafters' outputs against the baseline's at their batch size, all context lengths together."""
    lengths = sorted({each.context_length for each in generations})
    each_length = [_compare([each for each in generations if each.context_length == length]) for length in lengths]
    own = [each.diverged_baseline for each in each_length if each.diverged_baseline is not None]
    return OutputComparison(
        compared=sum(each.compared for each in each_length),
        diverged=sum(each.diverged for each in each_length),
        diverged_baseline=sum(own) if own else None,
        divergences=tuple(divergence for each in each_length for divergence in each.divergences),
        failed=any(each.failed for each in each_length),
        warnings=tuple(warning for each in each_length for warning in each.warnings),
    )


def _compare(generations: Sequence[Generation]) -> OutputComparison:
    baseline: dict[int, dict[int, list[int]]] = defaultdict(dict)
    drafters: dict[str, dict[int, dict[int, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    batch_size = max((each.batch_size for each in generations), default=0)
    for each in generations:
        if each.arm == BASELINE:
            baseline[each.batch_size][each.prompt] = each.token_ids
        else:
            batch_size = each.batch_size
            drafters[each.arm.removeprefix(DRAFTER)][each.draft_tokens][each.prompt] = each.token_ids
    other = next((size for size in sorted(baseline) if size != batch_size), batch_size)
    return compare_outputs(baseline[batch_size], baseline[other] if other != batch_size else {}, drafters)


def _unknown_as_none(row: Any) -> Any:
    """The row, with a context length that is not known yet as None."""
    return row if row.context_length else replace(row, context_length=None)


def _outputs_document(outputs: OutputComparison | None) -> OutputsDocument | None:
    if outputs is None:
        return None
    return OutputsDocument(
        compared=outputs.compared,
        diverged=outputs.diverged,
        diverged_baseline=outputs.diverged_baseline,
        failed=outputs.failed,
        divergences=[DivergenceDocument.model_validate(each) for each in outputs.divergences],
    )


def _warnings_of(probe: Probe, plan: ProbePlan, pace: MachinePace | None) -> list[str]:
    warnings = []
    resolved = probe.resolved or {}
    if "experts" in resolved and resolved["experts"] is None:
        warnings.append("the target is dense (no experts): expert routing does not apply, every other figure does")
    if pace and pace.typical_ratio > BUSY_RATIO:
        warnings.append(
            f"the machine was busy with other things: half of the timed steps ran at {1 / pace.typical_ratio:.0%} of "
            "its best pace or below, and step times are scaled to the best"
        )
    if plan.engine == "simulated":
        warnings.append("every figure is simulated: nothing was measured, and nothing may be decided from this")
    if probe.status == ProbeStatus.FAILED:
        warnings.append(f"the probe failed, and this is from what it measured until then: {probe.error}")
    if probe.status == ProbeStatus.CANCELLED:
        warnings.append("the probe was cancelled, and this is from what it measured until then")
    return warnings
