"""`breakeven serve`: one process that migrates, serves and keeps a worker alive, alone on its BREAKEVEN_HOME."""

import errno
import ipaddress
import os
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn
from alembic.util import CommandError as RevisionError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from service.app import create_app
from service.database import migrate
from service.database_trouble import told
from service.exit_codes import CommandError, ExitCode
from service.home import ServiceRecord, hold_home, watch_users, write_record
from service.settings import Settings
from service.worker_process import WorkerProcess

GRACEFUL_SECONDS = 3
USER_POLL_SECONDS = 1.0
WORKER_GRACE_SECONDS = 5.0
"""What a worker needs to end, beside the repeat that it finishes first."""


class AddressRefusedError(CommandError):
    """The service does not listen there."""

    exit_code = ExitCode.WRONG_USAGE


class DatabaseUnreachableError(CommandError):
    """The database cannot be reached, or not be migrated."""

    exit_code = ExitCode.UNREACHABLE


def serve(settings: Settings, host: str, port: int, *, worker: bool, while_used: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, or with `while_used` until no command uses this home. Port 0 takes a free one.

    Raises AddressRefusedError for an address that is taken or not of this host alone, HomeTakenError if a service runs
    for this home.
    """
    refuse_other_hosts(host)
    with hold_home(settings.home), listening_socket(host, port) as listener:
        _migrate(settings)
        record = ServiceRecord(url=_url(listener), pid=os.getpid(), worker=worker, while_used=while_used)
        grace_seconds = settings.stop_seconds + WORKER_GRACE_SECONDS
        own_worker = WorkerProcess(settings.home / "worker.log", grace_seconds=grace_seconds) if worker else None
        server = _Server(settings, record, own_worker)
        # Uvicorn raises the signal that stopped it once more when it is done: here it has done its work by then.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.stop)
        with ExitStack() as stack:
            if own_worker:
                stack.enter_context(own_worker)
            if while_used:
                stack.enter_context(_ending_unused(settings.home, server))
            server.run(sockets=[listener])


def _migrate(settings: Settings) -> None:
    try:
        migrate(settings)
    except RevisionError as error:
        raise DatabaseUnreachableError(
            f"the database is not one that this release can bring up to date ({error}): a newer release has used it, "
            "so start that one, or name another database with BREAKEVEN_DATABASE_URL"
        ) from error
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        cause = told(error, settings) or (error.orig if isinstance(error, DBAPIError) else error)
        raise DatabaseUnreachableError(
            "the database cannot be brought up to date, check BREAKEVEN_DATABASE_URL and BREAKEVEN_HOME: "
            + " ".join(str(cause).split())
        ) from error


def _url(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def refuse_other_hosts(host: str) -> None:
    """AddressRefusedError unless only this host can reach `host`."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise AddressRefusedError(
            f"--host {host} lets other machines in, and no API token exists to keep strangers out (this release has "
            "none yet): serve on 127.0.0.1 and let a proxy that asks for a password forward to it"
        )


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises AddressRefusedError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise AddressRefusedError(
                f"port {port} of {host} is taken by another program: stop that one, or choose another with --port, "
                "0 takes a free one"
            ) from None
        raise AddressRefusedError(
            f"cannot listen on {host} port {port}: {error}; choose another with --port, 0 takes a free one"
        ) from None


class _Server(uvicorn.Server):
    """Uvicorn, which leaves a record of where it listens as soon as it answers."""

    def __init__(self, settings: Settings, record: ServiceRecord, own_worker: WorkerProcess | None) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(settings, own_worker),
                log_level="warning",
                access_log=False,
                ws="none",
                timeout_graceful_shutdown=GRACEFUL_SECONDS,
            )
        )
        self._home, self._record = settings.home, record

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        write_record(self._home, self._record)
        with_worker = f"a worker (its log: {self._home / 'worker.log'})" if self._record.worker else "no worker"
        sys.stderr.write(f"Breakeven serves {self._home} at {self._record.url} with {with_worker}\n")

    def stop(self, *_: object) -> None:
        """End as after a signal."""
        self.should_exit = True


@contextmanager
def _ending_unused(home: Path, server: _Server) -> Iterator[None]:
    """Stop the server once no command uses this home; new ones wait until this process has ended."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(USER_POLL_SECONDS):
            if users.becomes_sole():
                server.stop()
                return

    with watch_users(home) as users:
        thread = threading.Thread(target=watch, name="users", daemon=True)
        thread.start()
        yield
        over.set()
        thread.join()
