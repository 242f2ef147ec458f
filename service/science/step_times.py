"""Step times of an arm's cells with the scatter of their repeats, and the decode step that two launches measure."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from service.science.arrays import FloatArray
from service.science.measurements import DrafterMeasurements, Measurements
from service.science.statistics import log_variances, median_variance_share, moderated_variances, repeat_draws
from service.science.timing import CellTime, cell_time

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class StepTime:
    """A cell's time with the variance of its logarithm, None where a single repeat tells no scatter."""

    cell: CellTime
    variance: float | None
    freedom: float

    def errors(self, draws: int, stream: np.random.Generator) -> FloatArray | None:
        """Errors [draws] of the log time that the repeats leave, those of the shift to the workload included."""
        if self.variance is None:
            return None
        of_shift = self.cell.shift_error_ms / self.cell.step_ms * stream.standard_normal(draws)
        return repeat_draws(self.variance, self.freedom, draws, stream) + of_shift


@dataclass(frozen=True)
class DecodeStep:
    """The step without a drafter at one batch size, from the launches that measured it: baseline, control or both."""

    launches: Mapping[str, StepTime]

    @property
    def step_ms(self) -> float:
        """The geometric mean of the launches, which stand before and after the others."""
        return float(np.exp(np.mean([np.log(time.cell.step_ms) for time in self.launches.values()])))

    @property
    def log_ratio(self) -> float | None:
        """log(control / baseline), None unless both measured."""
        if len(self.launches) < 2:
            return None
        return float(np.log(self.launches["control"].cell.step_ms / self.launches["baseline"].cell.step_ms))

    @property
    def repeat_variance(self) -> float:
        """The variance of `log_ratio` that repeats explain, as far as they tell."""
        return sum(time.variance or 0.0 for time in self.launches.values())

    @property
    def noisy(self) -> bool:
        return any(time.cell.noisy for time in self.launches.values())


def decode_steps(context: Measurements) -> dict[int, DecodeStep]:
    """The decode step by batch size. Baseline and control, one configuration launched twice, share one scatter."""
    arms = {"baseline": context.baseline, "control": context.control}
    times = step_times(
        {
            (size, arm): cell_time(repeats, size)
            for arm, cells in arms.items()
            for size, repeats in cells.items()
            if repeats
        }
    )
    sizes = sorted({size for size, _ in times})
    return {size: DecodeStep({arm: times[size, arm] for arm in arms if (size, arm) in times}) for size in sizes}


def drafter_step_times(measured: DrafterMeasurements) -> dict[tuple[int, int], StepTime]:
    """Step times by (batch size, K), of the cells whose workload's share of drafts is known, and of K = 0."""
    cells = {}
    for (size, draft_tokens), repeats in measured.repeats.items():
        acceptance = measured.acceptance.get(draft_tokens)
        if repeats and acceptance:
            cells[size, draft_tokens] = cell_time(repeats, size, acceptance.drafted_tokens_per_request_step)
        elif repeats and draft_tokens == 0:
            cells[size, draft_tokens] = cell_time(repeats, size)
    return step_times(cells)


def step_times(cells: Mapping[Key, CellTime]) -> dict[Key, StepTime]:
    """Join the cells of one arm with the variance of their log times, shrunk towards the arm's own."""
    variances, freedom = moderated_variances(*log_variances([cell.repeats_ms for cell in cells.values()]))
    return {
        key: StepTime(
            cell=cell,
            variance=float(variance * median_variance_share(len(cell.repeats_ms))) if degrees > 0 else None,
            freedom=float(degrees),
        )
        for (key, cell), variance, degrees in zip(cells.items(), variances, freedom, strict=True)
    }
