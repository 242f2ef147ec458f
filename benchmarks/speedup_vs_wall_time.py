"""Whether the speed-up that the demo reports is the one that whole requests see, at batch size 1.

Runs the demo's probe through the service, takes the best drafter and K at batch size 1, then times whole requests
apart from it: `LLM.generate`, one prompt after the other, in launches as a user would make them, without speculation
and with exactly that drafter and K, in turn. Promised: wall time without over wall time with lies in the interval.

    python benchmarks/speedup_vs_wall_time.py [--advice FILE] [--launches 2] [--rounds 3]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from service.demo import DEMO_REQUEST
from service.prompt_sets import built_in
from workers.environment import child_environment
from workers.probe.shipped import resolve_model


def time_requests(drafter: dict[str, Any] | None, draft_tokens: int, rounds: int) -> dict[str, float]:
    """Seconds of one round over all prompts of the demo, whole and to the first token, in this process's engine."""
    import vllm

    target, workload = DEMO_REQUEST["target"], DEMO_REQUEST["workload"]
    speculative = None
    if drafter is not None:
        speculative = {
            "method": drafter["method"],
            **drafter.get("options", {}),
            "num_speculative_tokens": draft_tokens,
        }
        if drafter.get("model"):
            speculative["model"] = resolve_model(drafter["model"])
    llm = vllm.LLM(
        resolve_model(target["model"]), dtype=target["dtype"], enforce_eager=True, speculative_config=speculative
    )
    prompts = [prompt["prompt"] for prompt in built_in(workload["prompts"]).prompts]

    def seconds(max_tokens: int) -> float:
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens)
        started = time.perf_counter()
        for prompt in prompts:
            llm.generate(prompt, sampling, use_tqdm=False)
        return time.perf_counter() - started

    seconds(workload["output_tokens"])  # every shape warmed up
    whole = [seconds(workload["output_tokens"]) for _ in range(rounds)]
    first = [seconds(1) for _ in range(rounds)]
    return {"whole": statistics.median(whole), "first_token": statistics.median(first)}


def in_own_process(drafter: dict[str, Any] | None, draft_tokens: int, rounds: int) -> dict[str, float]:
    """`time_requests` in a process of its own, in the environment that a worker gives its engines."""
    what = json.dumps({"drafter": drafter, "draft_tokens": draft_tokens, "rounds": rounds})
    environment = child_environment("cpu") | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    output = subprocess.run(
        [sys.executable, __file__, "--child", what], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    seconds: dict[str, float] = json.loads(output.splitlines()[-1])
    return seconds


def demo_advice() -> dict[str, Any]:
    """The advice of a demo run now."""
    output = subprocess.run(
        [Path(sys.executable).with_name("breakeven"), "demo", "--json"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    document: dict[str, Any] = json.loads(output)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advice", type=Path, help="an advice document of the demo, instead of running it")
    parser.add_argument("--launches", type=int, default=2, help="engine launches of each kind, in turn")
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all prompts in a launch")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(time_requests(**json.loads(arguments.child))))
        return

    advice = json.loads(arguments.advice.read_text()) if arguments.advice else demo_advice()
    (row,) = (row for row in advice["batch_sizes"] if row["batch_size"] == 1)
    chosen = row["candidates"][0]
    drafter = next(d for d in DEMO_REQUEST["drafters"] if d["method"] == chosen["drafter"])
    without, with_ = [], []
    for _ in range(arguments.launches):
        without.append(in_own_process(None, 0, arguments.rounds))
        with_.append(in_own_process(drafter, chosen["draft_tokens"], arguments.rounds))

    def mean(runs: list[dict[str, float]], what: str) -> float:
        return statistics.mean(run[what] for run in runs)

    whole = mean(without, "whole") / mean(with_, "whole")
    decoding = (mean(without, "whole") - mean(without, "first_token")) / (
        mean(with_, "whole") - mean(with_, "first_token")
    )
    inside = chosen["speedup_low"] is not None and chosen["speedup_low"] <= whole <= chosen["speedup_high"]
    print(
        json.dumps(
            {
                "drafter": chosen["drafter"],
                "draft_tokens": chosen["draft_tokens"],
                "verdict": row["verdict"],
                "reported_speedup": chosen["speedup"],
                "reported_interval": [chosen["speedup_low"], chosen["speedup_high"]],
                "wall_time_speedup": round(whole, 4),
                "wall_time_speedup_after_the_first_token": round(decoding, 4),
                "seconds_without": [round(run["whole"], 3) for run in without],
                "seconds_with": [round(run["whole"], 3) for run in with_],
                "inside_the_interval": inside,
            }
        )
    )
    sys.exit(0 if inside else 1)


if __name__ == "__main__":
    main()
