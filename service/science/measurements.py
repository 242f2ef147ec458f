"""What a probe measured, as the rest of this package takes it. Checked once, when it is put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.science.arrays import FloatArray
from service.science.speculation import acceptance_length, acceptance_length_per_draft, draft_coverage


@dataclass(frozen=True, eq=False)
class TimedRepeat:
    """The clean steps of one timed repeat of one cell.

    `step_ms` [steps] is the milliseconds of each step, `step_drafted_tokens` [steps] the draft tokens verified in
    it over all requests. Sequences are taken as well as arrays. Raises ValueError for no steps, for times that are
    not positive, for negative counts and for lengths that differ.
    """

    step_ms: FloatArray
    step_drafted_tokens: FloatArray

    def __post_init__(self) -> None:
        _keep_as_array(self, "step_ms", axes=1)
        _keep_as_array(self, "step_drafted_tokens", axes=1)
        if not self.step_ms.size or not np.all(self.step_ms > 0):
            raise ValueError(f"step_ms must hold positive milliseconds, got {self.step_ms.tolist()}")
        if self.step_drafted_tokens.shape != self.step_ms.shape:
            raise ValueError(f"{self.step_ms.size} step_ms but {self.step_drafted_tokens.size} step_drafted_tokens")


@dataclass(frozen=True, eq=False)
class Acceptance:
    """What one drafter did at one number of draft tokens K, prompt by prompt.

    Counts of shape [prompts]; `accepted_per_position` [prompts, K] counts the drafts accepted up to that position.
    Sequences are taken as well as arrays. Raises ValueError for shapes that differ, counts that are negative, and
    no request-steps.
    """

    emitted_tokens: FloatArray
    request_steps: FloatArray
    drafted_steps: FloatArray
    drafted_tokens: FloatArray
    accepted_per_position: FloatArray

    def __post_init__(self) -> None:
        for name in ("emitted_tokens", "request_steps", "drafted_steps", "drafted_tokens"):
            _keep_as_array(self, name, axes=1)
            if getattr(self, name).shape != self.emitted_tokens.shape:
                raise ValueError(f"{name} has {getattr(self, name).size} prompts, not {self.emitted_tokens.size}")
        _keep_as_array(self, "accepted_per_position", axes=2)
        if len(self.accepted_per_position) != self.prompts:
            raise ValueError(f"accepted_per_position has {len(self.accepted_per_position)} prompts, not {self.prompts}")
        if not self.request_steps.sum() > 0 or not self.emitted_tokens.sum() > 0:
            raise ValueError(f"no tokens or no request_steps: {self.emitted_tokens.sum()}, {self.request_steps.sum()}")
        if np.any(self.drafted_steps > self.request_steps):
            prompt = int(np.argmax(self.drafted_steps > self.request_steps))
            raise ValueError(
                f"prompt {prompt} drafted in {self.drafted_steps[prompt]:g} of {self.request_steps[prompt]:g} steps"
            )

    @property
    def prompts(self) -> int:
        return self.emitted_tokens.size

    @property
    def acceptance_length(self) -> float:
        return acceptance_length(self.emitted_tokens, self.request_steps)

    @property
    def acceptance_length_per_draft(self) -> float | None:
        """None if nothing was drafted."""
        if not self.drafted_steps.sum() > 0:
            return None
        return acceptance_length_per_draft(self.accepted_per_position.sum(axis=1), self.drafted_steps)

    @property
    def draft_coverage(self) -> float:
        return draft_coverage(self.drafted_steps, self.request_steps)

    @property
    def drafted_tokens_per_request_step(self) -> float:
        return float(self.drafted_tokens.sum() / self.request_steps.sum())


Repeats = Sequence[TimedRepeat]


@dataclass(frozen=True)
class DrafterMeasurements:
    """One drafter's launch at one context length; whatever is not measured yet is simply absent.

    `acceptance` by draft tokens K >= 1; `repeats` by (batch size, K), with K = 0 for steps of this launch in
    which speculation is switched off.
    """

    acceptance: Mapping[int, Acceptance] = field(default_factory=dict)
    repeats: Mapping[tuple[int, int], Repeats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for draft_tokens in self.acceptance:
            if draft_tokens < 1:
                raise ValueError(f"acceptance is of 1 draft token or more, got {draft_tokens}")
        for batch_size, draft_tokens in self.repeats:
            if batch_size < 1 or draft_tokens < 0:
                raise ValueError(f"no such cell: batch size {batch_size} with {draft_tokens} draft tokens")


@dataclass(frozen=True)
class Measurements:
    """Everything measured at one context length: repeats by batch size without a drafter, and each drafter's launch.

    `control` is the second baseline launch, at the end of the probe; both measure the same decode step.
    """

    context_length: int
    baseline: Mapping[int, Repeats] = field(default_factory=dict)
    control: Mapping[int, Repeats] = field(default_factory=dict)
    drafters: Mapping[str, DrafterMeasurements] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for batch_size in (*self.baseline, *self.control):
            if batch_size < 1:
                raise ValueError(f"a batch size is at least 1, got {batch_size}")


def _keep_as_array(owner: object, name: str, axes: int) -> None:
    """Replace a frozen dataclass's sequence by a float array, and check that it holds finite, non-negative values."""
    values = np.asarray(getattr(owner, name), dtype=np.float64)
    if values.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got shape {values.shape}")
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"{name} must be finite and not negative, got {values.tolist()}")
    object.__setattr__(owner, name, values)
