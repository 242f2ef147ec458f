"""Addresses, transactions, and inserting what may be there already."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, func, select

from service.database import engine_url, insert_if_absent, open_engine, transaction
from service.models import Event, PromptSet
from service.settings import Settings


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgresql://u:p@host/db", "postgresql+psycopg"),
        ("postgres://u:p@host/db", "postgresql+psycopg"),
        ("postgresql+psycopg://u:p@host/db", "postgresql+psycopg"),
        ("sqlite:///file", "sqlite"),
    ],
)
def test_postgresql_is_spoken_through_the_driver_that_is_installed(given: str, driver: str) -> None:
    url = engine_url(given)
    assert url.drivername == driver
    assert url.render_as_string(hide_password=False).split("://")[1] == given.split("://")[1]


def test_without_an_address_the_database_is_a_file_under_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path))
    assert Settings().database_url == f"sqlite:///{tmp_path}/breakeven.sqlite"
    monkeypatch.setenv("DATABASE_URL", "postgresql://host/shared")
    assert Settings().database_url == "postgresql://host/shared"
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", "postgresql://host/ours")
    assert Settings().database_url == "postgresql://host/ours"


def test_opening_makes_the_folder_of_the_file(tmp_path: Path) -> None:
    engine = open_engine(Settings(database_url=f"sqlite:///{tmp_path}/a/b/c.sqlite"))
    with engine.connect():
        assert (tmp_path / "a/b/c.sqlite").exists()
    engine.dispose()


def test_rows_stay_readable_after_their_transaction(engine: Engine) -> None:
    with transaction(engine) as session:
        session.add(prompts := PromptSet(sha256="0", name="inline", prompts=[]))
    assert prompts.name == "inline"


def test_a_row_that_is_there_is_left_as_it_is(engine: Engine) -> None:
    with transaction(engine) as session:
        assert insert_if_absent(session, PromptSet(sha256="0", name="first", prompts=[]))
        assert not insert_if_absent(session, PromptSet(sha256="0", name="second", prompts=[]))
    with transaction(engine) as session:
        assert session.get_one(PromptSet, "0").name == "first"


def test_rows_of_a_probe_that_does_not_exist_are_refused(engine: Engine) -> None:
    def add_stray_event() -> None:
        with transaction(engine) as session:
            session.add(Event(probe_id="none", kind="log", data={}))

    with pytest.raises(IntegrityError):
        add_stray_event()


def test_many_writers_that_read_first_wait_for_each_other(engine: Engine) -> None:
    def number_of_sets(session: Session) -> int:
        return session.exec(select(func.count()).select_from(PromptSet)).one()

    def write(writer: int) -> None:
        for turn in range(10):
            with transaction(engine) as session:
                number_of_sets(session)
                session.add(PromptSet(sha256=f"{writer}-{turn}", name="inline", prompts=[]))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with transaction(engine) as session:
        assert number_of_sets(session) == 60
