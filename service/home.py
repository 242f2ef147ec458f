"""Who serves a BREAKEVEN_HOME and who uses it: two lock files and a record, all in that folder.

`service.lock` is held by the one `breakeven serve` of the home, `service.json` says where it listens, and every command
that talks to it holds a share of `users.lock`. The system lets go of a lock when its process dies in any way, so a
record without a holder of the lock is stale, and a service for the time of a command can see that nobody uses it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ValidationError

from service.exit_codes import CommandError

LOCK_PATIENCE_SECONDS = 1.0
"""Commands that look whether the lock is held hold it themselves for a moment."""


class ServiceRecord(BaseModel):
    """The service that runs for a home."""

    url: str
    pid: int
    worker: bool
    """Whether it keeps a worker of its own."""
    while_used: bool
    """Whether it ends with the last command that uses it."""


class HomeTakenError(CommandError):
    """Another service already runs for this home."""

    def __init__(self, home: Path, record: ServiceRecord | None) -> None:
        where = f"at {record.url} (process {record.pid})" if record else "and is starting"
        super().__init__(
            f"a service already runs for {home} {where}: use that one, stop it, or set BREAKEVEN_HOME to another folder"
        )


class HomeUnusableError(CommandError):
    """BREAKEVEN_HOME names no folder that can be used."""

    def __init__(self, home: Path, error: OSError) -> None:
        super().__init__(
            f"BREAKEVEN_HOME={home} cannot be used ({error.strerror}: {error.filename}): name a folder that this user "
            "may write to, or where one can be made"
        )


@contextmanager
def hold_home(home: Path) -> Iterator[None]:
    """Be the one service of this home for the time of the block. Raises HomeTakenError, HomeUnusableError."""
    with _open_lock(home, "service.lock") as file:
        deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
        while not _lock(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise HomeTakenError(home, read_record(home))
            time.sleep(0.05)
        try:
            remove_record(home)
        except OSError as error:
            raise HomeUnusableError(home, error) from None
        try:
            yield
        finally:
            # Of another service, if the folder was taken away from this one and made anew.
            if (record := read_record(home)) and record.pid == os.getpid():
                remove_record(home)


def is_held(home: Path) -> bool:
    """Whether a service runs for this home, be it ready or not."""
    if not (home / "service.lock").exists():
        return False
    with _open_lock(home, "service.lock") as file:
        return not _lock(file, fcntl.LOCK_SH)


def write_record(home: Path, record: ServiceRecord) -> None:
    """Say where the service of this home listens; whoever reads it sees all of it or nothing."""
    unfinished = home / f"service.json.{record.pid}"
    unfinished.write_text(record.model_dump_json() + "\n", "utf-8")
    unfinished.replace(home / "service.json")


def read_record(home: Path) -> ServiceRecord | None:
    """What the service of this home wrote; None if there is none, or none that can be read."""
    try:
        return ServiceRecord.model_validate_json((home / "service.json").read_bytes())
    except (OSError, ValidationError):
        return None


def remove_record(home: Path) -> None:
    """Forget where a service listened."""
    (home / "service.json").unlink(missing_ok=True)


class Use:
    """A command's share of the users' lock."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def becomes_sole(self) -> bool:
        """Whether nobody else uses the service: then nobody can until this use ends. If not, this use is over."""
        return _lock(self._file, fcntl.LOCK_EX)


@contextmanager
def use_home(home: Path) -> Iterator[Use]:
    """Count as a user of this home's service. Waits while a service that nobody used is about to end."""
    with _open_lock(home, "users.lock") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield Use(file)


@contextmanager
def watch_users(home: Path) -> Iterator[Use]:
    """The users' lock as a service sees it: `becomes_sole` tells that nobody uses it, and keeps new users waiting."""
    with _open_lock(home, "users.lock") as file:
        yield Use(file)


def _open_lock(home: Path, name: str) -> IO[str]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        return (home / name).open("a")
    except OSError as error:
        raise HomeUnusableError(home, error) from None


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
