"""The processes that run engines: started in sessions of their own, read line by line, killed with all they started.

One process imports the engine and forks a child for each arm (`workers.probe.__main__`). Its stdin is a pipe that only
this process holds open: when this process dies in any way, they all read end of file and kill their process groups.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from workers.environment import child_environment
from workers.probe.spec import ArmSpec

LINE_BYTES = 64 * 1024 * 1024
STDERR_LINES_KEPT = 40
GROUP_END_SECONDS = 5.0


class ArmError(Exception):
    """An arm could not be measured; the message is the engine's own reason, and what to do."""


class EngineProcess:
    """The process that imports the engine once and runs one arm after the other; started when it is first needed."""

    def __init__(self, hardware: str) -> None:
        self._environment = child_environment(hardware)
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._stderr_reader: asyncio.Task[None] | None = None

    async def run(self, spec: ArmSpec) -> AsyncGenerator[dict[str, Any], None]:
        """The messages of an arm on this machine, ending with its `finished`.

        Raises ArmError if the engine refuses or its process dies. Leaving the iteration early kills the arm's child,
        and returns when it is gone.
        """
        # One that died while it was idle has nothing to do with this arm.
        if spec.apart or (self._process and self._process.returncode is not None):
            await self.aclose()
        process = self._process or await self._start()
        self._stderr.clear()
        child: int | None = None
        idle = False
        try:
            await self._send(process, spec)
            while message := await self._next_message(process):
                match message["kind"]:
                    case "child":
                        child = message["pid"]
                    case "failed":
                        # Without a child it was refused before there was one.
                        idle = child is None
                        raise ArmError(message["error"])
                    case "exited":
                        idle = True
                        raise ArmError(_epitaph(message["code"], self._stderr))
                    case "finished":
                        yield message
                        return
                    case _:
                        yield message
            raise ArmError(_epitaph(await process.wait(), self._stderr))
        finally:
            await self._end_arm(process, child, idle=idle)

    async def aclose(self) -> None:
        """Kill the process and what it runs, and wait until all of it is gone."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        assert self._stderr_reader is not None
        await self._stderr_reader

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "workers.probe",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
            limit=LINE_BYTES,
        )
        self._process = process
        self._stderr_reader = asyncio.create_task(_keep_stderr(process, self._stderr))
        return process

    @staticmethod
    async def _send(process: asyncio.subprocess.Process, spec: ArmSpec) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # A process that died at once is reported by its exit code.
            process.stdin.write(json.dumps(asdict(spec)).encode() + b"\n")
            await process.stdin.drain()

    @staticmethod
    async def _next_message(process: asyncio.subprocess.Process) -> dict[str, Any] | None:
        """The next message; None once every process that could send one is gone."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            # What a killed child had begun to write is no message.
            with suppress(json.JSONDecodeError):
                message: dict[str, Any] = json.loads(line)
                return message
        return None

    async def _end_arm(self, process: asyncio.subprocess.Process, child: int | None, *, idle: bool) -> None:
        """Kill what is left of an arm; with `idle` the process that forked it has told of its child's end already."""
        try:
            if child is not None:
                await _kill_group(child)
            if idle:
                return
            if child not in (None, process.pid):
                while message := await self._next_message(process):
                    if message["kind"] == "exited":
                        return
            await self.aclose()
        except BaseException:
            # Interrupted: what it did not wait for would be taken for the next arm's.
            await self.aclose()
            raise


async def _kill_group(leader: int) -> None:
    """Kill a process group and wait until it is gone: engines have processes of their own, which outlive the leader.

    Those that nobody reaps, as in a container without an init, count as gone after a while.
    """
    deadline = time.monotonic() + GROUP_END_SECONDS
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
        while time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            os.killpg(leader, 0)


async def _keep_stderr(process: asyncio.subprocess.Process, lines: deque[str]) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        text = line.decode(errors="replace").rstrip()
        lines.append(text)
        with suppress(OSError):  # A log on a full disk must not keep the engine from its pipe.
            sys.stderr.write(text + "\n")


def _epitaph(code: int, stderr: deque[str]) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = " (often the system's answer to too little memory)" if code == -signal.SIGKILL else ""
    last = next((line for line in reversed(stderr) if line.strip()), "")
    return f"the engine's process {how}{hint}" + (f"; its last words: {last[-300:]}" if last else "")
