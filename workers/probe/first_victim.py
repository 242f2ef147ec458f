"""Makes an engine's process the first that the kernel kills when memory runs out, so that the worker lives to tell."""

from contextlib import suppress
from pathlib import Path

FIRST = 1000
"""The highest that the kernel knows; what the process starts inherits it."""


def become_first_victim() -> None:
    """Of this process and all that it will start. Anyone may raise it; where there is no such file nothing happens."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{FIRST}\n")
