"""An installation that is not complete says so, and `make` makes it again."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh .venv into which nothing is installed yet."""
    folder = tmp_path_factory.mktemp("bare") / ".venv"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def packages(interpreter: Path) -> Path:
    """Where this interpreter's packages are."""
    (found,) = interpreter.parents[1].glob("lib/python*/site-packages")
    return found


def run(interpreter: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code and standard error of our program under this interpreter, in the code of this checkout."""
    result = subprocess.run(
        [interpreter, "-c", "from service.__main__ import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **variables},
    )
    return result.returncode, result.stderr


def test_without_its_packages_the_program_names_the_first_that_is_missing(bare_python: Path) -> None:
    code, err = run(bare_python, "--help")
    assert code == 2
    assert err.startswith(f"breakeven: the module 'typer' is missing in {bare_python.parents[1]}: this installation")
    assert "`make clean demo` makes it again" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("missing", "command"),
    [("dbos", ("serve", "--no-worker", "--port", "0")), ("httpx", ("advice", "x", "--server", "http://127.0.0.1:1"))],
)
def test_a_module_that_a_command_needs_only_later_is_named_too(
    bare_python: Path, tmp_path: Path, missing: str, command: tuple[str, ...]
) -> None:
    there = packages(bare_python)
    for package in packages(Path(sys.executable)).iterdir():
        if not package.name.startswith((missing, "__editable__", "breakeven")) and not (there / package.name).exists():
            (there / package.name).symlink_to(package)
    try:
        code, err = run(bare_python, *command, BREAKEVEN_HOME=str(tmp_path))
    finally:
        for package in there.iterdir():
            if package.is_symlink():
                package.unlink()
    assert code == 2, err
    assert f"breakeven: the module '{missing}' is missing in" in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `make` looks at, with a .venv that was begun."""
    for name in ("Makefile", "pyproject.toml", "requirements/cpu.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    return tmp_path


def make(checkout: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `make` there."""
    # Not the options of a `make` that runs these tests.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    result = subprocess.run(
        ["make", *arguments], cwd=checkout, capture_output=True, text=True, check=False, env=variables
    )
    return result.returncode, result.stdout, result.stderr


def test_a_half_installed_environment_is_installed_again(checkout: Path) -> None:
    code, plan, err = make(checkout, "-n", "demo")
    assert code == 0, err
    assert "-m venv --clear .venv" in plan
    assert "pip install" in plan
    assert plan.index("pip install") < plan.index("touch .venv/.installed") < plan.index(".venv/bin/breakeven demo")


def test_an_installed_environment_is_left_alone_until_the_lock_file_changes(checkout: Path) -> None:
    (checkout / ".venv/.installed").touch()
    assert "pip install" not in make(checkout, "-n", "demo")[1]
    newer = (checkout / ".venv/.installed").stat().st_mtime + 10
    os.utime(checkout / "requirements/cpu.lock", (newer, newer))
    assert "pip install" in make(checkout, "-n", "demo")[1]


@pytest.mark.parametrize("answer", ["Python 3.12.4", "Python 3.1.1", "Python 2.7.18"])
def test_another_python_is_refused_in_one_line_before_anything_is_touched(checkout: Path, answer: str) -> None:
    other = checkout / "other-python"
    other.write_text(f"#!/bin/sh\necho {answer}\n")
    other.chmod(0o755)
    (checkout / ".venv/kept").touch()
    code, _, err = make(checkout, "demo", f"PYTHON={other}")
    assert code != 0
    said = next(line for line in err.splitlines() if "Python 3.11" in line)
    assert f"'{other}' is {answer}: name a Python 3.11, as in: make demo PYTHON=" in said
    assert "Traceback" not in err
    assert (checkout / ".venv/kept").exists()


def test_a_python_that_is_not_there_is_named(checkout: Path) -> None:
    code, _, err = make(checkout, "demo", "PYTHON=/nowhere/python3.11")
    assert code != 0
    assert "'/nowhere/python3.11' is" in err
    assert "not found" in err
