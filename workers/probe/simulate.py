"""A deterministic engine without a model: for tests of everything around an engine, never evidence.

Its text is a hash of prompt and position, so that outputs do not depend on drafts; its clock is a formula with seeded
noise. What it should behave like comes in the target's `engine_args`:

    acceptance     probability that a draft token is accepted, given that the one before was (default 0.7)
    coverage       share of steps that carry a draft (default 1)
    decode_ms      {batch size: milliseconds}, up to the largest batch size, or one number (default 10)
    verify_ms      milliseconds more per draft token (default 1)
    noise          standard deviation of the logarithm of a step's time (default 0.01)
    sleep          whether a step really takes the time it claims (default false)
    load_seconds   time that a load takes (default 0)
    seed           of the noise, beside the launch's own (default 0)
"""

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.probe.engine import EngineDescription, EngineError, LaunchSpec, RequestOutput, Step

VOCABULARY_SIZE = 2048
END_TOKEN = 0
MAX_CONTEXT_TOKENS = 4096
OPTIONS = {"acceptance", "coverage", "decode_ms", "verify_ms", "noise", "sleep", "load_seconds", "seed"}


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
        """Raises EngineError for an option that it does not have."""
        self._options: Mapping[str, Any] = spec.target.get("engine_args") or {}
        if unknown := sorted(set(self._options) - OPTIONS):
            raise EngineError(f"the simulated engine has no option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}")
        self._draft_tokens = 0
        self._launch = spec
        self._requests: dict[str, _Request] = {}
        self._random = random.Random(spec.seed + int(self._options.get("seed", 0)))
        load_seconds = float(self._options.get("load_seconds", 0))
        time.sleep(load_seconds)
        self.description = EngineDescription(
            name="simulated",
            version="1",
            import_seconds=0.0,
            load_seconds=load_seconds,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            resolved={"revision": None, "dtype": "none"},
        )

    def encode(self, prompt: Mapping[str, Any]) -> list[int]:
        text = prompt["prompt"] if "prompt" in prompt else "\n".join(m["content"] for m in prompt["messages"])
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
        if self._options.get("sleep"):
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
        decode_ms = self._options.get("decode_ms", 10.0)
        if isinstance(decode_ms, Mapping):
            # Fewer requests decode while the last ones of a batch end.
            decode_ms = min((int(size), ms) for size, ms in decode_ms.items() if int(size) >= batch_size)[1]
        step_ms = float(decode_ms) + float(self._options.get("verify_ms", 1.0)) * drafted_tokens
        noise = self._random.lognormvariate(0.0, float(self._options.get("noise", 0.01)))
        return step_ms * noise / 1e3

    def _draft(self, request: _Request) -> tuple[int, int]:
        """(drafted, accepted) tokens of this request's step: chance that depends on its place in its text only."""
        position = len(request.tokens)
        if self._draft_tokens == 0 or self._chance(request, position, "draft") >= self._options.get("coverage", 1.0):
            return 0, 0
        accepted = 0
        while accepted < self._draft_tokens and self._chance(
            request, position + accepted, "accept"
        ) < self._options.get("acceptance", 0.7):
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
