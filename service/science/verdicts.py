"""What the candidates of one batch size amount to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.science.candidates import Candidate

TIE = 0.01
"""Speed-ups closer than this share count as the same, and the smaller K is taken."""


class Verdict(StrEnum):
    """What to do at one batch size."""

    ENABLE = "enable"
    DISABLE = "disable"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Judgement:
    """A verdict; under `enable` the candidate to use, under `inconclusive` the one that keeps the question open."""

    verdict: Verdict
    candidate: Candidate | None


def judge(candidates: Sequence[Candidate], threshold: float) -> Judgement:
    """Decide whether speculation gains more than `threshold`, a ratio such as 1.02.

    `enable` takes the best of the candidates whose whole interval lies above the threshold, which need not be the
    one that looks best: a proven gain is worth more than a larger one that may not be there. `disable` needs every
    candidate's interval, and none of it above the threshold. No candidates are no evidence.
    """
    ranked = rank(candidates)
    proven = [each for each in ranked if each.speedup_low is not None and each.speedup_low > threshold]
    if proven:
        return Judgement(Verdict.ENABLE, proven[0])
    undecided = [each for each in ranked if each.speedup_high is not None and each.speedup_high > threshold]
    unknown = [each for each in ranked if each.speedup_high is None]
    if undecided or unknown or not ranked:
        return Judgement(Verdict.INCONCLUSIVE, next(iter(undecided + unknown), None))
    return Judgement(Verdict.DISABLE, None)


def rank(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Best first: by speed-up, where of those within 1 % of the best left the one with fewest draft tokens comes next.

    Candidates without a speed-up come last.
    """
    left = sorted(candidates, key=lambda each: (-(each.speedup or 0.0), each.draft_tokens, each.drafter))
    ranked: list[Candidate] = []
    while left:
        best = left[0].speedup or 0.0
        tied = [each for each in left if (each.speedup or 0.0) * (1 + TIE) > best]
        following = min(tied, key=lambda each: each.draft_tokens) if tied else left[0]
        left.remove(following)
        ranked.append(following)
    return tuple(ranked)
