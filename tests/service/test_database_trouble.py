"""A locked database, a full disk, a database that is away: 503 that says so, and nothing half-written."""

import re
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from service.app import create_app
from service.database import open_engine
from service.settings import Settings
from tests.service.measured import request
from tests.service.served import run
from tests.service.test_errors import problem_of
from tests.service.test_worker_needed import rows_of

REPOSITORY = Path(__file__).parents[2]


def impatient(settings: Settings) -> Settings:
    """The same database, with little patience for other writers."""
    return settings.model_copy(update={"busy_timeout_seconds": 0.2})


def file_of(settings: Settings) -> Path:
    return settings.home / "breakeven.sqlite"


@contextmanager
def write_lock(engine: Engine) -> Iterator[None]:
    """Another program that keeps everybody else from writing probes and does not come to an end."""
    with engine.connect() as connection:
        on_sqlite = engine.dialect.name == "sqlite"
        connection.execute(text("BEGIN IMMEDIATE" if on_sqlite else "LOCK TABLE probe IN SHARE MODE"))
        yield
        connection.rollback()


def unavailable(answer: Any) -> str:
    """What the 503 tells, after checking that it is one."""
    problem = problem_of(answer, 503)
    assert problem["type"] == "urn:breakeven:problem:database-unavailable"
    assert int(answer.headers["retry-after"]) > 0
    return str(problem["detail"])


def test_a_locked_database_is_told_and_nothing_is_half_written(settings: Settings, engine: Engine) -> None:
    with TestClient(create_app(impatient(settings))) as client:
        probe_id = client.post("/v1/probes", json=request()).json()["id"]
        before = rows_of(engine)
        with write_lock(engine):
            for answer in (
                client.post("/v1/probes", json=request(batch_sizes=[2])),
                client.delete(f"/v1/probes/{probe_id}"),
            ):
                told = unavailable(answer)
                assert re.search(
                    r"another program has held (the write|a) lock of .*/.* for more than 0\.2 s: end it", told
                )
            # Who only reads is not kept waiting by a writer.
            assert client.get(f"/v1/probes/{probe_id}").json()["status"] == "queued"
        assert rows_of(engine) == before
        assert client.post("/v1/probes", json=request(batch_sizes=[2])).status_code == 202
        assert client.delete(f"/v1/probes/{probe_id}").status_code == 202
    # A prompt set, two probes, two jobs, and the events of both and of the end of one.
    assert sorted(rows_of(engine).values()) == [1, 2, 2, 3]


def test_a_probe_that_could_not_get_its_job_is_not_kept(settings: Settings, engine: Engine) -> None:
    """The last write of the transaction fails, after the row of the probe: that is what a full disk may do."""
    jobs = "workflow_status" if engine.dialect.name == "sqlite" else "dbos.workflow_status"
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {jobs} RENAME TO away"))
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        assert client.post("/v1/probes", json=request()).status_code == 500
    with engine.begin() as connection:
        moved = "away" if engine.dialect.name == "sqlite" else "dbos.away"
        connection.execute(text(f"ALTER TABLE {moved} RENAME TO workflow_status"))
    assert set(rows_of(engine).values()) == {0}


