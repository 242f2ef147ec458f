"""The worker that `breakeven serve` keeps alive. Knows how it is started and stopped, and nothing of what it does."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_SECONDS = 60.0
"""A worker that lived this long is started again at once."""

logger = logging.getLogger("uvicorn.error")


def worker_command(hardware: str | None = None) -> list[str]:
    """What starts a worker process."""
    return [sys.executable, "-m", "workers", *(["--hardware", hardware] if hardware else [])]


def own_code_environment() -> dict[str, str]:
    """The environment, in which Python takes no folder named `service` or `workers` in the current one for ours."""
    return {**os.environ, "PYTHONSAFEPATH": "1"}


class WorkerProcess:
    """A worker process for the time of the block, started again whenever it dies; its output goes to `log`.

    This process holds the other end of its stdin, so it ends even when this one is killed. It is in a session of its
    own: a Ctrl-C in the terminal reaches it through here, in order.
    """

    def __init__(self, log: Path, command: list[str] | None = None, *, grace_seconds: float = 10.0) -> None:
        self.log = log
        self._command = [*worker_command(), "--exit-with-stdin"] if command is None else command
        self._grace_seconds = grace_seconds
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._keep_alive, name="worker-process", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """SIGTERM, a time of grace, SIGKILL."""
        with self._guard:
            self._stopping.set()
            if self._process:
                self._process.terminate()
        self._thread.join(self._grace_seconds)
        if self._thread.is_alive() and self._process:
            self._process.kill()
            self._thread.join()

    @property
    def pid(self) -> int | None:
        """Of the process that was started last; None before the first."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """Of that process, if it has ended; another is started in its place soon."""
        return self._process.returncode if self._process else None

    def _keep_alive(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            ending = self._run()
            if self._stopping.is_set():
                return
            failures = 1 if time.monotonic() - started > STEADY_SECONDS else failures + 1
            pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
            logger.warning("the worker %s: it is started again in %g s", ending, pause)
            self._stopping.wait(pause)

    def _run(self) -> str:
        """Run the worker once, to its end; how it ended."""
        try:
            process = self._start()
        except OSError as error:
            # A full disk, a folder that is away, too many processes: all of it may pass.
            return f"cannot be started ({error.strerror}: {error.filename or self._command[0]})"
        if process is None:
            return "is not to be started any more"
        code = process.wait()
        assert process.stdin is not None
        process.stdin.close()
        return f"ended with exit code {code}, see {self.log}"

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._guard, self.log.open("ab") as log:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=own_code_environment(),
            )
            return self._process
