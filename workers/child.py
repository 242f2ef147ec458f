"""An arm's child process: started in a session of its own, read line by line, killed with all that it started.

The child holds the accelerator. Its stdin is a pipe that only this process holds open: when this process dies in any
way, the child reads end of file and kills its own process group.
"""

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from workers.environment import child_environment
from workers.probe.arms import ArmSpec

LINE_BYTES = 64 * 1024 * 1024
STDERR_LINES_KEPT = 40


class ArmError(Exception):
    """An arm could not be measured; the message is the engine's own reason, and what to do."""


async def run_child(spec: ArmSpec, hardware: str) -> AsyncGenerator[dict[str, Any], None]:
    """The messages of an arm's child on this machine, ending with its `finished`.

    Raises ArmError if the engine refuses or the child dies. Leaving the iteration early kills the child.
    """
    async with _child(spec, child_environment(hardware)) as (process, stderr):
        assert process.stdout is not None
        async for line in process.stdout:
            message = json.loads(line)
            if message["kind"] == "failed":
                raise ArmError(message["error"])
            yield message
            if message["kind"] == "finished":
                return
        code = await process.wait()
        raise ArmError(_epitaph(code, stderr))


@asynccontextmanager
async def _child(
    spec: ArmSpec, environment: Mapping[str, str]
) -> AsyncIterator[tuple[asyncio.subprocess.Process, deque[str]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workers.probe",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
        limit=LINE_BYTES,
    )
    stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
    reader = asyncio.create_task(_keep_stderr(process, stderr))
    try:
        assert process.stdin is not None
        with suppress(ConnectionError):  # A child that died at once is reported by its exit code.
            process.stdin.write(json.dumps(asdict(spec)).encode() + b"\n")
            await process.stdin.drain()
        yield process, stderr
    finally:
        # The group outlives its leader where an engine has processes of its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await reader


async def _keep_stderr(process: asyncio.subprocess.Process, lines: deque[str]) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        text = line.decode(errors="replace").rstrip()
        lines.append(text)
        sys.stderr.write(text + "\n")


def _epitaph(code: int, stderr: deque[str]) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = " (often the system's answer to too little memory)" if code == -signal.SIGKILL else ""
    last = next((line for line in reversed(stderr) if line.strip()), "")
    return f"the engine's process {how}{hint}" + (f"; its last words: {last[-300:]}" if last else "")
