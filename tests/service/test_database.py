"""Addresses, transactions, and inserting what may be there already."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, func, select

from service.database import database_time, engine_url, insert_if_absent, open_engine, transaction
from service.models import Event, Probe, PromptSet
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


@pytest.mark.parametrize("first_commits", [True, False])
def test_of_two_that_insert_at_once_the_later_waits_for_the_earlier(engine: Engine, first_commits: bool) -> None:
    inserted, go_on = threading.Event(), threading.Event()

    def insert_slowly() -> None:
        with Session(engine) as session:
            assert insert_if_absent(session, PromptSet(sha256="0", name="first", prompts=[]))
            inserted.set()
            go_on.wait(20)
            if first_commits:
                session.commit()

    def insert_quickly() -> bool:
        with transaction(engine) as session:
            return insert_if_absent(session, PromptSet(sha256="0", name="second", prompts=[]))

    with ThreadPoolExecutor() as pool:
        first = pool.submit(insert_slowly)
        assert inserted.wait(20)
        second = pool.submit(insert_quickly)
        assert wait([second], timeout=0.3).done == set()
        go_on.set()
        first.result(20)
        assert second.result(20) is not first_commits
    with transaction(engine) as session:
        assert session.get_one(PromptSet, "0").name == ("first" if first_commits else "second")


def test_times_come_back_in_utc_whatever_the_zone_of_the_server(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.execute(text(f"ALTER DATABASE {engine.url.database} SET timezone = 'Asia/Kathmandu'"))
        engine.dispose()  # For connections to come.
    noon = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=-8)))
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[], created_at=noon))
        session.add(PromptSet(sha256="1", name="inline", prompts=[]))
    with transaction(engine) as session:
        assert session.get_one(PromptSet, "0").created_at.isoformat() == "2026-07-01T20:00:00+00:00"
        assert abs(session.get_one(PromptSet, "1").created_at - database_time(session)) < timedelta(seconds=20)
        later = select(PromptSet.sha256).where(col(PromptSet.created_at) > noon)
        assert session.exec(later.where(PromptSet.sha256 == "0")).all() == []


def test_what_no_database_can_keep_of_an_error_is_replaced(engine: Engine) -> None:
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[]))
        session.flush()
        told = "a\0b\ud800c \U0001f600"
        session.add(Probe(id="p", fingerprint="f", model="m", hardware="h", request={}, prompts_sha256="0", error=told))
    with transaction(engine) as session:
        assert session.exec(select(Probe.error)).one() == "a\ufffdb\ufffdc \U0001f600"


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
