"""How long a step of one cell takes, from its timed repeats.

What is wanted is the expected time of a step, because wall time is the sum of the steps: a median over steps would
leave out the cost of the drafted ones wherever a drafter drafts in less than half of them. Two things disturb the
plain mean of a short repeat. A few steps are interrupted by the machine; and a drafter such as n-gram drafts in
some steps only, so that twenty steps on a few prompts carry another share of drafts than the whole workload does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.science.arrays import FloatArray
from service.science.measurements import TimedRepeat

NOISY_SHARE = 0.05
"""A cell is noisy if the MAD of its repeats exceeds this share of their median."""

FENCE = 5.0
"""Robust standard deviations above the median from which a step may count as interrupted."""

INTERRUPTED_SHARE = 0.05
"""At most this share of a cell's steps may count as interrupted; a slow mode that is more common than this is part
of what a step costs, and stays."""


@dataclass(frozen=True)
class CellTime:
    """The expected step time of a cell, moved to the workload's own share of drafts.

    `repeats_ms` has a value per repeat; `step_ms` is their median and `mad_ms` their median absolute deviation.
    `slope_ms` is the time of one more draft token per request (0 if the steps do not tell), `shift_error_ms` the
    standard error that moving along it adds to every repeat alike. `uncorrected_tokens` is the distance, in draft
    tokens per request-step, to the workload where the steps gave no slope to move along.
    """

    repeats_ms: tuple[float, ...]
    step_ms: float
    mad_ms: float
    slope_ms: float
    shift_error_ms: float
    uncorrected_tokens: float

    @property
    def noisy(self) -> bool:
        return self.mad_ms > NOISY_SHARE * self.step_ms


def cell_time(
    repeats: Sequence[TimedRepeat], batch_size: int, workload_drafted_tokens: float | None = None
) -> CellTime:
    """Estimate the expected milliseconds of a step from the repeats of one cell.

    `workload_drafted_tokens` is the draft tokens per request-step of the whole workload, from the acceptance
    measurement; None leaves the repeats where they are. Each repeat's mean m_r, at d_r draft tokens per request,
    becomes m_r + b (D - d_r): the regression estimator of survey sampling (Cochran, Sampling Techniques, 1977,
    chapter 7), with one slope b for the cell from deviations within repeats. Interrupted steps are winsorised in
    their residuals from that line (Huber, Robust Statistics, 1981, section 7.8), from above only since no
    interruption makes a step shorter; the rule is the same for every arm, so that ratios of arms stay fair.

    Raises ValueError for no repeats, a batch size below 1, and negative or non-finite draft tokens.
    """
    if not repeats:
        raise ValueError("repeats must not be empty: a cell without repeats has no time")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if workload_drafted_tokens is not None and not 0 <= workload_drafted_tokens < np.inf:
        raise ValueError(f"workload_drafted_tokens must be finite and not negative, got {workload_drafted_tokens}")
    owner = np.repeat(np.arange(len(repeats)), [repeat.step_ms.size for repeat in repeats])
    step_ms = np.concatenate([repeat.step_ms for repeat in repeats])
    drafted = np.concatenate([repeat.step_drafted_tokens for repeat in repeats]) / batch_size

    kept_ms, slope_ms, slope_error_ms = _fit(step_ms, drafted, owner)
    mean_ms, mean_drafted = _mean_by(owner, kept_ms), _mean_by(owner, drafted)
    shift = np.zeros(len(repeats))
    if workload_drafted_tokens is not None:
        shift = workload_drafted_tokens - mean_drafted
    values = mean_ms + slope_ms * shift
    corrected = slope_ms != 0.0 and bool(np.all(values > 0))
    if not corrected:
        values = mean_ms
    step = float(np.median(values))
    return CellTime(
        repeats_ms=tuple(values.tolist()),
        step_ms=step,
        mad_ms=float(np.median(np.abs(values - step))),
        slope_ms=slope_ms if corrected else 0.0,
        shift_error_ms=slope_error_ms * abs(float(shift.mean())) if corrected else 0.0,
        uncorrected_tokens=0.0 if corrected else float(shift.mean()),
    )


def _fit(step_ms: FloatArray, drafted: FloatArray, owner: np.ndarray) -> tuple[FloatArray, float, float]:
    """The winsorised steps, the slope over draft tokens per request, and the slope's standard error."""
    centred = drafted - _mean_by(owner, drafted)[owner]
    spread = float(centred @ centred)
    varies = spread > 1e-9
    kept, slope = step_ms, 0.0
    # Slope and winsorised steps depend on each other; a handful of rounds settles both.
    for _ in range(10):
        slope = float(centred @ kept) / spread if varies else 0.0
        level = step_ms - slope * drafted
        middle = np.array([np.median(level[owner == repeat]) for repeat in range(owner[-1] + 1)])[owner]
        before = kept
        kept = np.minimum(step_ms, step_ms - level + middle + _longest_uninterrupted(level - middle))
        if not varies or np.allclose(kept, before, rtol=1e-9, atol=0.0):
            break
    freedom = step_ms.size - (owner[-1] + 1) - 1
    if not varies or freedom < 1:
        return kept, 0.0, 0.0
    slope = float(centred @ kept) / spread
    residual = kept - slope * drafted
    residual = residual - _mean_by(owner, residual)[owner]
    return kept, slope, float(np.sqrt(residual @ residual / freedom / spread))


def _longest_uninterrupted(residual: FloatArray) -> float:
    """The residual, in ms, above which a step is an interrupted one."""
    # 1.4826 MAD is the standard deviation if the residuals are normal.
    fence = FENCE * 1.4826 * float(np.median(np.abs(residual)))
    few = int(INTERRUPTED_SHARE * residual.size)
    return max(fence, float(np.sort(residual)[residual.size - 1 - few]))


def _mean_by(owner: np.ndarray, values: FloatArray) -> FloatArray:
    means: FloatArray = np.bincount(owner, weights=values) / np.bincount(owner)
    return means
