"""Real child processes: what they report, how they end, and that nothing of them stays."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.workers.test_arms import run, spec_of
from workers.child import ArmError, run_child
from workers.environment import child_environment, engine_threads
from workers.probe.arms import ArmSpec


def messages_of(spec: ArmSpec) -> list[dict[str, Any]]:
    async def collect() -> list[dict[str, Any]]:
        return [message async for message in run_child(spec, "cpu")]

    return asyncio.run(collect())


def sleeping(**options: Any) -> ArmSpec:
    """An arm that takes minutes."""
    target = {"model": "a-model", "engine_args": {"sleep": True, "decode_ms": 200, **options}}
    return spec_of("baseline", target=target)


def children() -> set[int]:
    """Processes that run an arm right now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if entry.read_bytes().endswith(b"-m\0workers.probe\0"):
                found.add(int(entry.parent.name))
    return found


def wait_until(condition: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_child_reports_what_the_same_arm_measures_in_this_process() -> None:
    spec = spec_of("drafter:ngram")
    told = messages_of(spec)
    expected = [json.loads(json.dumps({"kind": kind, **fields})) for kind, fields in run(spec)]
    assert (told[0]["kind"], told[-1]["kind"]) == ("loaded", "finished")
    assert told[1:-1] == expected


def test_the_engines_own_reason_is_the_error() -> None:
    spec = spec_of("baseline", target={"model": "a-model", "engine_args": {"speed": 3}})
    with pytest.raises(ArmError, match="the simulated engine has no option 'speed'"):
        messages_of(spec)


def test_a_child_that_is_killed_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        before = children()
        async for message in run_child(sleeping(), "cpu"):
            if message["kind"] == "loaded":
                (pid,) = children() - before
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(ArmError, match=r"was killed by SIGKILL \(often the system's answer to too little memory\)"):
        asyncio.run(scenario())


def test_a_child_that_crashes_is_an_error_with_its_last_words() -> None:
    spec = spec_of("baseline", workload={"context_lengths": None, "output_tokens": 8, "temperature": "warm"})
    spec.prompts.clear()
    with pytest.raises(ArmError, match=r"ended with exit code 1; its last words: .*Error"):
        messages_of(spec)


def test_leaving_early_kills_the_child() -> None:
    async def scenario() -> None:
        async with aclosing(run_child(sleeping(), "cpu")) as messages:
            async for message in messages:
                assert message["kind"] == "loaded"
                assert children() - before
                break

    before = children()
    asyncio.run(scenario())
    assert not children() - before


def test_cancelling_frees_the_accelerator_within_two_seconds() -> None:
    async def scenario() -> float:
        async def consume() -> None:
            async for _ in run_child(sleeping(), "cpu"):
                loaded.set()

        loaded = asyncio.Event()
        task = asyncio.create_task(consume())
        await asyncio.wait_for(loaded.wait(), 20)
        started = time.monotonic()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    before = children()
    assert asyncio.run(scenario()) < 2
    assert not children() - before


def test_a_child_dies_with_a_worker_that_is_killed() -> None:
    program = (
        "import asyncio, json, sys\n"
        "from workers.child import run_child\n"
        "from workers.probe.arms import ArmSpec\n"
        "async def main():\n"
        "    async for message in run_child(ArmSpec.from_json(json.loads(sys.argv[1])), 'cpu'):\n"
        "        print(message['kind'], flush=True)\n"
        "asyncio.run(main())\n"
    )
    before = children()
    with subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(asdict(sleeping()))], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "loaded\n"
        assert len(children() - before) == 1
        parent.kill()
        parent.wait()
        wait_until(lambda: not children() - before, seconds=2)


def test_a_cpu_child_leaves_a_core_to_the_front_end_and_keeps_what_the_user_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("OMP_NUM_THREADS", "LD_PRELOAD"):
        monkeypatch.delenv(variable, raising=False)
    environment: Mapping[str, str] = child_environment("cpu")
    assert environment["OMP_NUM_THREADS"] == str(engine_threads())
    assert environment["LD_PRELOAD"].endswith("libiomp5.so")
    assert "OMP_NUM_THREADS" not in child_environment("1xH100-SXM")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert child_environment("cpu")["OMP_NUM_THREADS"] == "7"
