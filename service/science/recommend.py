"""From measurements to advice: a verdict per batch size, the launch that is worth most, and its schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.science import reasons
from service.science.candidates import DRAWS, Candidate, Estimates, estimate
from service.science.launches import Launch, choose_launch
from service.science.measurements import Measurements
from service.science.schedule import Schedule, covering_schedule
from service.science.statistics import PRIOR_DRIFT, SMALLEST_MARGIN, margin_of, noise_floor
from service.science.verdicts import Judgement, Verdict, judge, rank

NOISY_CELLS_NAMED = 3
"""In a warning: a machine that is busy makes most cells noisy, and the rows' own intervals say how much."""


@dataclass(frozen=True)
class Row:
    """The advice at one batch size and context length.

    Under `enable` the figures are those of the drafter named; under the other verdicts there is none to name, so they
    are None and `candidates`, best first, hold them. `decode_step_ms` needs no drafter: None only if not measured.
    """

    batch_size: int
    context_length: int
    verdict: Verdict
    drafter: str | None
    draft_tokens: int
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    acceptance_length: float | None
    acceptance_length_per_draft: float | None
    draft_coverage: float | None
    break_even_acceptance_length: float | None
    decode_step_ms: float | None
    step_ms: float | None
    reason: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Advice:
    """Rows ordered by context length and batch size, the launch advised, and its schedule by context length."""

    noise_floor: float | None
    margin: float
    launch: Launch
    rows: tuple[Row, ...]
    schedules: Mapping[int, Schedule]
    warnings: tuple[str, ...]


def recommend(
    contexts: Sequence[Measurements],
    batch_sizes: Sequence[int] = (),
    profile: Mapping[int, float] | None = None,
    smallest_margin: float = SMALLEST_MARGIN,
    seed: int = 0,
    draws: int = DRAWS,
    prior_drift: float = PRIOR_DRIFT,
) -> Advice:
    """Advise from what is measured so far; whatever is missing leads to `inconclusive` and None, never to a guess.

    `batch_sizes` are those asked for: each has a row at every context length, as has any other that was measured.
    `profile` weighs batch sizes for the choice of the launch (see `launches`). `smallest_margin` is the least gain,
    as a share, that the policy asks for; the noise floor raises it. `prior_drift` is how far launches are taken to
    drift before the control has said anything, as a share.

    Raises ValueError for a context length given twice, a negative margin, a bad profile, and fewer than 2,000 draws.
    """
    lengths = [context.context_length for context in contexts]
    if len(set(lengths)) < len(lengths):
        raise ValueError(f"context lengths must differ, got {lengths}")
    estimates = sorted(estimate(contexts, seed, draws, prior_drift), key=lambda each: each.context_length)
    ratios = [step.log_ratio for each in estimates for step in each.decode.values() if step.log_ratio is not None]
    floor = noise_floor(ratios)
    margin = margin_of(floor, smallest_margin)
    cells = [
        (each.context_length, size)
        for each in estimates
        for size in sorted({*batch_sizes, *each.decode, *each.candidates})
    ]
    by_length = {each.context_length: each for each in estimates}
    rows = tuple(_row(by_length[length], size, margin, floor is not None) for length, size in cells)
    launch = choose_launch(estimates, cells, 1 + margin, profile)
    schedules = {
        length: covering_schedule(
            {size: launch.draft_tokens.get((length, size), 0) for at, size in cells if at == length}
        )
        for length in by_length
    }
    warnings = [
        *_control_warning(estimates, floor),
        *(warning for each in estimates for warning in _cell_warnings(each)),
        *_launch_warnings(launch),
        *(warning for each in schedules.values() for warning in each.warnings),
    ]
    return Advice(floor, margin, launch, rows, schedules, tuple(dict.fromkeys(warnings)))


def _row(estimates: Estimates, batch_size: int, margin: float, has_control: bool) -> Row:
    candidates = rank(estimates.candidates.get(batch_size, ()))
    decode = estimates.decode.get(batch_size)
    judgement = judge(candidates, 1 + margin)
    chosen = judgement.candidate if judgement.verdict is Verdict.ENABLE else None
    return Row(
        batch_size=batch_size,
        context_length=estimates.context_length,
        verdict=judgement.verdict,
        drafter=chosen.drafter if chosen else None,
        draft_tokens=chosen.draft_tokens if chosen else 0,
        speedup=chosen.speedup if chosen else None,
        speedup_low=chosen.speedup_low if chosen else None,
        speedup_high=chosen.speedup_high if chosen else None,
        acceptance_length=chosen.acceptance_length if chosen else None,
        acceptance_length_per_draft=chosen.acceptance_length_per_draft if chosen else None,
        draft_coverage=chosen.draft_coverage if chosen else None,
        break_even_acceptance_length=chosen.break_even_acceptance_length if chosen else None,
        decode_step_ms=decode.step_ms if decode else None,
        step_ms=chosen.step_ms if chosen else None,
        reason=_reason(judgement, candidates, batch_size, margin, decode is not None, has_control),
        candidates=candidates,
    )


def _reason(
    judgement: Judgement,
    candidates: Sequence[Candidate],
    batch_size: int,
    margin: float,
    has_decode_step: bool,
    has_control: bool,
) -> str:
    if not has_decode_step:
        return reasons.without_decode_step(batch_size)
    if not candidates:
        return reasons.without_candidates(batch_size)
    if judgement.verdict is Verdict.DISABLE or judgement.candidate is None:
        return reasons.disabled(candidates[0], margin)
    if judgement.verdict is Verdict.ENABLE:
        return reasons.enabled(judgement.candidate, candidates[0])
    return reasons.undecided(judgement.candidate, margin, has_control)


def _control_warning(estimates: Sequence[Estimates], floor: float | None) -> list[str]:
    if floor is not None or not any(each.decode for each in estimates):
        return []
    return ["measured without control: the noise floor is unknown, and how far launches drift is assumed, not measured"]


def _cell_warnings(estimates: Estimates) -> list[str]:
    at = f"context length {estimates.context_length}"
    cells = {f"the decode step at batch size {size}": step.noisy for size, step in estimates.decode.items()}
    warnings = []
    for size, candidates in sorted(estimates.candidates.items()):
        for each in candidates:
            cell = f"{each.drafter} with K={each.draft_tokens} at batch size {size}"
            cells[cell] = each.noisy
            if abs(each.uncorrected_tokens) > 0.05 * each.draft_tokens:
                warnings.append(
                    f"the timed steps of {cell}, {at}, carried {-each.uncorrected_tokens:+.2f} draft tokens per "
                    "request-step compared with the workload, and did not vary enough to correct for it: time more "
                    "steps"
                )
    noisy = [cell for cell, is_noisy in cells.items() if is_noisy]
    if noisy:
        named = ", ".join(noisy[:NOISY_CELLS_NAMED]) + (" and others" if len(noisy) > NOISY_CELLS_NAMED else "")
        warnings.append(f"noisy: repeats scatter by more than 5 % in {len(noisy)} of {len(cells)} cells, {at}: {named}")
    return warnings


def _launch_warnings(launch: Launch) -> list[str]:
    return [
        f"a launch with {each.drafter} cannot be valued yet: its step time while off is not measured at "
        f"{', '.join(each.missing)}"
        for each in launch.considered
        if each.missing
    ]
