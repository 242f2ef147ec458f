"""The schema that the migrations build is the one that the models describe, and data outlives their way up and down."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine, inspect, text
from sqlmodel import SQLModel

from service.database import migrate, migration_config, open_engine, schema_is_current, transaction
from service.models import Generation, Launch, Probe, PromptSet, Repeat
from service.settings import Settings
from tests.databases import queue_table
from tests.processes import environment_of

NOW = "'2026-12-01 00:00:00+00:00'"
# One row of each table that a later migration changes, as the first one had them.
FIRST_ROWS = f"""
INSERT INTO prompt_set (sha256, name, prompts, created_at) VALUES ('0', 'inline', '[]', {NOW});
INSERT INTO probe (id, fingerprint, status, model, hardware, request, prompts_sha256, created_at)
VALUES ('p', 'f', 'running', 'm', 'cpu', '{{}}', '0', {NOW});
INSERT INTO launch (id, probe_id, arm, import_seconds, load_seconds, engine, created_at)
VALUES (1, 'p', 'baseline', 1, 2, '{{"name": "vllm"}}', {NOW});
INSERT INTO repeat (probe_id, arm, context_length, batch_size, draft_tokens, repeat, seconds, steps, emitted_tokens,
  request_steps, drafted_steps, drafted_tokens, step_ms, step_drafted_tokens, step_pace_ms, accepted_per_position,
  created_at)
VALUES ('p', 'baseline', 0, 4, 0, 2, 0.5, 1, 4, 4, 0, 0, '[12.5]', '[0]', '[]', '[]', {NOW});
INSERT INTO generation (probe_id, arm, context_length, batch_size, draft_tokens, prompt, prompt_tokens, token_ids,
  finish_reason, emitted_tokens, request_steps, drafted_steps, drafted_tokens, accepted_per_position, created_at)
