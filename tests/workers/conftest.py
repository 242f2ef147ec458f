"""Requests and engines of known behaviour."""

from collections.abc import Callable
from typing import Any

import pytest

from workers.probe.engine import LaunchSpec
from workers.probe.simulate import SimulatedEngine

PROMPTS = [{"prompt": f"prompt number {i}: " + "x" * i} for i in range(12)]


def probe_request(**changes: Any) -> dict[str, Any]:
    """A probe request as a probe's row has it, on the simulated engine, of one n-gram drafter."""
    request: dict[str, Any] = {
        "engine": "simulated",
        "target": {"model": "a-model", "tensor_parallel": 1, "engine_args": {}},
        "hardware": "cpu",
        "drafters": [{"name": "ngram", "method": "ngram", "model": None, "options": {}}],
        "batch_sizes": [1, 2, 4],
        "max_draft_tokens": 3,
        "workload": {"prompts": "demo", "context_lengths": None, "output_tokens": 48, "temperature": 0.0},
        "arms": ["baseline", "drafters"],
        "repeats": 3,
        "budget_seconds": 600,
    }
    return request | changes


@pytest.fixture
def simulated() -> Callable[..., SimulatedEngine]:
    """A simulated engine with these options, loaded with or without a drafter."""

    def load(*, max_draft_tokens: int = 3, **options: Any) -> SimulatedEngine:
        drafter = {"method": "ngram"} if max_draft_tokens else None
        target = {"model": "a-model", "engine_args": options}
        return SimulatedEngine(LaunchSpec(target, drafter, tuple(range(max_draft_tokens + 1)), 8))

    return load
