"""Whom the kernel kills first when memory runs out."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from tests.workers.probing import running_arms
from tests.workers.test_child import sleeping
from workers.child import EngineProcess


def test_an_arms_process_is_killed_before_its_worker() -> None:
    async def scores() -> list[str]:
        before = running_arms()
        async with aclosing(EngineProcess("cpu")) as engines, aclosing(engines.run(sleeping())) as messages:
            async for _ in messages:
                return [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in running_arms() - before]
        return []

    assert asyncio.run(scores()) == ["1000\n"]
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 1000
