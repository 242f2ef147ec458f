"""Databases for tests, built by the migrations, as a user's is."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.database import migrate, open_engine
from service.settings import Settings

# A shell that starts tests in the background has them ignore Ctrl-C, and so would every command that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file at this release's schema. Copied, never opened: migrating once is enough."""
    file = tmp_path_factory.mktemp("migrated") / "breakeven.sqlite"
    migrate(Settings(home=file.parent, database_url=f"sqlite:///{file}"))
    return file


@pytest.fixture(autouse=True)
def _no_database_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never touch the database that the environment names."""
    for variable in ("BREAKEVEN_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def settings(tmp_path: Path, migrated_file: Path) -> Settings:
    """Settings of a home of its own, with a migrated and empty database in it."""
    shutil.copy(migrated_file, tmp_path / "breakeven.sqlite")
    return Settings(home=tmp_path, event_poll_seconds=0.02)


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """The database itself, beside whatever serves it."""
    engine = open_engine(settings)
    yield engine
    engine.dispose()
