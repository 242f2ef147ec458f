"""What keeps a worker from its work: told in one line, with an exit code of its kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_worker(**environment: str) -> tuple[int, list[str]]:
    """Exit code and lines of a worker that does not get to its work."""
    done = subprocess.run(
        [sys.executable, "-m", "workers", "--hardware", "cpu"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("environment", "code", "told"),
    [
        ({"BREAKEVEN_BEAT_SECONDS": "99"}, 2, "BREAKEVEN_BEAT_SECONDS=99, BREAKEVEN_FENCE_SECONDS=30"),
        ({"BREAKEVEN_DATABASE_URL": "mysql://me:secret@here/it"}, 2, "SQLite or in PostgreSQL, not in mysql"),
        ({"BREAKEVEN_HOME": "/dev/null/data"}, 2, "set BREAKEVEN_HOME to a folder that it may write to"),
        ({"BREAKEVEN_DATABASE_URL": "postgresql://me:secret@127.0.0.1:1/it"}, 5, "127.0.0.1:1/it cannot be reached"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(environment: dict[str, str], code: int, told: str) -> None:
    returned, lines = run_worker(**environment)
    assert returned == code
    assert len(lines) == 1
    assert told in lines[0]
    assert "secret" not in lines[0]


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "dbos.py").write_text("import a_module_that_nobody_installed\n")
    returned, lines = run_worker(PYTHONPATH=str(tmp_path))
    assert returned == 2
    assert len(lines) == 1
    assert "the module 'a_module_that_nobody_installed' is missing" in lines[0]
