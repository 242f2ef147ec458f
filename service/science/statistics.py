"""How far the repeats and the launches of a probe scatter, and what interval follows.

Every source of error becomes draws from its own confidence distribution on the logarithmic scale; the errors of a
speed-up are their sum. Knows nothing of prompts (see `resampling`) and nothing of verdicts.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from service.science.arrays import FloatArray

SMALLEST_MARGIN = 0.02
"""A gain below this is not worth a switch, however sure."""

PRIOR_DRIFT = 0.01
"""Standard deviation, as a share, that a launch's level is taken to have before a control has said anything: half
the smallest margin, which is there for the drift that no one has seen."""

PRIOR_FREEDOM = 2.0
"""Degrees of freedom that `PRIOR_DRIFT` is worth: as much as two launches of evidence."""

SMALLEST_VARIANCE = 1e-10
"""Of log time. Repeats that agree to one part in 100,000 agree by the clock's resolution."""


@dataclass(frozen=True)
class Interval:
    """A two-sided 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class LaunchDrift:
    """Variances of log step time between launches of the same thing, with their degrees of freedom.

    `common` moves every cell of a launch alike (clocks, memory layout); `cell` moves each cell on its own (a kernel
    or graph chosen otherwise). Repeats inside one launch show neither.
    """

    common_variance: float
    common_freedom: float
    cell_variance: float
    cell_freedom: float


def random_stream(seed: int, *name: object) -> np.random.Generator:
    """Random numbers that depend on the seed and the name alone, so that one more arm changes no other's."""
    return np.random.default_rng([seed, zlib.crc32(repr(name).encode())])


def noise_floor(log_ratios: ArrayLike) -> float | None:
    """The 95th percentile over cells [cells] of |log(control / baseline)|; None without a control.

    Raises ValueError for values that are not finite.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"log_ratios must be finite, got {log_ratios!r}")
    return float(np.quantile(np.abs(values), 0.95)) if values.size else None


def margin_of(floor: float | None, at_least: float = SMALLEST_MARGIN) -> float:
    """What a speed-up must exceed 1 by: the larger of `at_least` and the noise floor, if one was measured.

    Raises ValueError for a negative margin.
    """
    if not at_least >= 0:
        raise ValueError(f"at_least must not be negative, got {at_least}")
    return max(at_least, floor or 0.0)


def median_variance_share(repeats: int) -> float:
    """Variance of the median of n normal values over the variance of one, to within 2 % (an upper bound for even n).

    pi / (2 n + pi - 2), the large-sample value pi / 2 n with the term that makes n = 1 exact.
    Raises ValueError below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    return 1.0 / repeats if repeats <= 2 else float(np.pi / (2 * repeats + np.pi - 2))


