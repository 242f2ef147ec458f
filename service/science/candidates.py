"""Every drafter at every number of draft tokens, at one batch size: its figures and the interval of its speed-up.

Measurements in, estimates out; what they amount to is decided in `recommend`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.science.arrays import FloatArray
from service.science.measurements import Acceptance, Measurements
from service.science.resampling import acceptance_draws, resampled_counts
from service.science.speculation import break_even_acceptance_length, speedup
from service.science.statistics import (
    PRIOR_DRIFT,
    LaunchDrift,
    half_width,
    interval,
    launch_drift,
    random_stream,
    standard_deviation_draws,
)
from service.science.step_times import DecodeStep, StepTime, decode_steps, drafter_step_times

DRAWS = 4000


@dataclass(frozen=True)
class Spread:
    """Half the width of the 95 % interval of the log speed-up that each source of error alone would leave."""

    prompts: float
    repeats: float
    launches: float


@dataclass(frozen=True)
class Candidate:
    """One drafter with K draft tokens at one batch size. None stands for what is not measured.

    `uncorrected_tokens` is the draft tokens per request-step by which the timed steps miss the workload and could
    not be moved to it.
    """

    drafter: str
    draft_tokens: int
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    acceptance_length: float | None = None
    acceptance_length_per_draft: float | None = None
    draft_coverage: float | None = None
    break_even_acceptance_length: float | None = None
    step_ms: float | None = None
    noisy: bool = False
    uncorrected_tokens: float = 0.0
    spread: Spread | None = None


@dataclass(frozen=True)
class Estimates:
    """Everything estimated at one context length, by batch size.

    `off_speedups` by (drafter, batch size) is the speed-up of that drafter's launch while speculation is off in it:
    the decode step without the drafter over the decode step beside it, 1 if loading a drafter costs nothing.
    """

    context_length: int
    decode: Mapping[int, DecodeStep]
    candidates: Mapping[int, Sequence[Candidate]]
    off_speedups: Mapping[tuple[str, int], float]


def estimate(
    contexts: Sequence[Measurements], seed: int = 0, draws: int = DRAWS, prior_drift: float = PRIOR_DRIFT
) -> tuple[Estimates, ...]:
    """Estimate every candidate at each context length, in the order given.

    The drift between launches is that of all context lengths together, since one launch measures them all. The
    same seed gives the same answer, and one more arm leaves the intervals of the others as they were.

    Raises ValueError for fewer than 2,000 draws.
    """
    if draws < 2000:
        raise ValueError(f"draws must be at least 2000 for a steady interval, got {draws}")
    decode = [decode_steps(context) for context in contexts]
    pairs = [step for steps in decode for step in steps.values() if step.log_ratio is not None]
    drift = launch_drift(
        [step.log_ratio or 0.0 for step in pairs], [step.repeat_variance for step in pairs], prior_drift
    )
    return tuple(
        _estimate_context(context, steps, ErrorDraws(drift, context.context_length, seed, draws))
        for context, steps in zip(contexts, decode, strict=True)
    )


class ErrorDraws:
    """The errors of one context length on the logarithmic scale, each drawn under the name of what it belongs to.

    Whatever two candidates share, they share here: the decode step's errors, a launch's level, the prompts.
    """

    def __init__(self, drift: LaunchDrift, context_length: int, seed: int, draws: int) -> None:
        self._draws, self._seed, self._context_length = draws, seed, context_length
        self._counts: dict[int, FloatArray] = {}
        self._level = standard_deviation_draws(
            drift.common_variance, drift.common_freedom, draws, random_stream(seed, "drift of launches")
        )
        self._cell = standard_deviation_draws(
            drift.cell_variance, drift.cell_freedom, draws, random_stream(seed, "drift of cells")
        )

    def of_launch(self, arm: str, batch_size: int, draft_tokens: int) -> FloatArray:
        level = random_stream(self._seed, "launch", arm).standard_normal(self._draws)
        cell = self._stream("cell", arm, batch_size, draft_tokens).standard_normal(self._draws)
        return self._level * level + self._cell * cell

    def of_repeats(self, time: StepTime, arm: str, batch_size: int, draft_tokens: int) -> FloatArray | None:
        return time.errors(self._draws, self._stream("repeats", arm, batch_size, draft_tokens))

    def of_prompts(self, acceptance: Acceptance, slope_share: float) -> FloatArray | None:
        if acceptance.prompts not in self._counts:
            self._counts[acceptance.prompts] = resampled_counts(acceptance.prompts, self._draws, self._seed)
        return acceptance_draws(acceptance, self._counts[acceptance.prompts], slope_share)

    def of_decode(self, step: DecodeStep, batch_size: int) -> tuple[FloatArray | None, FloatArray]:
        """What repeats (None if they do not tell) and launches leave of the decode step's time."""
        repeats = [self.of_repeats(time, arm, batch_size, 0) for arm, time in step.launches.items()]
        known = [errors for errors in repeats if errors is not None]
        launches = np.mean([self.of_launch(arm, batch_size, 0) for arm in step.launches], axis=0)
        return np.mean(known, axis=0) if len(known) == len(repeats) else None, launches

    def _stream(self, *name: str | int) -> np.random.Generator:
        return random_stream(self._seed, self._context_length, *name)


