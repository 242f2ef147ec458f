"""How long `make demo` takes on a fresh clone, with installation and without.

Clones the committed state of this repository into a temporary folder, runs `make demo` there twice and times both.
Promised: under 15 minutes with installation, under 4 without; at most 4 engine loads; every batch size has a verdict.

    python benchmarks/demo_time.py [--make-arguments TORCH_FROM=...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
WITH_INSTALLATION_SECONDS = 15 * 60
WITHOUT_INSTALLATION_SECONDS = 4 * 60
ENGINE_LOADS = 4


def timed_demo(folder: Path, make_arguments: list[str]) -> float:
    """Seconds that `make demo` takes in a clone; its output goes to stderr."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BREAKEVEN_", "DATABASE_URL", "VIRTUAL"))
    }
    started = time.monotonic()
    subprocess.run(["make", "demo", *make_arguments], cwd=folder, env=environment, stdout=sys.stderr, check=True)
    return time.monotonic() - started


def newest_advice(folder: Path) -> dict[str, Any]:
    """The advice that the last demo in this clone gave, asked from its history."""
    advice = subprocess.run(
        [".venv/bin/breakeven", "advice", "--model", "breakeven/demo-moe", "--hardware", "cpu", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,  # 3 if every verdict is inconclusive
    ).stdout
    document: dict[str, Any] = json.loads(advice)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-arguments", nargs="*", default=[], help="passed on to make")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "breakeven"
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
        with_installation = timed_demo(clone, arguments.make_arguments)
        without_installation = timed_demo(clone, arguments.make_arguments)
        advice = newest_advice(clone)
    rows = advice["batch_sizes"]
    figures = {
        "with_installation_seconds": round(with_installation, 1),
        "without_installation_seconds": round(without_installation, 1),
        "engine_loads": advice["engine_loads"],
        "verdicts": {str(row["batch_size"]): row["verdict"] for row in rows},
        "evidence": advice["evidence"],
        "noise_floor": advice["noise_floor"],
    }
    kept = (
        with_installation < WITH_INSTALLATION_SECONDS
        and without_installation < WITHOUT_INSTALLATION_SECONDS
        and advice["engine_loads"] <= ENGINE_LOADS
        and len(rows) == 4
    )
    print(json.dumps(figures))
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
