"""Imports vLLM once and tries many launches, each in a process of its own; prints what became of them as JSON.

Reads a list of launches on stdin: `name`, `target`, `drafter`, `draft_tokens`, `max_batch_size`, all but the first
optional, and what to do. `memory_bytes` above what the process has is all that it then gets; each list of `prompts` is
encoded and checked against the model's room; `drive` tells how many tokens each step drafts at these batch sizes.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.measure import Workload, time_cell
from workers.probe.prompts import check_room, encode_prompts
from workers.probe.vllm_engine import VllmEngine

DEMO = {"model": "breakeven/demo-moe", "dtype": "float32"}
STEPS = 12
SECONDS = 90
"""After which a launch is killed that neither fails nor ends."""


def outcome(launch: dict[str, Any]) -> dict[str, Any]:
    """What became of one launch: its error, or what it turned out to be and did."""
    drafter = launch.get("drafter")
    spec = LaunchSpec(
        {**DEMO, **launch.get("target", {})},
        drafter,
        tuple(launch.get("draft_tokens", (0, 1, 2, 3) if drafter else (0,))),
        launch.get("max_batch_size", 4),
    )
    if more := launch.get("memory_bytes"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more,) * 2)
    try:
        engine = VllmEngine(spec)
        seen: dict[str, Any] = {"resolved": engine.description.resolved, "details": engine.description.details}
        seen["prompts"] = [refusal(engine, prompts, spec.max_draft_tokens) for prompts in launch.get("prompts", [])]
        if batch_sizes := launch.get("drive"):
            workload = Workload(
                [engine.encode({"prompt": f"def number_{i}(x):\n    return"}) for i in range(4)], 64, 0.0
            )
            seen["drafted"] = {
                batch_size: time_cell(
                    engine, workload, batch_size=batch_size, draft_tokens=spec.max_draft_tokens, steps=STEPS
                ).step_drafted_tokens
                for batch_size in batch_sizes
            }
    except EngineError as error:
        return {"error": str(error)}
    return seen


def refusal(engine: VllmEngine, prompts: list[dict[str, Any]], draft_tokens: int) -> str | None:
    """Why these prompts are refused, if they are."""
    try:
        max_context = engine.description.max_context_tokens
        check_room(encode_prompts(engine, prompts), output_tokens=8, draft_tokens=draft_tokens, max_context=max_context)
    except EngineError as error:
        return str(error)
    return None


def main() -> None:
    printed = os.dup(1)
    os.dup2(2, 1)
    for module in ("vllm.entrypoints.llm", "vllm.v1.engine.core"):
        importlib.import_module(module)
    gc.freeze()
    outcomes = {}
    for launch in json.load(sys.stdin):
        read, write = os.pipe()
        started = time.monotonic()
        if (child := os.fork()) == 0:
            os.close(read)
            signal.alarm(SECONDS)
            with os.fdopen(write, "w") as pipe:
                json.dump(outcome(launch), pipe)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        outcomes[launch["name"]] = json.loads(told or '{"error": "it died"}') | {
            "seconds": round(time.monotonic() - started, 1)
        }
    os.write(printed, json.dumps(outcomes).encode() + b"\n")


if __name__ == "__main__":
    main()
