"""Connections, transactions and the schema. Knows both databases' habits, and nothing of what the tables mean.

A transaction is opened and committed here, at the edge of a request or of a worker's step, and nowhere else.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from dbos import DBOS
from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, make_url, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

from service.settings import Settings

LOST_FILE = "SQLITE_LOST"
"""What SQLite has no code for: the file that it has open is no longer the one at its path."""
CONNECT_TIMEOUT_SECONDS = 10
POOL_SIZE = 20
"""Connections to PostgreSQL that are kept. Twice as many at most: what the service's 40 threads can use at once."""


def engine_url(database_url: str) -> URL:
    """The address with the driver that is installed: PostgreSQL is spoken through psycopg."""
    url = make_url(database_url)
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgres", "postgresql") else url


def open_engine(settings: Settings) -> Engine:
    """A pool of connections to the database of these settings; a SQLite file's folder is created."""
    url = engine_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        # libpq would wait for minutes for a host that does not answer.
        patience = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
        engine = create_engine(
            url, pool_pre_ping=True, pool_size=POOL_SIZE, max_overflow=POOL_SIZE, connect_args=patience
        )
        event.listen(engine, "connect", partial(_prepare_postgresql, settings))
        return engine
    assert url.database  # The settings refuse an address without one.
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url)
    event.listen(engine, "connect", partial(_prepare_sqlite, settings.busy_timeout_seconds))
    file = _SameFile(Path(url.database))
    event.listen(engine, "do_connect", file.check_again)
    event.listen(engine, "checkout", file.check)
    return engine


class _SameFile:
    """A SQLite file that must stay the one it was at first.

    A program that has a file open goes on with it when its folder is deleted or restored from a backup: what it wrote
    then would be read by nobody.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, int] | None = None

    def check_again(self, *_connecting: object) -> None:
        """`check`, before a new connection; the very first one makes the file."""
        if self._first:
            self.check()

    def check(self, *_connection: object) -> None:
        """Raise what SQLite raises for a file that it cannot open, unless the path still leads to the same file."""
        try:
            found = self._path.stat()
            same = (found.st_dev, found.st_ino)
        except OSError:
            same = None
        self._first = self._first or same
        if same is None or same != self._first:
            error = sqlite3.OperationalError(f"{self._path} was deleted or replaced while it was in use")
            error.sqlite_errorname = LOST_FILE
            raise error


def _prepare_sqlite(busy_timeout_seconds: float, connection: Any, _record: object) -> None:
    """Readers beside one writer, and a writer that waits for its turn before it has read anything.

    IMMEDIATE takes the write lock with a transaction's first write; the default would take a read lock first,
    and two such transactions that both want to write cannot wait for each other.
    """
    connection.isolation_level = "IMMEDIATE"
    connection.execute(f"PRAGMA busy_timeout={round(1000 * busy_timeout_seconds)}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _prepare_postgresql(settings: Settings, connection: Any, _record: object) -> None:
    """A write that does not wait for ever, and locks that a process which froze in a transaction does not keep.

    Such a worker has lost its locks by the time that others take its job.
    """
    connection.execute(f"SET lock_timeout = {round(1000 * settings.busy_timeout_seconds)}")
    connection.execute(f"SET idle_in_transaction_session_timeout = {round(1000 * settings.fence_seconds)}")
    connection.commit()


@contextmanager
def transaction(engine: Engine) -> Iterator[Session]:
    """A session whose work is committed at the end of the block, or not at all. Rows stay readable after it."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


def database_time(session: Session) -> datetime:
    """The time of day by the database's clock, the one that all hosts share; a SQLite file has its host's."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    time: datetime = session.connection().execute(select(func.clock_timestamp())).scalar_one()
    return time


def insert_if_absent(session: Session, row: SQLModel) -> bool:
    """Insert the row unless a unique index already holds its like; whether it was inserted.

    Atomic on both databases: of two at once one waits for the other's commit, then gives way to it.
    """
    backend = session.get_bind().dialect.name
    insert = postgresql.insert if backend == "postgresql" else sqlite.insert
    statement = insert(type(row)).values(**row.model_dump()).on_conflict_do_nothing()
    # Asked for what it inserted: not every driver counts the rows of such a statement.
    inserted = session.connection().execute(statement.returning(*inspect(type(row)).primary_key))
    return inserted.first() is not None


def migration_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, made here so that an installed program needs no alembic.ini beside it."""
    spec = find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package 'migrations' is not installed beside 'service': reinstall breakeven")
    config = Config()
    config.set_main_option("script_location", str(next(iter(spec.submodule_search_locations))).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrate(settings: Settings) -> None:
    """Bring the database up to this release: our tables first, then those of the queue. Safe to repeat."""
    engine = open_engine(settings)
    try:
        with engine.connect() as connection:
            command.upgrade(migration_config(connection), "head")
            connection.commit()
        DBOS.migrate(settings.database_url)
    finally:
        engine.dispose()


def schema_is_current(engine: Engine) -> bool:
    """Whether the database is at exactly this release's schema, and the queue has its tables."""
    heads = set(ScriptDirectory.from_config(migration_config()).get_heads())
    with engine.connect() as connection:
        tables = inspect(connection)
        if not tables.has_table("alembic_version"):
            return False
        if set(connection.execute(text("SELECT version_num FROM alembic_version")).scalars()) != heads:
            return False
        return tables.has_table("workflow_status", schema=None if engine.dialect.name == "sqlite" else "dbos")
