"""Pure functions: measurements in, answers out. No I/O, no clock, no framework."""

from service.science.candidates import Candidate, Estimates, Spread, estimate
from service.science.launches import Launch, LaunchValue, choose_launch
from service.science.measurements import Acceptance, DrafterMeasurements, Measurements, TimedRepeat
from service.science.outputs import Divergence, OutputComparison, compare_outputs, first_difference
from service.science.pace import MachinePace, fit_pace
from service.science.recommend import Advice, Row, recommend
from service.science.schedule import Schedule, covering_schedule
from service.science.speculation import (
    acceptance_length,
    acceptance_length_from_coverage,
    acceptance_length_from_rates,
    acceptance_length_per_draft,
    acceptance_rates,
    break_even_acceptance_length,
    chain_acceptance_length,
    draft_coverage,
    speedup,
    target_efficiency,
)
from service.science.statistics import (
    PRIOR_DRIFT,
    Interval,
    LaunchDrift,
    launch_drift,
    margin_of,
    moderated_variances,
    noise_floor,
)
from service.science.timing import CellTime, cell_time
from service.science.verdicts import Judgement, Verdict, judge, rank

__all__ = [
    "PRIOR_DRIFT",
    "Acceptance",
    "Advice",
    "Candidate",
    "CellTime",
    "Divergence",
    "DrafterMeasurements",
    "Estimates",
    "Interval",
    "Judgement",
    "Launch",
    "LaunchDrift",
    "LaunchValue",
    "MachinePace",
    "Measurements",
    "OutputComparison",
    "Row",
    "Schedule",
    "Spread",
    "TimedRepeat",
    "Verdict",
    "acceptance_length",
    "acceptance_length_from_coverage",
    "acceptance_length_from_rates",
    "acceptance_length_per_draft",
    "acceptance_rates",
    "break_even_acceptance_length",
    "cell_time",
    "chain_acceptance_length",
    "choose_launch",
    "compare_outputs",
    "covering_schedule",
    "draft_coverage",
    "estimate",
    "first_difference",
    "fit_pace",
    "judge",
    "launch_drift",
    "margin_of",
    "moderated_variances",
    "noise_floor",
    "rank",
    "recommend",
    "speedup",
    "target_efficiency",
]
