"""A deterministic engine without a model: for tests of everything around an engine, never evidence.

Its text is a hash of prompt and position, so that outputs do not depend on drafts; its clock is a formula with seeded
noise. What it should behave like comes in the target's `engine_args`:

    acceptance         probability that a draft token is accepted, given that the one before was
    acceptance_spread  standard deviation of that probability between prompts
    coverage           share of steps that carry a draft
    decode_ms          {batch size: milliseconds}, up to the most that decode together, or one number
    verify_ms          milliseconds more per draft token
    step_ms            {batch size: [milliseconds with 0, 1, ... draft tokens per request]}, instead of these two
    noise              standard deviation of the logarithm of a step's time
    noise_freedom      degrees of freedom of that noise, Student's t with tails cut off at 8; null for normal noise
    repeat_drift       standard deviation of the level of log time, drawn anew whenever draft tokens are set
    launch_drift       standard deviation of the level of log time of a launch
    sleep              whether a step really takes the time it claims
    load_seconds       time that a load takes
    seed               of the noise, beside the launch's own
"""

import hashlib
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workers.probe.engine import EngineDescription, EngineError, LaunchSpec, RequestOutput, Step

VOCABULARY_SIZE = 2048
END_TOKEN = 0
MAX_CONTEXT_TOKENS = 4096
LONGEST_TAIL = 8.0

Share = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0.001, le=3_600_000)]

Value = TypeVar("Value")


