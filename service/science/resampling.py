"""How far a drafter's acceptance would differ on other prompts of the same kind: the bootstrap over prompts."""

import numpy as np

from service.science.arrays import FloatArray
from service.science.measurements import Acceptance
from service.science.statistics import random_stream


def resampled_counts(prompts: int, draws: int, seed: int) -> FloatArray:
    """How often each prompt is in each bootstrap sample, [draws, prompts].

    One seed gives one set of samples, so that drafters measured on the same prompts are compared on the same samples.
    """
    stream = random_stream(seed, "prompts", prompts)
    return stream.multinomial(prompts, np.full(prompts, 1 / prompts), size=draws).astype(np.float64)


def acceptance_draws(acceptance: Acceptance, counts: FloatArray, slope_share: float = 0.0) -> FloatArray | None:
    """Errors [draws] of log AL - log T_step that come from having seen these prompts and no others.

    `counts` [draws, prompts] from `resampled_counts`. `slope_share` is the share that one more draft token per
    request adds to the step time: prompts with more drafts lengthen the steps as well as the acceptance, and moving
    both together keeps that. Bootstrap-t of the ratio estimator (Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, section 12.5) with its linearised standard error; the acceptance length stays within 1 and K+1.
    None for a single prompt, which tells nothing of its scatter.

    Raises ValueError if `counts` are of another number of prompts.
    """
    if counts.shape[1] != acceptance.prompts:
        raise ValueError(f"counts are of {counts.shape[1]} prompts, the acceptance of {acceptance.prompts}")
    if acceptance.prompts < 2:
        return None
    columns = np.stack([acceptance.emitted_tokens, acceptance.request_steps, acceptance.drafted_tokens])
    products = columns[:, None] * columns[None]
    observed = np.ones((1, acceptance.prompts))
    usual_tokens = acceptance.drafted_tokens_per_request_step
    estimate, error = _ratio_and_error(observed, columns, products, usual_tokens, slope_share)
    drawn, drawn_error = _ratio_and_error(counts, columns, products, usual_tokens, slope_share)
    # Samples in which all prompts are alike have no error of their own; the bounds below hold what they give.
    studentised = (drawn - estimate) / np.maximum(drawn_error, 1e-12)
    most = np.log(acceptance.accepted_per_position.shape[1] + 1)
    bounded = np.clip(estimate - studentised * error, min(0.0, float(estimate[0])), max(most, float(estimate[0])))
    return np.asarray(bounded - estimate, dtype=np.float64)


def _ratio_and_error(
    counts: FloatArray, columns: FloatArray, products: FloatArray, usual_tokens: float, slope_share: float
) -> tuple[FloatArray, FloatArray]:
    """log AL - log(T_step relative to the usual share of drafts) and its linearised standard error, each [draws]."""
    prompts = columns.shape[1]
    emitted, steps, drafted = (counts @ columns.T).T
    second = (counts @ products.reshape(9, prompts).T).T.reshape(3, 3, -1)
    tokens = drafted / steps
    longer = np.maximum(1.0 + slope_share * (tokens - usual_tokens), 0.05)
    share = slope_share / longer
    # Derivatives of the statistic by each prompt's (emitted, steps, drafted).
    weights = np.stack([1 / emitted, (share * tokens - 1) / steps, -share / steps])
    squares = (weights[:, None] * weights[None] * second).sum(axis=(0, 1))
    error = np.sqrt(np.maximum(squares, 0.0) * prompts / (prompts - 1))
    return np.log(emitted / steps) - np.log(longer), error
