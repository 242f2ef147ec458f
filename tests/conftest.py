"""Every test that asks for `settings` or `engine` runs on SQLite and on PostgreSQL.

One that is about SQLite, or about nothing that a database decides, is marked `sqlite_only`.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.database import open_engine
from service.settings import Settings
from tests.databases import PostgresqlServer, SqliteFile, postgresql_server

DATABASES = ("sqlite", "postgresql")

# A PostgreSQL server for the tests, instead of one that they start; databases are made on it and dropped.
ADDRESS = os.environ.get("DATABASE_URL", "")

# A shell that starts tests in the background has them ignore Ctrl-C, and so would every command that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test once on each database, if it uses one."""
    if "database" in metafunc.fixturenames:
        only_sqlite = metafunc.definition.get_closest_marker("sqlite_only")
        metafunc.parametrize("database", DATABASES[:1] if only_sqlite else DATABASES)


@pytest.fixture(autouse=True)
def _no_database_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never touch the database that the environment names."""
    for variable in ("BREAKEVEN_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> SqliteFile:
    """A SQLite file at this release's schema."""
    return SqliteFile(tmp_path_factory.mktemp("migrated"))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """The PostgreSQL server, which the first test that needs it starts."""
    with postgresql_server(ADDRESS if ADDRESS.startswith("postgres") else None) as server:
        yield server


@pytest.fixture
def settings(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a home of its own, with a migrated and empty database."""
    if database == "sqlite":
        request.getfixturevalue("sqlite_file").copy(tmp_path)
        yield Settings(home=tmp_path, event_poll_seconds=0.02)
    else:
        with request.getfixturevalue("postgresql").database() as address:
            yield Settings(home=tmp_path, database_url=address, event_poll_seconds=0.02)


@pytest.fixture
def empty_settings(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a database that nobody has migrated yet."""
    if database == "sqlite":
        yield Settings(home=tmp_path)
    else:
        with request.getfixturevalue("postgresql").database(migrated=False) as address:
            yield Settings(home=tmp_path, database_url=address)


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """The database itself, beside whatever serves it."""
    engine = open_engine(settings)
    yield engine
    engine.dispose()