VALUES ('p', 'baseline', 0, 8, 0, 3, 30, '[5, 6]', 'stop', 2, 2, 0, 0, '[]', {NOW});
"""
MIGRATE_WHEN_TOLD = (
    "import sys; from service.database import migrate; from service.settings import settings\n"
    "print('ready', flush=True); sys.stdin.readline(); migrate(settings())"
)


@pytest.fixture
def empty(empty_settings: Settings) -> Iterator[Engine]:
    """A database that nobody has migrated yet."""
    engine = open_engine(empty_settings)
    yield engine
    engine.dispose()


def to_revision(engine: Engine, revision: str) -> None:
    """Bring our tables up or down to this revision."""
    with engine.connect() as connection:
        here = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or ""
        way = command.downgrade if revision == "base" or revision < here else command.upgrade
        way(migration_config(connection), revision)
        connection.commit()


def test_migrations_build_what_the_models_describe(engine: Engine) -> None:
    with engine.connect() as connection:
        command.check(migration_config(connection))  # Raises where a migration is missing.


def test_migrations_run_up_down_and_up_again(engine: Engine, settings: Settings) -> None:
    to_revision(engine, "base")
    assert not SQLModel.metadata.tables.keys() & set(inspect(engine).get_table_names())
    assert not schema_is_current(engine)
    migrate(settings)
    assert set(inspect(engine).get_table_names()) >= SQLModel.metadata.tables.keys()
    assert schema_is_current(engine)
    with engine.connect() as connection:
        command.check(migration_config(connection))


def test_every_step_of_the_way_down_can_be_gone_up_again(engine: Engine) -> None:
    to_revision(engine, "0001")
    assert not schema_is_current(engine)
    assert "launch_id" not in {column["name"] for column in inspect(engine).get_columns("repeat")}
    to_revision(engine, "head")
    assert schema_is_current(engine)


def test_rows_of_the_first_release_outlive_the_way_up_and_down(engine: Engine) -> None:
    to_revision(engine, "0001")
    with engine.begin() as connection:
        for statement in FIRST_ROWS.split(";\n")[:-1]:
            connection.exec_driver_sql(statement)
    to_revision(engine, "head")
    with transaction(engine) as session:
        assert session.get_one(Probe, "p").worker is None
        launch = session.get_one(Launch, 1)
        assert (launch.engine, launch.worker, launch.draft_tokens) == ({"name": "vllm"}, None, None)
        repeat = session.get_one(Repeat, ("p", "baseline", 0, 4, 0, 2))
        assert (repeat.step_ms, repeat.launch_id) == ([12.5], None)
        generation = session.get_one(Generation, ("p", "baseline", 0, 8, 0, 3))
        assert (generation.token_ids, generation.launch_id) == ([5, 6], None)
        repeat.launch_id = generation.launch_id = 1  # The references hold from here on.
    to_revision(engine, "0001")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT seconds, step_ms FROM repeat")).one()[0] == 0.5
        assert connection.execute(text("SELECT finish_reason FROM generation")).scalar() == "stop"
        assert connection.execute(text("SELECT arm FROM launch WHERE id = 1")).scalar() == "baseline"
        assert connection.execute(text("SELECT model FROM probe")).scalar() == "m"
    to_revision(engine, "head")
    with transaction(engine) as session:
        assert session.get_one(Repeat, ("p", "baseline", 0, 4, 0, 2)).launch_id is None


def test_migrating_again_changes_nothing(engine: Engine, settings: Settings) -> None:
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[]))
    migrate(settings)
    with transaction(engine) as session:
        assert session.get_one(PromptSet, "0").name == "inline"


def test_programs_that_migrate_at_the_same_moment_all_succeed(empty: Engine, empty_settings: Settings) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1])}
    with ExitStack() as stack:
        programs = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", MIGRATE_WHEN_TOLD],
                    env=environment | environment_of(empty_settings),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(3)
        ]
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()
        told = [program.communicate(timeout=60)[1] for program in programs]
        assert [program.returncode for program in programs] == [0] * 3, told
    assert schema_is_current(empty)


def test_a_database_that_was_never_migrated_is_not_current(empty: Engine) -> None:
    assert not schema_is_current(empty)


def test_a_schema_without_the_queue_is_not_current(engine: Engine) -> None:
    cascade = "" if engine.dialect.name == "sqlite" else " CASCADE"
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {queue_table(engine, 'workflow_status')}{cascade}"))
    assert not schema_is_current(engine)


def test_a_schema_of_a_newer_release_is_not_current(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert not schema_is_current(engine)


def test_a_migration_that_fails_leaves_nothing_behind(empty: Engine, empty_settings: Settings) -> None:
    with empty.begin() as connection:
        connection.execute(text("CREATE TABLE worker (id INTEGER)"))  # In the way of the first one's last table.
    with pytest.raises(Exception, match="worker"):
        migrate(empty_settings)
    assert inspect(empty).get_table_names() == ["worker"]


def test_a_migration_that_fails_leaves_the_release_before_it(engine: Engine, settings: Settings) -> None:
    to_revision(engine, "0001")
    with engine.begin() as connection:
        for statement in FIRST_ROWS.split(";\n")[:-1]:
            connection.exec_driver_sql(statement)
        connection.execute(text("DROP TABLE generation"))  # What the next one's last step needs.
    with pytest.raises(Exception, match="generation"):
        migrate(settings)
    assert "worker" not in {column["name"] for column in inspect(engine).get_columns("launch")}
    assert "launch_id" not in {column["name"] for column in inspect(engine).get_columns("repeat")}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"
        assert connection.execute(text("SELECT count(*) FROM repeat")).scalar() == 1


@pytest.mark.sqlite_only
def test_sqlite_is_in_wal_mode_before_the_first_use_and_enforces_foreign_keys(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_no_table_of_ours_takes_a_name_of_the_queue(engine: Engine) -> None:
    everything = set(inspect(engine).get_table_names())
    if engine.dialect.name == "postgresql":
        assert everything == SQLModel.metadata.tables.keys() | {"alembic_version"}
        everything = set(inspect(engine).get_table_names(schema="dbos"))
    queue = everything - SQLModel.metadata.tables.keys() - {"alembic_version"}
    assert {"workflow_status", "operation_outputs", "queues", "streams", "notifications"} <= queue


def test_what_a_worker_has_not_resolved_is_null_and_not_a_json_null(engine: Engine) -> None:
    with transaction(engine) as session:
        session.add(PromptSet(sha256="0", name="inline", prompts=[]))
        session.flush()
        session.add(Probe(id="p", fingerprint="f", model="m", hardware="cpu", request={}, prompts_sha256="0"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM probe WHERE resolved IS NULL")).scalar() == 1