@pytest.mark.sqlite_only
def test_a_home_that_was_taken_away_is_told_until_it_is_back(settings: Settings, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    file_of(settings).rename(home / "breakeven.sqlite")
    settings = Settings(home=home)
    with TestClient(create_app(settings)) as client:
        assert client.post("/v1/probes", json=request()).status_code == 202
        home.rename(tmp_path / "away")
        assert "breakeven.sqlite was deleted, moved or replaced" in unavailable(
            client.post("/v1/probes", json=request(batch_sizes=[2]))
        )
        assert "was deleted, moved or replaced" in problem_of(client.get("/readyz"), 503)["detail"]
        shutil.copytree(tmp_path / "away", home)
        assert "put it back, or restart the service" in unavailable(client.get("/v1/probes"))
        shutil.rmtree(home)
        (tmp_path / "away").rename(home)
        assert client.get("/readyz").status_code == 200
        assert len(client.get("/v1/probes").json()["probes"]) == 1


FULL_DISK = """
import os, shutil, sys
from fastapi.testclient import TestClient
from service.app import create_app
from service.database import open_engine
from service.settings import Settings
from tests.service.measured import request
from tests.service.test_database_trouble import unavailable
from tests.service.test_worker_needed import rows_of

home = sys.argv[1]
settings = Settings(home=home, database_url=f"sqlite:///{home}/breakeven.sqlite")
prompts = [{"prompt": "x" * 900_000}]
with TestClient(create_app(settings)) as client:
    assert client.post("/v1/probes", json=request()).status_code == 202
    with open(f"{home}/filler", "wb") as filler:
        free = os.statvfs(home)
        filler.write(b"x" * (free.f_bavail * free.f_frsize - 100_000))
    told = unavailable(client.post("/v1/probes", json=request(workload={"prompts": prompts})))
    assert f"the disk of {home}/breakeven.sqlite is full: make room on it" in told, told
    print(sorted(rows_of(open_engine(settings)).values()))
    os.remove(f"{home}/filler")
    assert client.post("/v1/probes", json=request(workload={"prompts": prompts})).status_code == 202
    print(sorted(rows_of(open_engine(settings)).values()))
"""


@pytest.mark.sqlite_only
def test_a_full_disk_is_told_and_nothing_is_half_written(settings: Settings, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8m tmpfs {disk} && cp {file_of(settings)} {disk}/ && exec "
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, f"{mount} true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk of its own can be mounted here")
    program = tmp_path / "full_disk.py"
    program.write_text(textwrap.dedent(FULL_DISK))
    result = subprocess.run(
        [*alone, f"{mount} {sys.executable} {program} {disk}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
    )
    assert result.returncode == 0, result.stderr
    # One prompt set, probe, job and event before; two of each after.
    assert result.stdout.split("\n")[:2] == ["[1, 1, 1, 1]", "[2, 2, 2, 2]"]


@pytest.mark.sqlite_only
def test_a_database_that_cannot_grow_is_full_and_nothing_is_half_written(settings: Settings, engine: Engine) -> None:
    with TestClient(create_app(settings)) as client:
        service = client.app.state.service  # type: ignore[attr-defined]
        with service.engine.connect() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count={pages}"))
        long = {"prompts": [{"prompt": "x" * 900_000}]}
        told = unavailable(client.post("/v1/probes", json=request(workload=long)))
    assert f"the disk of {file_of(settings)} is full: make room on it" in told
    assert set(rows_of(engine).values()) == {0}


def test_a_database_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    away = Settings(home=tmp_path, database_url=f"postgresql://me:secret@127.0.0.1:{port}/probes")
    with TestClient(create_app(away)) as client:
        for answer in (client.post("/v1/probes", json=request()), client.get("/v1/probes"), client.get("/v1/hardware")):
            told = unavailable(answer)
            assert f"me:***@127.0.0.1:{port}/probes cannot be reached (" in told
            assert "check that it runs, and BREAKEVEN_DATABASE_URL" in told
            assert "secret" not in told
        told = problem_of(client.get("/readyz"), 503)["detail"]
        assert "cannot be reached" in told
        assert "secret" not in told


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot be opened: check that it is a file"), (b"no database at all" * 500, "is no SQLite database")],
)
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes | None, told: str) -> None:
    file = tmp_path / "breakeven.sqlite"
    file.mkdir() if content is None else file.write_bytes(content)
    with TestClient(create_app(Settings(home=tmp_path))) as client:
        assert f"{file} {told}" in unavailable(client.get("/v1/probes"))
        assert f"{file} {told}" in problem_of(client.get("/readyz"), 503)["detail"]
    code, _, err = run("serve", "--no-worker", "--port", "0", settings=Settings(home=tmp_path))
    assert code == 5
    assert f"{file} {told}" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("home", ["file", "file/below", "/dev/null/below", "/proc/nowhere"])
def test_a_home_that_cannot_be_one_is_named_in_one_line(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    unusable = tmp_path / home
    for command in (("serve", "--no-worker", "--port", "0"), ("advice", "x")):
        code, _, err = run(*command, settings=Settings(home=unusable))
        assert code == 2
        assert f"breakeven: BREAKEVEN_HOME={unusable} cannot be used (" in err
        assert "name a folder that this user may write to" in err
        assert len(err.splitlines()) == 1


@pytest.mark.sqlite_only
def test_the_patience_of_a_write_is_a_setting(settings: Settings) -> None:
    engine = open_engine(settings.model_copy(update={"busy_timeout_seconds": 1.5}))
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == 1500
    engine.dispose()
