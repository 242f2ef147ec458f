"""A deterministic engine without a model: for tests of everything around an engine, never evidence.

Its text is a hash of prompt and position, so that outputs do not depend on drafts; its clock is a formula with seeded
noise. What it should behave like comes in the target's `engine_args`:

    acceptance     probability that a draft token is accepted, given that the one before was
    coverage       share of steps that carry a draft
    decode_ms      {batch size: milliseconds}, up to the most that decode together, or one number
    verify_ms      milliseconds more per draft token
    noise          standard deviation of the logarithm of a step's time
    sleep          whether a step really takes the time it claims
    load_seconds   time that a load takes
    seed           of the noise, beside the launch's own
"""

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workers.probe.engine import EngineDescription, EngineError, LaunchSpec, RequestOutput, Step

VOCABULARY_SIZE = 2048
END_TOKEN = 0
MAX_CONTEXT_TOKENS = 4096

Share = Annotated[float, Field(ge=0, le=1)]
Milliseconds = Annotated[float, Field(ge=0.001, le=3_600_000)]


class Options(BaseModel):
    """What the engine should behave like, with its defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    acceptance: Share = 0.7
    coverage: Share = 1.0
    decode_ms: Milliseconds | Annotated[dict[str, Milliseconds], Field(min_length=1)] = 10.0
    verify_ms: Annotated[float, Field(ge=0, le=3_600_000)] = 1.0
    noise: Share = 0.01
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
        if isinstance(options.decode_ms, dict):
            sizes = options.decode_ms
            if bad := [size for size in sizes if not (size.isascii() and size.isdigit() and len(size) < 10)]:
                raise EngineError(f"the simulated engine's option 'decode_ms' has {bad[0]!r}, which is no batch size")
            if max(map(int, sizes)) < max_batch_size:
                raise EngineError(
                    f"the simulated engine's option 'decode_ms' ends at batch size {max(map(int, sizes))}, and "
                    f"{max_batch_size} requests are to decode together: say how long that takes"
                )
        return options


@dataclass
class _Request:
    prompt: tuple[int, ...]
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
        self._random = random.Random(spec.seed + self._options.seed)
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

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        *,
        max_tokens: int,
        ignore_end: bool,
        temperature: float,  # noqa: ARG002  its text is what it is
    ) -> None:
        self._requests[request_id] = _Request(tuple(prompt_token_ids), max_tokens, ignore_end)

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
        decode_ms = self._options.decode_ms
        if isinstance(decode_ms, dict):
            # Fewer requests decode while the last ones of a batch end.
            decode_ms = min((int(size), ms) for size, ms in decode_ms.items() if int(size) >= batch_size)[1]
        step_ms = decode_ms + self._options.verify_ms * drafted_tokens
        noise = self._random.lognormvariate(0.0, self._options.noise)
        return step_ms * noise / 1e3

    def _draft(self, request: _Request) -> tuple[int, int]:
        """(drafted, accepted) tokens of this request's step: chance that depends on its place in its text only."""
        position = len(request.tokens)
        if self._draft_tokens == 0 or self._chance(request, position, "draft") >= self._options.coverage:
            return 0, 0
        accepted = 0
        while (
            accepted < self._draft_tokens
            and self._chance(request, position + accepted, "accept") < self._options.acceptance
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
            token = int(self._chance(request, len(request.tokens), "token") * VOCABULARY_SIZE)
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

    @staticmethod
    def _chance(request: _Request, position: int, what: str) -> float:
        digest = hashlib.blake2b(repr((request.prompt, position, what)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64
