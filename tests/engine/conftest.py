"""The real engine, loaded once for all tests that look at its facts."""

import json
import subprocess
import sys
from typing import Any

import pytest

from workers.environment import child_environment


@pytest.fixture(scope="session")
def facts() -> dict[str, Any]:
    """What `tests.engine.facts` saw."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.facts"],
        env=child_environment("cpu"),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
