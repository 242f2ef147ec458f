"""Loads the real engine once, in a process of its own, and prints what it saw as one JSON object.

Run by `tests.engine.conftest`; each test in `test_vllm_contract` looks at one of these facts.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers.probe.engine import LaunchSpec, Step
from workers.probe.measure import Continuation, Workload, continue_prompts, time_cell
from workers.probe.vllm_engine import VllmEngine

MAX_DRAFT_TOKENS = 3
PROMPTS = Path(__file__).parents[2] / "service" / "prompts" / "demo.jsonl"


class Recording(VllmEngine):
    """The engine, with every step it ran."""

    steps: list[Step]

    def step(self) -> Step:
        self.steps.append(super().step())
        return self.steps[-1]


def counters(engine: VllmEngine) -> dict[str, float]:
    """vLLM's own totals since the launch."""
    found = {m.name: m for m in engine._llm.get_metrics() if "spec_decode" in m.name}
    totals = {name.rsplit("num_", 1)[1]: getattr(metric, "value", None) for name, metric in found.items()}
    positions = next((m.values for m in found.values() if hasattr(m, "values")), [])
    return {name: value for name, value in totals.items() if value is not None} | {"positions": list(positions)}


def totals(steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "drafts": sum(s.drafted_steps for s in steps),
        "draft_tokens": sum(s.drafted_tokens for s in steps),
        "accepted": [sum(p) for p in zip(*(s.accepted_per_position for s in steps if s.drafted_steps), strict=True)],
        "emitted": sum(len(o.token_ids) for s in steps for o in s.outputs),
    }


def text(done: Iterable[Continuation]) -> dict[int, list[int]]:
    return {continuation.prompt: continuation.token_ids for continuation in done}


def main() -> None:
    printed = os.dup(1)
    os.dup2(2, 1)
    drafter = {"method": "ngram", "model": None, "options": {"prompt_lookup_min": 1, "prompt_lookup_max": 3}}
    target = {"model": "breakeven/demo-moe", "dtype": "float32"}
    engine = Recording(LaunchSpec(target, drafter, tuple(range(MAX_DRAFT_TOKENS + 1)), 8))
    engine.steps = []
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()[:6]]
    workload = Workload([engine.encode(prompt) for prompt in prompts], output_tokens=40, temperature=0.0)

    facts: dict[str, Any] = {
        "description": asdict(engine.description),
        "lookup": str(type(engine._scheduler.dynamic_sd_lookup)),
    }
    by_draft_tokens = {}
    for draft_tokens in (0, 1, 3, 0, 2):
        engine.steps.clear()
        done = list(continue_prompts(engine, workload, batch_size=4, draft_tokens=draft_tokens, prompts=range(6)))
        by_draft_tokens[draft_tokens] = {
            "steps": totals(engine.steps),
            "requests": [asdict(c) for c in done],
            "most_drafted_in_a_step": max(s.drafted_tokens / max(1, s.decoding) for s in engine.steps),
            "text": text(done),
        }
        facts.setdefault("every_step", []).extend(engine.steps)
    facts["by_draft_tokens"] = by_draft_tokens

    facts["counters"] = counters(engine)
    facts["all_steps"] = totals(facts.pop("every_step"))

    engine.steps.clear()
    timing = time_cell(engine, workload, batch_size=4, draft_tokens=3, steps=60)
    facts["timing"] = asdict(timing)
    facts["timing_steps"] = [(s.prefilling, s.decoding, s.seconds) for s in engine.steps]
    facts["requests_left"] = engine._engine.get_num_unfinished_requests()

    engine.set_draft_tokens(3)
    facts["token_of_a_reused_prompt"] = text(
        continue_prompts(engine, workload, batch_size=1, draft_tokens=3, prompts=[0])
    )[0]
    try:
        engine.set_draft_tokens(MAX_DRAFT_TOKENS + 1)
    except ValueError as error:
        facts["above_the_maximum"] = str(error)
    os.write(printed, json.dumps(facts).encode() + b"\n")
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
