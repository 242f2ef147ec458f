"""What measuring asks of an inference engine, and nothing else.

The engine is driven step by step: requests go in, each `step` says what ran and how long it took. Everything that
`workers.probe.measure` knows about an engine is here, so that the real one and the simulated one are exchangeable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class EngineError(Exception):
    """The engine cannot run this launch; the message is its own reason, shortened, and what to do."""


@dataclass(frozen=True)
class LaunchSpec:
    """One engine launch: a target, and a drafter or none.

    Fields:
        target: model, revision, dtype, quantization, tensor_parallel, engine_args, as in a probe request.
        drafter: method, model, options, as in a probe request; None for a launch without speculation.
        draft_tokens: every K that the launch will be asked for, ascending; (0,) without a drafter.
        max_batch_size: the most requests that will decode together.
        seed: of the engine's own random numbers.
    """

    target: Mapping[str, Any]
    drafter: Mapping[str, Any] | None
    draft_tokens: tuple[int, ...]
    max_batch_size: int
    seed: int = 0

    @property
    def max_draft_tokens(self) -> int:
        """K_max of the launch."""
        return self.draft_tokens[-1]


@dataclass(frozen=True)
class EngineDescription:
    """What a launch turned out to be: what it cost to start and all that could explain its figures.

    `resolved` is what the request left open (revision, dtype, ...), `details` the engine's provenance.
    """

    name: str
    version: str
    import_seconds: float
    load_seconds: float
    max_context_tokens: int
    resolved: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestOutput:
    """What one step gave to one request.

    `accepted_per_step` and `drafted_per_step` come with the last output of a request that ended by itself: one
    entry per step that carried a draft, in order.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    accepted_per_step: tuple[int, ...] = ()
    drafted_per_step: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One engine step: `seconds` from the call to the processed outputs, as a client of the engine would feel it.

    `drafted_tokens` is the number of draft tokens verified in this step over all requests, `accepted_per_position`
    how many requests had their first, second, ... draft token accepted: the engine's own count, which includes
    accepted tokens that a stop then cut off.
    """

    seconds: float
    prefilling: int
    decoding: int
    drafted_steps: int
    drafted_tokens: int
    accepted_per_position: tuple[int, ...]
    outputs: tuple[RequestOutput, ...]


class Engine(Protocol):
    """One loaded engine. Greedy or sampled decoding is chosen at launch of each request by `temperature`."""

    description: EngineDescription

    def encode(self, prompt: Mapping[str, Any]) -> list[int]:
        """Token ids of {"prompt": text} or {"messages": [...]}, the latter by the model's own chat template."""

    def set_draft_tokens(self, draft_tokens: int) -> None:
        """Draft this many tokens from the next step on, whatever the batch size. 0 is off."""

    def add_request(
        self, request_id: str, prompt_token_ids: Sequence[int], *, max_tokens: int, ignore_end: bool, temperature: float
    ) -> None:
        """Queue a request; with `ignore_end` it runs past the model's end of text."""

    def abort_all(self) -> None:
        """Forget every request, running or queued."""

    def step(self) -> Step:
        """Run one step."""
