"""The schema that the migrations build is the one that the models describe."""

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine, inspect, text
from sqlmodel import SQLModel

from service.database import migrate, migration_config, open_engine, schema_is_current, transaction
from service.models import Probe, PromptSet
from service.settings import Settings


def test_migrations_build_what_the_models_describe(engine: Engine) -> None:
    with engine.connect() as connection:
        command.check(migration_config(connection))  # Raises where a migration is missing.


def test_migrations_run_up_down_and_up_again(engine: Engine, settings: Settings) -> None:
    with engine.connect() as connection:
        command.downgrade(migration_config(connection), "base")
        connection.commit()
    assert not SQLModel.metadata.tables.keys() & set(inspect(engine).get_table_names())
    assert not schema_is_current(engine)
    migrate(settings)
    assert set(inspect(engine).get_table_names()) >= SQLModel.metadata.tables.keys()
    assert schema_is_current(engine)


def test_migrating_again_changes_nothing(engine: Engine, settings: Settings) -> None:
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[]))
    migrate(settings)
    with transaction(engine) as session:
        assert session.get_one(PromptSet, "0").name == "inline"


def test_a_file_that_was_never_migrated_is_not_current(tmp_path: Path) -> None:
    engine = open_engine(Settings(home=tmp_path / "new"))
    assert not schema_is_current(engine)
    engine.dispose()


def test_a_schema_without_the_queue_is_not_current(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE workflow_status"))
    assert not schema_is_current(engine)


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    engine = open_engine(settings)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE worker (id INTEGER)"))  # In the way of the migration's last table.
    with pytest.raises(Exception, match="worker"):
        migrate(settings)
    assert "probe" not in inspect(engine).get_table_names()
    engine.dispose()


def test_sqlite_is_in_wal_mode_before_the_first_use_and_enforces_foreign_keys(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_no_table_of_ours_takes_a_name_of_the_queue(engine: Engine) -> None:
    everything = set(inspect(engine).get_table_names())
    queue = everything - SQLModel.metadata.tables.keys() - {"alembic_version"}
    assert {"workflow_status", "operation_outputs", "queues", "streams", "notifications"} <= queue


def test_what_a_worker_has_not_resolved_is_null_and_not_a_json_null(engine: Engine) -> None:
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[]))
        session.flush()
        session.add(Probe(id="p", fingerprint="f", model="m", hardware="cpu", request={}, prompts_sha256="0"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM probe WHERE resolved IS NULL")).scalar() == 1
