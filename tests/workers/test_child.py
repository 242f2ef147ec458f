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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from service.demo import DEMO_MODEL
from tests.workers.probing import engine_processes, running_arms, wait_until
from tests.workers.test_arms import run, spec_of
from workers.child import ArmError, EngineProcess
from workers.environment import child_environment, engine_threads
from workers.probe.spec import ArmSpec


def messages_of(*specs: ArmSpec) -> list[dict[str, Any]]:
    """What the arms' children report, one arm after the other."""

    async def collect() -> list[dict[str, Any]]:
        async with aclosing(EngineProcess("cpu")) as engines:
            return [message for spec in specs async for message in engines.run(spec)]

    return asyncio.run(collect())


def without_clocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, but for when they were written and how long the warm-up took."""
    return [
        {name: value for name, value in message.items() if name != "at"}
        for message in messages
        if message["kind"] != "warmed_up"
    ]


def imports_torch(process: int) -> bool:
    """Whether the import of a real engine has got as far as torch's libraries in this process."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


def sleeping(**options: Any) -> ArmSpec:
    """An arm that takes minutes."""
    target = {"model": "a-model", "engine_args": {"sleep": True, "decode_ms": 200, **options}}
    return spec_of("baseline", target=target)


def test_a_child_reports_what_the_same_arm_measures_in_this_process() -> None:
    spec = spec_of("drafter:ngram")
    told = messages_of(spec)
    expected = [json.loads(json.dumps({"kind": kind, **fields})) for kind, fields in run(spec)]
    assert (told[0]["kind"], told[-1]["kind"]) == ("loaded", "finished")
    assert without_clocks(told[1:-1]) == without_clocks(expected)


def test_the_engines_own_reason_is_the_error() -> None:
    spec = spec_of("baseline", target={"model": "a-model", "engine_args": {"speed": 3}})
    with pytest.raises(ArmError, match="the simulated engine has no option 'speed'"):
        messages_of(spec)


def test_what_can_be_seen_without_the_engine_is_refused_before_its_import_and_the_next_arm_goes_on() -> None:
    missing = replace(spec_of("baseline", target={"model": "/nowhere/model", "engine_args": {}}), engine="vllm")

    async def scenario() -> list[str]:
        async with aclosing(EngineProcess("cpu")) as engines:
            with pytest.raises(ArmError, match="'/nowhere/model' is not on this worker"):
                async for _ in engines.run(missing):
                    pass
            (process,) = engine_processes()
            assert not imports_torch(process)
            return [message["kind"] async for message in engines.run(spec_of("baseline"))]

    assert asyncio.run(scenario())[-1] == "finished"


def test_a_mistake_in_a_later_arm_is_told_before_anything_is_measured() -> None:
    drafters = [{"name": "head", "method": "eagle3", "model": "/nowhere/head", "options": {}}]
    target = {"model": DEMO_MODEL, "engine_args": {}}
    baseline = replace(spec_of("baseline", target=target, drafters=drafters), engine="vllm")
    with pytest.raises(ArmError, match="the draft model of 'eagle3' '/nowhere/head' is not on this worker"):
        messages_of(baseline)


def test_a_child_that_is_killed_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        async with aclosing(EngineProcess("cpu")) as engines:
            async for message in engines.run(sleeping()):
                if message["kind"] == "loaded":
                    os.kill(running_arms().pop(), signal.SIGKILL)

    with pytest.raises(ArmError, match=r"was killed by SIGKILL \(often the system's answer to too little memory\)"):
        asyncio.run(scenario())


def test_a_child_that_crashes_is_an_error_with_its_last_words() -> None:
    spec = spec_of("baseline", workload={"context_lengths": None, "output_tokens": 8, "temperature": "warm"})
    spec.prompts.clear()
    with pytest.raises(ArmError, match=r"ended with exit code 1; its last words: .*Error"):
        messages_of(spec)


def test_leaving_early_kills_the_child_and_the_next_arm_has_one_of_its_own() -> None:
    async def scenario() -> list[str]:
        async with aclosing(EngineProcess("cpu")) as engines:
            async with aclosing(engines.run(sleeping())) as messages:
                async for message in messages:
                    assert message["kind"] == "loaded"
                    assert len(engine_processes()) == 2
                    break
            assert len(engine_processes()) == 1
            return [message["kind"] async for message in engines.run(spec_of("baseline"))]

    assert asyncio.run(scenario())[-1] == "finished"
    assert not engine_processes()


def test_an_arm_that_shares_nothing_has_the_process_to_itself() -> None:
    async def scenario() -> set[int]:
        async with aclosing(EngineProcess("cpu")) as engines:
            async for _ in engines.run(spec_of("baseline")):
                pass
            shared = engine_processes()
            async for message in engines.run(replace(spec_of("baseline"), apart=True)):
                if message["kind"] == "loaded":
                    assert len(engine_processes()) == 1
                    assert not shared & engine_processes()
            return engine_processes()

    assert asyncio.run(scenario()) == set()


def test_cancelling_frees_the_accelerator_within_two_seconds() -> None:
    async def scenario() -> float:
        async def consume() -> None:
            async for _ in engines.run(sleeping()):
                loaded.set()

        loaded = asyncio.Event()
        async with aclosing(EngineProcess("cpu")) as engines:
            task = asyncio.create_task(consume())
            await asyncio.wait_for(loaded.wait(), 20)
            started = time.monotonic()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert len(engine_processes()) == 1
            return time.monotonic() - started

    assert asyncio.run(scenario()) < 2
    assert not engine_processes()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_child_dies_with_a_worker_that_is_killed(stopped: bool) -> None:
    program = (
        "import asyncio, json, sys\n"
        "from workers.child import EngineProcess\n"
        "from workers.probe.spec import ArmSpec\n"
        "async def main():\n"
        "    async for message in EngineProcess('cpu').run(ArmSpec.from_json(json.loads(sys.argv[1]))):\n"
        "        print(message['kind'], flush=True)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(asdict(sleeping()))], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "loaded\n"
        assert len(engine_processes()) == 2
        if stopped:
            os.kill(running_arms().pop(), signal.SIGSTOP)
        parent.kill()
        parent.wait()
        wait_until(lambda: not engine_processes(), seconds=2)


@pytest.mark.engine
def test_no_process_stays_if_the_worker_is_killed_while_the_engine_is_imported() -> None:
    program = (
        "import asyncio, json, sys\n"
        "from workers.child import EngineProcess\n"
        "from workers.probe.spec import ArmSpec\n"
        "async def main():\n"
        "    async for message in EngineProcess('cpu').run(ArmSpec.from_json(json.loads(sys.argv[1]))):\n"
        "        pass\n"
        "asyncio.run(main())\n"
    )
    spec_of_demo = spec_of("baseline", target={"model": DEMO_MODEL, "engine_args": {}})
    spec = json.dumps(asdict(replace(spec_of_demo, engine="vllm")))
    with subprocess.Popen([sys.executable, "-c", program, spec]) as parent:
        wait_until(lambda: any(map(imports_torch, engine_processes())), seconds=30)
        assert not running_arms()
        parent.kill()
        parent.wait()
        wait_until(lambda: not engine_processes(), seconds=2)


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
