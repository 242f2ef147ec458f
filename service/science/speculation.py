"""The arithmetic of speculative decoding: acceptance, coverage, speed-up and what would break even.

Knows definitions only: nothing here estimates an error, and nothing knows where a figure was measured.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from service.science.arrays import FloatArray

FloatOrArray = TypeVar("FloatOrArray", float, FloatArray)


def acceptance_length(tokens: ArrayLike, request_steps: ArrayLike) -> float:
    """Tokens emitted per request-step, the bonus token and the steps without a draft included.

    `tokens` and `request_steps` are counts, each a number or an array of the same shape (say [prompts]); the
    ratio is of the sums, so a long answer weighs more than a short one, as it does on the wall clock.

    Raises ValueError for counts that are negative or not finite, for shapes that differ and for no steps at all.
    """
    return _ratio_of_sums("tokens", tokens, "request_steps", request_steps)


def acceptance_length_per_draft(accepted_tokens: ArrayLike, drafted_steps: ArrayLike) -> float:
    """Tokens emitted per request-step that carried a draft: 1 + accepted / drafts, the figure that vLLM reports.

    Counts as in `acceptance_length`; raises the same errors.
    """
    return 1.0 + _ratio_of_sums("accepted_tokens", accepted_tokens, "drafted_steps", drafted_steps)


def draft_coverage(drafted_steps: ArrayLike, request_steps: ArrayLike) -> float:
    """Share of request-steps that carried a draft, 0 to 1.

    Counts as in `acceptance_length`; raises the same errors, and ValueError if more steps drafted than there were.
    """
    coverage = _ratio_of_sums("drafted_steps", drafted_steps, "request_steps", request_steps)
    if coverage > 1:
        raise ValueError(f"drafted_steps exceed request_steps: their ratio is {coverage}")
    return coverage


def acceptance_length_from_coverage(coverage: float, per_draft: float) -> float:
    """The acceptance length of a drafter that drafts in `coverage` of the steps: 1 + coverage (per_draft - 1).

    Raises ValueError for a coverage outside [0, 1] or an acceptance length per draft below 1.
    """
    if not 0 <= coverage <= 1:
        raise ValueError(f"coverage must lie in [0, 1], got {coverage}")
    if not per_draft >= 1:
        raise ValueError(f"per_draft must be at least 1, got {per_draft}")
    return 1.0 + coverage * (per_draft - 1.0)


def acceptance_rates(accepted_per_position: ArrayLike, drafted_at_least: ArrayLike) -> FloatArray:
    """P_i for i = 1..K: the share of drafts of at least i tokens whose first i tokens were all accepted.

    `accepted_per_position` [K] counts the drafts accepted up to position i; `drafted_at_least` counts the drafts
    with i tokens or more, [K] or one number if every draft was full. Not conditional on earlier positions. Where
    nothing was drafted the rate is NaN.

    Raises ValueError for counts that are negative or not finite, and for more accepted than drafted.
    """
    accepted = _counts("accepted_per_position", accepted_per_position)
    if accepted.ndim != 1:
        raise ValueError(f"accepted_per_position must have one axis, got shape {accepted.shape}")
    drafted = _counts("drafted_at_least", drafted_at_least)
    if drafted.ndim and drafted.shape != accepted.shape:
        raise ValueError(f"drafted_at_least has shape {drafted.shape}, accepted_per_position {accepted.shape}")
    drafted = np.broadcast_to(drafted, accepted.shape)
    if np.any(accepted > drafted):
        position = int(np.argmax(accepted > drafted))
        raise ValueError(
            f"position {position + 1} accepted {accepted[position]:g} drafts of {drafted[position]:g} that reached it"
        )
    rates: FloatArray = np.divide(accepted, drafted, out=np.full(accepted.shape, np.nan), where=drafted > 0)
    return rates


def acceptance_length_from_rates(rates: ArrayLike) -> float:
    """The acceptance length of a drafter that drafts in full on every step: 1 + the sum of P_1..P_K.

    `rates` [K] are unconditional, so they may not increase; raises ValueError if they do or leave [0, 1].
    """
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"rates must be one axis of values in [0, 1], got {rates!r}")
    if np.any(np.diff(values) > 0):
        raise ValueError(f"rates must not increase with the position, got {rates!r}")
    return float(1.0 + values.sum())


def chain_acceptance_length(acceptance: float, draft_tokens: int) -> float:
    """The acceptance length of a chain of K drafts, each accepted with the same probability on its own.

    (1 - a^(K+1)) / (1 - a), Leviathan et al., arXiv 2211.17192. Real drafters are accepted more readily at depth
    than one rate allows, so this is a yardstick and no fit.

    Raises ValueError for an acceptance outside [0, 1] or draft tokens below 0.
    """
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must lie in [0, 1], got {acceptance}")
    if draft_tokens < 0:
        raise ValueError(f"draft_tokens must be at least 0, got {draft_tokens}")
    return float(sum(acceptance**depth for depth in range(draft_tokens + 1)))


def speedup(acceptance_length: FloatOrArray, decode_ms: FloatOrArray, step_ms: FloatOrArray) -> FloatOrArray:
    """How many times faster tokens come with speculation: AL T_decode / T_step.

    Milliseconds of a step without a drafter and of a step with it, at one batch size; numbers or arrays that
    broadcast. Raises ValueError for values that are not positive and finite.
    """
    _require_positive(acceptance_length=acceptance_length, decode_ms=decode_ms, step_ms=step_ms)
    return acceptance_length * decode_ms / step_ms


def break_even_acceptance_length(decode_ms: FloatOrArray, step_ms: FloatOrArray) -> FloatOrArray:
    """The acceptance length at which speculation neither gains nor loses: T_step / T_decode.

    Arguments and errors as in `speedup`. With a verification step's time for `step_ms` it is the floor, which no
    drafter gets below.
    """
    _require_positive(decode_ms=decode_ms, step_ms=step_ms)
    return step_ms / decode_ms


def target_efficiency(single_position_ms: FloatOrArray, verify_ms: FloatOrArray) -> FloatOrArray:
    """T_verify(B, 1) / T_verify(B, K+1): what verification alone costs, without any draft (MoESD, arXiv 2505.19645).

    Milliseconds at one batch size, of one position per request and of K+1. Errors as in `speedup`.
    """
    _require_positive(single_position_ms=single_position_ms, verify_ms=verify_ms)
    return single_position_ms / verify_ms


def _counts(name: str, values: ArrayLike) -> FloatArray:
    counts = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(counts) & (counts >= 0)):
        raise ValueError(f"{name} must be finite and not negative, got {values!r}")
    return counts


def _ratio_of_sums(name: str, numerator: ArrayLike, other_name: str, denominator: ArrayLike) -> float:
    above, below = _counts(name, numerator), _counts(other_name, denominator)
    if above.shape != below.shape:
        raise ValueError(f"{name} has shape {above.shape}, {other_name} {below.shape}")
    if not below.sum() > 0:
        raise ValueError(f"{other_name} must not sum to 0, got {denominator!r}")
    return float(above.sum() / below.sum())


def _require_positive(**values: float | FloatArray) -> None:
    for name, value in values.items():
        array = np.asarray(value, dtype=np.float64)
        if not np.all(np.isfinite(array) & (array > 0)):
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
