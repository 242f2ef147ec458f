"""Which one launch serves a whole range of concurrency best: none, or one drafter with its largest K.

A drafter that is loaded costs something even where its schedule keeps it off, so every launch is valued at all batch
sizes: where it is on at its own best K, where it is off at its own K = 0 cells. The weights of a profile are shares of
the time that a server without speculation spends at each batch size. Speculation shortens the share w at batch size B
to w / speed-up(B), so the launch is worth 1 / sum(w / speed-up): a weighted harmonic mean, in which a batch size made
slower counts for what it costs. The launch without a drafter is worth 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.science.candidates import Estimates
from service.science.verdicts import TIE, Verdict, judge

Cell = tuple[int, int]
"""(context length, batch size)."""


@dataclass(frozen=True)
class LaunchValue:
    """One drafter's launch: its draft tokens per (context length, batch size), and what that is worth.

    `value` is None where a cell that it needs is not measured; `missing` names those.
    """

    drafter: str
    draft_tokens: Mapping[Cell, int]
    value: float | None
    missing: tuple[str, ...] = ()

    @property
    def max_draft_tokens(self) -> int:
        return max(self.draft_tokens.values(), default=0)


@dataclass(frozen=True)
class Launch:
    """The launch advised. Without speculation: drafter None, 0 draft tokens, a value of 1 and everything off.

    `considered` holds every drafter's launch, best first.
    """

    speculation: bool = False
    drafter: str | None = None
    max_draft_tokens: int = 0
    value: float = 1.0
    draft_tokens: Mapping[Cell, int] = field(default_factory=dict)
    considered: tuple[LaunchValue, ...] = ()


def choose_launch(
    estimates: Sequence[Estimates], cells: Sequence[Cell], threshold: float, profile: Mapping[int, float] | None = None
) -> Launch:
    """Value every drafter's launch and advise the best that is worth more than 1 and enabled somewhere.

    `cells` are all (context length, batch size) that have a row, `threshold` what a gain must exceed (see `judge`),
    `profile` the weight of each batch size, shared evenly by the context lengths; without one, all cells whose decode
    step is measured weigh alike. Of launches within 1 % of the best, the one with fewest draft tokens is taken.

    Raises ValueError for weights that are negative, sum to 0, or are of a batch size without a cell.
    """
    by_length = {each.context_length: each for each in estimates}
    weights = _weights(by_length, cells, profile)
    drafters = sorted({c.drafter for each in estimates for group in each.candidates.values() for c in group})
    considered = [_value(drafter, by_length, cells, weights, threshold) for drafter in drafters]
    considered.sort(key=lambda each: -(each.value or 0.0))
    worthy = [each for each in considered if each.max_draft_tokens and each.value is not None and each.value > 1]
    if not worthy:
        return Launch(considered=tuple(considered))
    tied = [each for each in worthy if (each.value or 0.0) * (1 + TIE) > (worthy[0].value or 0.0)]
    best = min(tied, key=lambda each: each.max_draft_tokens)
    return Launch(True, best.drafter, best.max_draft_tokens, best.value or 1.0, best.draft_tokens, tuple(considered))


def _weights(
    by_length: Mapping[int, Estimates], cells: Sequence[Cell], profile: Mapping[int, float] | None
) -> dict[Cell, float]:
    if profile is None:
        raw = {(length, size): 1.0 for length, size in cells if size in by_length[length].decode}
    else:
        unknown = sorted(set(profile) - {size for _, size in cells})
        if unknown:
            raise ValueError(f"the profile weighs batch sizes {unknown}, which are not among those of the probe")
        if not all(0 <= weight < float("inf") for weight in profile.values()) or not sum(profile.values()) > 0:
            raise ValueError(f"weights must be finite, not negative, and not all 0, got {dict(profile)}")
        raw = {(length, size): profile.get(size, 0.0) for length, size in cells}
    total = sum(raw.values())
    return {cell: weight / total for cell, weight in raw.items() if weight > 0}


def _value(
    drafter: str,
    by_length: Mapping[int, Estimates],
    cells: Sequence[Cell],
    weights: Mapping[Cell, float],
    threshold: float,
) -> LaunchValue:
    draft_tokens: dict[Cell, int] = {}
    missing: list[str] = []
    time = 0.0
    for cell in cells:
        length, size = cell
        own = [each for each in by_length[length].candidates.get(size, ()) if each.drafter == drafter]
        judgement = judge(own, threshold)
        gain = by_length[length].off_speedups.get((drafter, size))
        draft_tokens[cell] = 0
        if judgement.verdict is Verdict.ENABLE and judgement.candidate:
            draft_tokens[cell], gain = judgement.candidate.draft_tokens, judgement.candidate.speedup
        if gain:
            time += weights.get(cell, 0.0) / gain
        elif cell in weights:
            missing.append(f"batch size {size} at context length {length}")
    value = 1 / time if time > 0 and not missing else None
    return LaunchValue(drafter, draft_tokens, value, tuple(missing))
