"""The first seconds of the worker that a service keeps: who asks for a probe meanwhile waits for it."""

import socket
import time

from sqlalchemy import Engine

from service.database import transaction
from service.hardware import live_workers
from service.worker_process import WorkerProcess

PATIENCE_SECONDS = 30.0
"""A worker imports for some seconds, more on a busy machine."""
POLL_SECONDS = 0.2


def trouble_of_start(
    worker: WorkerProcess, engine: Engine, live_seconds: float, patience_seconds: float = PATIENCE_SECONDS
) -> str | None:
    """Wait until this worker is heard of; what kept it from that, or None.

    A worker is heard of by its row, looked for in transactions that are over at once.
    """
    pid = None
    deadline = time.monotonic() + patience_seconds
    while not _is_heard_of(worker, engine, live_seconds):
        pid = pid or worker.pid
        if worker.exit_code is not None or worker.pid != pid:
            code = "" if worker.exit_code is None else f" with exit code {worker.exit_code}"
            return f"this service's own worker ended{code} and is started again, {worker.log} says why"
        if time.monotonic() > deadline:
            return f"this service's own worker has not come up in {patience_seconds:g} s, {worker.log} may say why"
        time.sleep(POLL_SECONDS)
    return None


def _is_heard_of(worker: WorkerProcess, engine: Engine, live_seconds: float) -> bool:
    here = (socket.gethostname(), worker.pid)
    with transaction(engine) as session:
        return any((row.host, row.pid) == here for row in live_workers(session, live_seconds))
