"""Whether a drafter changes what the model says, given what batch size alone changes.

Greedy decoding with and without speculation should give the same tokens, up to near-ties that low-precision kernels
flip when the shape of a batch changes. The baseline against itself at another batch size shows how many flips to
expect; only an excess over that is a failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Outputs = Mapping[int, Sequence[int]]
"""Token ids by the prompt's index."""


@dataclass(frozen=True)
class Divergence:
    """A prompt whose output differs from the baseline's at the same batch size, and the first position that does."""

    drafter: str
    draft_tokens: int
    prompt: int
    position: int


@dataclass(frozen=True)
class OutputComparison:
    """How many prompts were compared, and in how many any drafter's output differed at any number of draft tokens.

    `diverged_baseline` counts the prompts in which the baseline differs from itself at another batch size, None if
    that was not measured. `failed` says that one drafter at one number of draft tokens differed in a larger share of
    prompts than the baseline does: like is held against like, one pair of runs against one pair. So `diverged`, which
    is over all of them, may exceed `diverged_baseline` without a failure.
    """

    compared: int
    diverged: int
    diverged_baseline: int | None
    divergences: tuple[Divergence, ...] = ()
    failed: bool = False
    warnings: tuple[str, ...] = ()


def compare_outputs(
    baseline: Outputs, other_baseline: Outputs, drafters: Mapping[str, Mapping[int, Outputs]]
) -> OutputComparison:
    """Compare greedy outputs prompt by prompt.

    `baseline` was decoded at the drafters' batch size, `other_baseline` at another (empty if it was not); `drafters`
    holds outputs by drafter and draft tokens K. Only prompts that both sides have are compared. An output that ended
    earlier than the other differs at the position where it ended.
    """
    own = _first_differences(baseline, other_baseline)
    held = len(baseline.keys() & other_baseline.keys())
    own_share = len(own) / held if held else None
    divergences: list[Divergence] = []
    warnings: list[str] = []
    compared: set[int] = set()
    failed = False
    for drafter, by_draft_tokens in sorted(drafters.items()):
        for draft_tokens, outputs in sorted(by_draft_tokens.items()):
            shared = baseline.keys() & outputs.keys()
            positions = _first_differences(baseline, outputs)
            found = [Divergence(drafter, draft_tokens, prompt, at) for prompt, at in sorted(positions.items())]
            compared |= shared
            divergences += found
            if len(found) > (own_share or 0.0) * len(shared):
                failed = failed or own_share is not None
                warnings.append(_warning(found, len(shared), own_share))
    return OutputComparison(
        compared=len(compared),
        diverged=len({divergence.prompt for divergence in divergences}),
        diverged_baseline=None if own_share is None else len(own),
        divergences=tuple(divergences),
        failed=failed,
        warnings=tuple(warnings),
    )


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first position at which two sequences of token ids differ, None if they are the same throughout."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def _first_differences(baseline: Outputs, outputs: Outputs) -> dict[int, int]:
    """The first differing position by prompt, of the prompts in both that differ."""
    positions = {
        prompt: first_difference(baseline[prompt], outputs[prompt]) for prompt in baseline.keys() & outputs.keys()
    }
    return {prompt: position for prompt, position in positions.items() if position is not None}


def _warning(found: Sequence[Divergence], compared: int, own_share: float | None) -> str:
    drafter, draft_tokens = found[0].drafter, found[0].draft_tokens
    places = ", ".join(f"prompt {each.prompt} at position {each.position}" for each in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    if own_share is None:
        judgement = "the baseline was not decoded at another batch size, so near-ties cannot be told from errors"
    else:
        judgement = f"more than the {own_share:.0%} in which the baseline differs from itself at another batch size"
    return (
        f"greedy outputs of {drafter} with {draft_tokens} draft tokens differ from the baseline's in {len(found)} of "
        f"{compared} prompts ({places}{more}): {judgement}"
    )
