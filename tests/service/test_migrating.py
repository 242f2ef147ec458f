"""`breakeven serve` on a database that it has to bring up to date, and on one that it cannot."""

import pytest
from sqlalchemy import Engine, text

from service.client import Client
from service.database import open_engine, schema_is_current
from service.home import read_record
from service.settings import Settings
from tests.service.served import breakeven, finished, run, until

SERVE = ("serve", "--no-worker", "--port", "0")


def test_a_service_migrates_an_empty_database_and_serves_on_it(empty_settings: Settings) -> None:
    process = breakeven(*SERVE, settings=empty_settings)
    try:
        record = until(lambda: read_record(empty_settings.home) or process.poll())
        assert not isinstance(record, int), finished(process)
        with Client(record.url) as client:
            assert client.is_ready()
    finally:
        process.terminate()
        code, _, err = finished(process)
    assert code == 0, err
    engine = open_engine(empty_settings)
    assert schema_is_current(engine)
    engine.dispose()


def test_a_database_of_a_newer_release_is_refused_in_one_line(settings: Settings, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    code, _, err = run(*SERVE, settings=settings)
    assert code == 5
    assert err.startswith("breakeven: ")
    assert "'9999'" in err
    assert "a newer release has used it" in err
    assert err.count("\n") == 1


@pytest.mark.sqlite_only
def test_a_database_that_cannot_be_reached_is_told_in_one_line(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"database_url": "postgresql://user:secret@127.0.0.1:1/name"})
    code, _, err = run(*SERVE, settings=nowhere)
    assert code == 5
    assert err.startswith("breakeven: the database cannot be brought up to date, check BREAKEVEN_DATABASE_URL")
    assert "127.0.0.1" in err
    assert "secret" not in err
    assert err.count("\n") == 1