def moderated_variances(variances: ArrayLike, freedom: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Shrink the variances of an arm's cells towards their common one, and return them with their degrees of freedom.

    Both [cells]. With three to five repeats a variance has two to four degrees of freedom, and an interval of its own
    would be several times too wide or too narrow. The empirical Bayes of limma (Smyth, Stat. Appl. Genet. Mol. Biol.
    3, 2004): variances are scaled chi-square about a prior s0 with d0 degrees of freedom, both from the mean and the
    variance of the log variances. A cell with no degree of freedom takes the prior; without any, it is NaN, 0.

    Raises ValueError for shapes that differ and for negative values.
    """
    observed = np.asarray(variances, dtype=np.float64)
    degrees = np.asarray(freedom, dtype=np.float64)
    if observed.shape != degrees.shape or observed.ndim != 1:
        raise ValueError(f"variances {observed.shape} and freedom {degrees.shape} must be one axis of the same length")
    known = degrees > 0
    if np.any(degrees < 0) or not np.all(observed[known] >= 0):
        raise ValueError(f"variances and freedom must not be negative, got {variances!r}, {freedom!r}")
    if not known.any():
        return np.full(observed.shape, np.nan), np.zeros(observed.shape)
    half = degrees[known] / 2
    own = np.maximum(observed, SMALLEST_VARIANCE, where=known, out=np.zeros(observed.shape))
    logs = np.log(own[known]) - special.digamma(half) + np.log(half)
    # How much the log variances differ beyond what chance alone makes of equal ones.
    excess = float(np.var(logs, ddof=1) - np.mean(special.polygamma(1, half))) if logs.size > 1 else 0.0
    pooled_freedom = float(degrees.sum())
    if excess > 1e-6:
        prior_freedom = 2 * _inverse_trigamma(excess)
        prior = float(np.exp(logs.mean() + special.digamma(prior_freedom / 2) - np.log(prior_freedom / 2)))
        weight = prior_freedom / (prior_freedom + degrees)
    else:
        prior_freedom, weight = np.inf, np.ones(observed.shape)
        prior = float(np.average(own[known], weights=degrees[known]))
    return weight * prior + (1 - weight) * own, np.minimum(prior_freedom + degrees, pooled_freedom)


def launch_drift(
    log_ratios: ArrayLike, repeat_variances: ArrayLike = (), prior_drift: float = PRIOR_DRIFT
) -> LaunchDrift:
    """How far the level of a launch strays, from the cells [cells] that two launches of the same thing both measured.

    `log_ratios` are log(control / baseline) per cell and `repeat_variances` the share of their variance that repeats
    explain, likewise per cell. One-way random effects: the mean of the ratios tells of the launch (one degree of
    freedom), their scatter of the cell (cells - 1); a ratio has twice the variance of one launch. Both are joined to
    a weak prior as in `moderated_variances`, since one pair of launches is one draw. Empty input returns the prior,
    whose standard deviation is `prior_drift`.

    Raises ValueError for values that are not finite or lengths that differ.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    explained = np.asarray(repeat_variances, dtype=np.float64)
    if not np.all(np.isfinite(ratios)) or not np.all(np.isfinite(explained)):
        raise ValueError(f"log_ratios and repeat_variances must be finite, got {log_ratios!r}, {repeat_variances!r}")
    if explained.size not in (0, ratios.size):
        raise ValueError(f"{ratios.size} log_ratios but {explained.size} repeat_variances")
    seen_common, seen_cell, cell_freedom = 0.0, 0.0, max(0, ratios.size - 1)
    if ratios.size:
        seen_common = float(ratios.mean() ** 2) / 2
    if cell_freedom:
        by_repeats = float(explained.mean()) if explained.size else 0.0
        seen_cell = max(0.0, float(np.var(ratios, ddof=1)) - by_repeats) / 2
    prior = PRIOR_FREEDOM * prior_drift**2
    common_freedom = PRIOR_FREEDOM + (1 if ratios.size else 0)
    return LaunchDrift(
        common_variance=(prior + seen_common * (common_freedom - PRIOR_FREEDOM)) / common_freedom,
        common_freedom=common_freedom,
        cell_variance=(seen_cell * cell_freedom + (prior / 2)) / (cell_freedom + PRIOR_FREEDOM),
        cell_freedom=cell_freedom + PRIOR_FREEDOM,
    )


def standard_deviation_draws(variance: float, freedom: float, draws: int, stream: np.random.Generator) -> FloatArray:
    """What the standard deviation may really be [draws], given its estimate: sqrt(freedom variance / chi-square)."""
    scaled: FloatArray = np.sqrt(freedom * variance / stream.chisquare(freedom, draws))
    return scaled


def repeat_draws(variance: float, freedom: float, draws: int, stream: np.random.Generator) -> FloatArray:
    """Errors [draws] of a log time whose estimate has this variance: Student's t with that freedom, scaled."""
    return float(np.sqrt(variance)) * stream.standard_t(freedom, draws)


def interval(log_draws: FloatArray) -> Interval:
    """The 95 % interval of a ratio from draws of its logarithm. Raises ValueError for draws that are not finite."""
    if not np.all(np.isfinite(log_draws)):
        raise ValueError("log_draws must be finite: a resample without a single request-step has no acceptance length")
    low, high = np.exp(np.quantile(log_draws, [0.025, 0.975]))
    return Interval(float(low), float(high))


def half_width(errors: FloatArray) -> float:
    """Half the width of the 95 % interval of errors on the logarithmic scale."""
    low, high = np.quantile(errors, [0.025, 0.975])
    return float(high - low) / 2


def log_variances(repeats_ms: Sequence[Sequence[float]]) -> tuple[FloatArray, FloatArray]:
    """Variance of the log times within each cell, and its degrees of freedom, [cells]; NaN and 0 for one repeat."""
    variances = [float(np.var(np.log(cell), ddof=1)) if len(cell) > 1 else np.nan for cell in repeats_ms]
    return np.array(variances), np.array([len(cell) - 1.0 for cell in repeats_ms])


def _inverse_trigamma(value: float) -> float:
    """The x > 0 at which trigamma(x) is `value` > 0."""
    return float(optimize.brentq(lambda x: special.polygamma(1, x) - value, 1e-8, 1e12))
