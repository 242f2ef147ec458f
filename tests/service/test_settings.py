"""What the environment may say, and how a wrong value is told: in one line, by its variable, without a password."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import WrongSettingsError, read_settings

WRONG_ADDRESSES = [
    ("foo", "no address of a database"),
    ("postgresql://user:secret@host:port/name", "no address of a database"),
    ("postgresql://user:sec/ret@host:port/name", "no address of a database"),
    ("mysql://user:secret@host/name", "not in mysql"),
    ("postgresql+asyncpg://user:secret@host/name", "write postgresql://"),
    ("postgresql://user:secret@host", "names no database"),
    ("postgresql://host/?password=secret", "names no database"),
    ("sqlite://", "names no file"),
    ("sqlite:///:memory:", "names no file"),
    ("sqlite://folder/file", "names no file"),
]


@pytest.mark.parametrize(("address", "told"), WRONG_ADDRESSES)
def test_an_address_that_is_no_database_of_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, told: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", address)
    with pytest.raises(WrongSettingsError, match=told) as error:
        read_settings()
    assert str(error.value).startswith("DATABASE_URL=")
    assert "secret" not in str(error.value)
    assert "sec/ret" not in str(error.value)
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", address)
    with pytest.raises(WrongSettingsError, match=r"^BREAKEVEN_DATABASE_URL="):
        read_settings()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://host/name",
        "postgres://user:p%40ss@host:5432/name?sslmode=require",
        "postgresql+psycopg:///name?host=/run/postgresql",
        "sqlite:///file",
        "sqlite:////folder/file",
    ],
)
def test_addresses_of_both_databases_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("DATABASE_URL", address)
    assert read_settings().database_url == address


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("BREAKEVEN_BEAT_SECONDS", "soon", r"^BREAKEVEN_BEAT_SECONDS=soon: .*number"),
        ("BREAKEVEN_DEAD_SECONDS", "inf", r"^BREAKEVEN_DEAD_SECONDS=inf: .*finite"),
        ("BREAKEVEN_FENCE_SECONDS", "0", r"^BREAKEVEN_FENCE_SECONDS=0: .*greater than 0"),
        ("BREAKEVEN_BEAT_SECONDS", "70", r"^BREAKEVEN_BEAT_SECONDS=70, BREAKEVEN_FENCE_SECONDS=30 .*must ascend"),
    ],
)
def test_a_time_that_cannot_be_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(WrongSettingsError, match=told):
        read_settings()


@pytest.mark.parametrize("name", ["what?", "100%20", "a#b", "a\nb", "a\udcff"])
def test_a_home_that_no_address_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", f"{tmp_path}/{name}/home")
    with pytest.raises(WrongSettingsError, match="cannot stand in the address of the database"):
        read_settings()
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.delenv("BREAKEVEN_HOME")
    with pytest.raises(WrongSettingsError, match="cannot stand in the address of the database"):
        read_settings()


def test_all_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_BEAT_SECONDS", "soon")
    monkeypatch.setenv("DATABASE_URL", "foo")
    with pytest.raises(WrongSettingsError, match=r"DATABASE_URL=foo: .*; BREAKEVEN_BEAT_SECONDS=soon: "):
        read_settings()


def test_a_variable_that_is_empty_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path))
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", "")
    assert read_settings().database_url == f"sqlite:///{tmp_path}/breakeven.sqlite"


def test_a_command_says_it_in_one_line_and_ends_with_2() -> None:
    command = [sys.executable, "-m", "service", "serve"]
    variables = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", "DATABASE_URL": "foo"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("breakeven: DATABASE_URL=foo: this is no address of a database")
    assert done.stderr.count("\n") == 1
