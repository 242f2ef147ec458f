"""Imports run one way: science <- service <- workers, and the service needs no engine."""

import ast
import subprocess
import sys
from pathlib import Path

import service

SERVICE = Path(service.__file__).parent


def top_level_packages_loaded_by(module: str) -> set[str]:
    """The packages that a fresh interpreter has loaded after importing this module."""
    program = f"import {module}, sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def packages_named_in(path: Path) -> set[str]:
    """The packages that a file imports anywhere in it, also where the import is inside a function."""
    packages: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.split(".")[0])
    return packages


def test_the_service_loads_neither_an_engine_nor_the_workers() -> None:
    loaded = top_level_packages_loaded_by("service.app")
    assert "fastapi" in loaded
    assert not loaded & {"torch", "vllm", "transformers", "workers"}


def test_no_file_of_the_service_imports_the_workers_or_an_engine() -> None:
    offenders = {
        str(path): packages_named_in(path) & {"torch", "vllm", "transformers", "workers"}
        for path in SERVICE.rglob("*.py")
    }
    assert {path: found for path, found in offenders.items() if found} == {}


def test_science_loads_no_framework() -> None:
    loaded = top_level_packages_loaded_by("service.science")
    assert "numpy" in loaded
    assert not loaded & {"fastapi", "pydantic", "sqlalchemy", "sqlmodel", "dbos", "httpx", "starlette"}


def test_science_imports_only_numpy_scipy_the_standard_library_and_itself() -> None:
    allowed = {"numpy", "scipy", "service", *sys.stdlib_module_names}
    for path in (SERVICE / "science").rglob("*.py"):
        assert packages_named_in(path) <= allowed, path
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service"):
                assert (node.module or "").startswith("service.science"), path