class Options(BaseModel):
    """What the engine should behave like, with its defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    acceptance: Share = 0.7
    acceptance_spread: Share = 0.0
    coverage: Share = 1.0
    decode_ms: Milliseconds | Annotated[dict[str, Milliseconds], Field(min_length=1)] = 10.0
    verify_ms: Annotated[float, Field(ge=0, le=3_600_000)] = 1.0
    step_ms: Annotated[dict[str, Annotated[list[Milliseconds], Field(min_length=1)]], Field(min_length=1)] | None = None
    noise: Share = 0.01
    noise_freedom: Annotated[float, Field(ge=1, le=1000)] | None = None
    repeat_drift: Share = 0.0
    launch_drift: Share = 0.0
    sleep: bool = False
    load_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.0
    seed: int = 0

    @classmethod
    def of_target(cls, target: Mapping[str, Any], max_batch_size: int) -> "Options":
        """The options of a target. Raises EngineError for one that it does not have, or a value that it cannot take."""
        given = target.get("engine_args") or {}
        if unknown := sorted(set(given) - set(cls.model_fields)):
            known = ", ".join(sorted(cls.model_fields))
            raise EngineError(f"the simulated engine has no option {unknown[0]!r}; it has {known}")
        try:
            options = cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            option = str(first["loc"][0])
            raise EngineError(
                f"the simulated engine's option {option!r} is {given[option]!r}: {first['msg'].lower()}"
            ) from None
        for option in ("decode_ms", "step_ms"):
            by_batch_size = getattr(options, option)
            if isinstance(by_batch_size, dict):
                _check_batch_sizes(option, by_batch_size, max_batch_size)
        return options


def _check_batch_sizes(option: str, by_batch_size: Mapping[str, Any], max_batch_size: int) -> None:
    if bad := [size for size in by_batch_size if not (size.isascii() and size.isdigit() and len(size) < 10)]:
        raise EngineError(f"the simulated engine's option {option!r} has {bad[0]!r}, which is no batch size")
    if (largest := max(map(int, by_batch_size))) < max_batch_size:
        raise EngineError(
            f"the simulated engine's option {option!r} ends at batch size {largest}, and "
            f"{max_batch_size} requests are to decode together: say how long that takes"
        )


@dataclass
class _Request:
    text: bytes
    """What its tokens and drafts are drawn from."""
    acceptance: float
    max_tokens: int
    ignore_end: bool
    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)


class SimulatedEngine:
    """An engine whose figures are known beforehand."""

    description: EngineDescription

    def __init__(self, spec: LaunchSpec) -> None:
        """Raises EngineError for an option that it does not have, or a value that the option cannot take."""
        self._options = Options.of_target(spec.target, spec.max_batch_size)
        self._draft_tokens = 0
        self._launch = spec
        self._requests: dict[str, _Request] = {}
        self._random = random.Random(f"{self._options.seed} {spec.seed}")
        self._launch_level = self._random.gauss(0.0, self._options.launch_drift)
        self._repeat_level = 0.0
        self.simulated_seconds = 0.0
        """What its steps claim to have taken, all of them together."""
        time.sleep(self._options.load_seconds)
        self.description = EngineDescription(
            name="simulated",
            version="1",
            import_seconds=0.0,
            load_seconds=self._options.load_seconds,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            resolved={"revision": None, "dtype": "none"},
        )

    def encode(self, prompt: Mapping[str, Any]) -> list[int]:
        text = prompt["prompt"] if "prompt" in prompt else "\n".join(m.get("content") or "" for m in prompt["messages"])
        return [1 + byte for byte in text.encode()]

    def set_draft_tokens(self, draft_tokens: int) -> None:
        if draft_tokens not in self._launch.draft_tokens:
            raise ValueError(f"draft_tokens is {draft_tokens}, this launch has {self._launch.draft_tokens}")
        self._draft_tokens = draft_tokens
        self._repeat_level = self._random.gauss(0.0, self._options.repeat_drift)

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        *,
        max_tokens: int,
        ignore_end: bool,
        temperature: float,  # noqa: ARG002  its text is what it is
    ) -> None:
        text = hashlib.blake2b(repr(tuple(prompt_token_ids)).encode(), digest_size=32).digest()
        own = NormalDist().inv_cdf(min(max(_chance(text, "acceptance"), 1e-9), 1 - 1e-9))
        acceptance = self._options.acceptance + self._options.acceptance_spread * own
        self._requests[request_id] = _Request(text, acceptance, max_tokens, ignore_end)

    def abort_all(self) -> None:
        self._requests.clear()

    def step(self) -> Step:
        prefilling = [r for r in self._requests.values() if not r.tokens]
        decoding = [r for r in self._requests.values() if r.tokens]
        drafts = {id(r): self._draft(r) for r in decoding}
        outputs = [self._advance(i, r, drafts.get(id(r))) for i, r in list(self._requests.items())]
        carried = [accepted for drafted, accepted in drafts.values() if drafted]
        drafted_tokens = sum(drafted for drafted, _ in drafts.values())
        seconds = self._seconds(len(decoding) or 1, drafted_tokens / max(1, len(decoding)))
        self.simulated_seconds += seconds
        if self._options.sleep:
            time.sleep(seconds)
        return Step(
            seconds=seconds,
            prefilling=len(prefilling),
            decoding=len(decoding),
            drafted_steps=len(carried),
            drafted_tokens=drafted_tokens,
            accepted_per_position=tuple(sum(a > i for a in carried) for i in range(self._launch.max_draft_tokens)),
            outputs=tuple(outputs),
        )

    def _seconds(self, batch_size: int, drafted_tokens: float) -> float:
        options = self._options
        if options.step_ms is not None:
            step_ms = _between(_at_batch_size(options.step_ms, batch_size), drafted_tokens)
        else:
            decode_ms = options.decode_ms
            if isinstance(decode_ms, dict):
                decode_ms = _at_batch_size(decode_ms, batch_size)
            step_ms = decode_ms + options.verify_ms * drafted_tokens
        return step_ms * math.exp(self._launch_level + self._repeat_level + options.noise * self._tail()) / 1e3

    def _tail(self) -> float:
        """Noise of standard deviation 1 (below three degrees of freedom, which have none, as it comes)."""
        normal, freedom = self._random.gauss(0.0, 1.0), self._options.noise_freedom
        if freedom is None:
            return normal
        student = normal / math.sqrt(self._random.gammavariate(freedom / 2, 2.0) / freedom)
        scaled = student * (math.sqrt((freedom - 2) / freedom) if freedom > 2 else 1.0)
        return max(-LONGEST_TAIL, min(LONGEST_TAIL, scaled))

    def _draft(self, request: _Request) -> tuple[int, int]:
        """(drafted, accepted) tokens of this request's step: chance that depends on its place in its text only."""
        position = len(request.tokens)
        if self._draft_tokens == 0 or _chance(request.text, position, "draft") >= self._options.coverage:
            return 0, 0
        accepted = 0
        while (
            accepted < self._draft_tokens and _chance(request.text, position + accepted, "accept") < request.acceptance
        ):
            accepted += 1
        return self._draft_tokens, accepted

    def _advance(self, request_id: str, request: _Request, draft: tuple[int, int] | None) -> RequestOutput:
        drafted, accepted = draft or (0, 0)
        if drafted:
            request.drafted.append(drafted)
            request.accepted.append(accepted)
        new, finish_reason = [], None
        for _ in range(accepted + 1):
            token = int(_chance(request.text, len(request.tokens), "token") * VOCABULARY_SIZE)
            request.tokens.append(token)
            new.append(token)
            if token == END_TOKEN and not request.ignore_end:
                finish_reason = "stop"
            elif len(request.tokens) == request.max_tokens:
                finish_reason = "length"
            if finish_reason:
                del self._requests[request_id]
                break
        return RequestOutput(
            request_id,
            tuple(new),
            finish_reason,
            tuple(request.accepted) if finish_reason else (),
            tuple(request.drafted) if finish_reason else (),
        )


def _chance(text: bytes, *what: object) -> float:
    digest = hashlib.blake2b(repr(what).encode(), key=text, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _at_batch_size(values: Mapping[str, Value], batch_size: int) -> Value:
    """The value at the next batch size that has one: fewer requests decode while the last ones of a batch end."""
    return values[min((size for size in values if int(size) >= batch_size), key=int)]


def _between(values: Sequence[float], position: float) -> float:
    """The value at a position between two of them; beyond the last it is the last."""
    below = min(int(position), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    return values[below] + (position - below) * (values[above] - values[below])
