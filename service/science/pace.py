"""Step times of a machine whose pace changes, brought to one pace.

A core that is shared with others slows down for seconds at a time, by half and more, and no repeat inside one launch
shows what that does to a launch minutes later. A fixed piece of work timed beside every step tells the machine's pace
at that moment; how much of a change in pace a step feels is fitted, not assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from service.science.arrays import FloatArray

BEST_QUANTILE = 0.05
"""The best pace is not the very shortest reading, which may be a fluke."""

UNSEEN_SHARE = 0.2
LARGEST_EXPONENT = 1.25
SMALLEST_FREEDOM = 10
"""With fewer repeats to tell it, a step is taken to feel the pace in full."""


@dataclass(frozen=True)
class MachinePace:
    """The machine's best pace, in ms of the fixed piece of work, and how much of it a step feels.

    A step that takes t at pace p takes t (best_ms / p) ** exponent at the best. `typical_ratio` is the median of
    p / best_ms: 1 on a machine that nothing disturbs.
    """

    best_ms: float
    exponent: float
    typical_ratio: float

    @property
    def drift(self) -> float:
        """How far two launches may still differ after the correction, as a standard deviation of log time.

        The piece of work feels what slows a core down, and not all that slows memory down. `UNSEEN_SHARE` of the
        correction is an assumption, made on one busy machine after an interval without it had missed a wall time
        (docs/measuring.md), and not calibrated. A steady machine gives 0.
        """
        return UNSEEN_SHARE * float(np.log(max(1.0, self.typical_ratio)))

    def at_best(self, step_ms: ArrayLike, step_pace_ms: ArrayLike) -> FloatArray:
        """Step times [steps] as they would be at the best pace, from the pace beside each [steps].

        Steps without a pace stay as they are. Raises ValueError for lengths that differ.
        """
        times, paces = np.asarray(step_ms, dtype=np.float64), np.asarray(step_pace_ms, dtype=np.float64)
        if not paces.size:
            return times
        if times.shape != paces.shape:
            raise ValueError(f"step_ms {times.shape} and step_pace_ms {paces.shape} must have the same length")
        scaled: FloatArray = times * (self.best_ms / paces) ** self.exponent
        return scaled


def fit_pace(cells: Sequence[Sequence[tuple[ArrayLike, ArrayLike]]]) -> MachinePace | None:
    """The pace of a machine from all launches of a probe, [cell][repeat] of (step_ms, step_pace_ms), both [steps].

    The exponent is the slope of log time over log pace between repeats of the same cell, pooled over cells: analysis
    of covariance (Cochran, Biometrics 13, 1957). Differences between launches do not enter it. None without readings.

    Raises ValueError for a pace that is not positive.
    """
    paces = [np.asarray(pace, dtype=np.float64) for cell in cells for _, pace in cell]
    readings = np.concatenate(paces) if paces else np.empty(0)
    if not readings.size:
        return None
    if not np.all(readings > 0) or not np.all(np.isfinite(readings)):
        raise ValueError(f"step_pace_ms must be positive and finite, its least is {readings.min()}")
    log_times, log_paces, freedom = [], [], 0
    for cell in cells:
        read = [(_mean(times), _mean(pace)) for times, pace in cell if np.size(pace)]
        if len(read) > 1:
            time, pace = np.log(np.array(read)).T
            log_times.append(time - time.mean())
            log_paces.append(pace - pace.mean())
            freedom += len(read) - 1
    exponent = 1.0
    if freedom >= SMALLEST_FREEDOM:
        time, pace = np.concatenate(log_times), np.concatenate(log_paces)
        exponent = float(np.clip(time @ pace / (pace @ pace), 0.0, LARGEST_EXPONENT))
    best_ms = float(np.quantile(readings, BEST_QUANTILE))
    return MachinePace(best_ms, exponent, float(np.median(readings)) / best_ms)


def _mean(values: ArrayLike) -> float:
    return float(np.asarray(values, dtype=np.float64).mean())