def _estimate_context(context: Measurements, decode: Mapping[int, DecodeStep], errors: ErrorDraws) -> Estimates:
    candidates: dict[int, list[Candidate]] = {}
    off_speedups: dict[tuple[str, int], float] = {}
    decode_errors = {size: errors.of_decode(step, size) for size, step in decode.items()}
    for drafter, measured in sorted(context.drafters.items()):
        times = drafter_step_times(measured)
        for (size, draft_tokens), repeats in sorted(measured.repeats.items()):
            acceptance = measured.acceptance.get(draft_tokens)
            time, step = times.get((size, draft_tokens)), decode.get(size)
            if draft_tokens == 0 and time and step:
                off_speedups[drafter, size] = speedup(1.0, step.step_ms, time.cell.step_ms)
            if draft_tokens == 0 or not repeats:
                continue
            candidate = _figures(drafter, draft_tokens, acceptance, time, step)
            if acceptance and time and step:
                of_decode_repeats, of_decode_launches = decode_errors[size]
                candidate = _with_interval(
                    candidate,
                    of_prompts=errors.of_prompts(acceptance, time.cell.slope_ms / time.cell.step_ms),
                    of_decode=of_decode_repeats,
                    of_step=errors.of_repeats(time, drafter, size, draft_tokens),
                    of_launches=of_decode_launches - errors.of_launch(drafter, size, draft_tokens),
                )
            candidates.setdefault(size, []).append(candidate)
    return Estimates(context.context_length, decode, candidates, off_speedups)


def _figures(
    drafter: str, draft_tokens: int, acceptance: Acceptance | None, time: StepTime | None, step: DecodeStep | None
) -> Candidate:
    step_ms = time.cell.step_ms if time else None
    length = acceptance.acceptance_length if acceptance else None
    return Candidate(
        drafter=drafter,
        draft_tokens=draft_tokens,
        speedup=speedup(length, step.step_ms, step_ms) if length and step and step_ms else None,
        acceptance_length=length,
        acceptance_length_per_draft=acceptance.acceptance_length_per_draft if acceptance else None,
        draft_coverage=acceptance.draft_coverage if acceptance else None,
        break_even_acceptance_length=break_even_acceptance_length(step.step_ms, step_ms) if step and step_ms else None,
        step_ms=step_ms,
        noisy=time.cell.noisy if time else False,
        uncorrected_tokens=time.cell.uncorrected_tokens if time else 0.0,
    )


def _with_interval(
    candidate: Candidate,
    of_prompts: FloatArray | None,
    of_decode: FloatArray | None,
    of_step: FloatArray | None,
    of_launches: FloatArray,
) -> Candidate:
    """The candidate with its interval, or as it was if one prompt or one repeat leaves its scatter unknown."""
    if candidate.speedup is None or of_prompts is None or of_decode is None or of_step is None:
        return candidate
    of_repeats = of_decode - of_step
    whole = interval(np.log(candidate.speedup) + of_prompts + of_repeats + of_launches)
    spread = Spread(prompts=half_width(of_prompts), repeats=half_width(of_repeats), launches=half_width(of_launches))
    return replace(candidate, speedup_low=whole.low, speedup_high=whole.high, spread=spread)
