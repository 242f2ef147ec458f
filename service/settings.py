"""What the environment decides. Read once, then handed to whoever needs it; nothing else reads the environment."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from service.exit_codes import CommandError

ADDRESSES = "write postgresql://USER:PASSWORD@HOST:5432/DATABASE, or sqlite:////FOLDER/FILE with four slashes"


class WrongSettingsError(CommandError):
    """The environment says what cannot be; the message names the variables and their values, but no password."""


def _address_of_a_database(address: str) -> str:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise ValueError(f"this is no address of a database: {ADDRESSES}") from None
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgres", "postgresql"):
        raise ValueError(f"Breakeven keeps its data in SQLite or in PostgreSQL, not in {backend}: {ADDRESSES}")
    if url.drivername not in (backend, "sqlite+pysqlite", "postgresql+psycopg"):
        raise ValueError(f"Breakeven does not speak through {url.get_driver_name()}: write {backend}://")
    if backend == "sqlite" and (url.host or url.database in (None, "", ":memory:")):
        raise ValueError(f"this names no file, and a database in memory would end with its connection: {ADDRESSES}")
    if not url.database:
        raise ValueError(f"this names no database on the server: {ADDRESSES}")
    return address


def _folder_that_an_address_can_hold(home: Path) -> Path:
    path = str(home.absolute())
    if wrong := next((each for each in path if each in "?%#" or not each.isprintable()), None):
        raise ValueError(f"{wrong!r} cannot stand in the address of the database in {path!r}: name another folder")
    return home


def _sqlite_under_home(values: dict[str, Any]) -> str:
    return f"sqlite:///{Path(values['home']).resolve() / 'breakeven.sqlite'}"


class Settings(BaseSettings):
    """One field per environment variable: its name in capitals after `BREAKEVEN_`."""

    model_config = SettingsConfigDict(
        env_prefix="BREAKEVEN_", env_ignore_empty=True, frozen=True, populate_by_name=True
    )

    home: Annotated[Path, AfterValidator(_folder_that_an_address_can_hold)] = Field(
        default=Path("data"), validate_default=True
    )
    """Where the embedded service keeps its database and its locks."""
    database_url: Annotated[str, AfterValidator(_address_of_a_database)] = Field(
        default_factory=_sqlite_under_home,
        validation_alias=AliasChoices("BREAKEVEN_DATABASE_URL", "DATABASE_URL"),
    )
    """`sqlite:///...` or `postgresql://...`; without one, a SQLite file under `home`."""
    beat_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """How often a worker says that it lives, and looks for others that do not."""
    fence_seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """A worker that could not say so for longer ends itself: others may take its job soon."""
    dead_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """A worker not heard of for longer counts as dead, and its job goes to another."""
    stop_seconds: float = Field(default=20.0, ge=0, allow_inf_nan=False)
    """How long a worker that is told to stop waits for the repeat that is under way."""
    event_poll_seconds: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    """How often a stream of events looks for new ones."""
    event_ping_seconds: float = Field(default=15.0, gt=0, allow_inf_nan=False)
    """How often a silent stream sends a comment, so that proxies keep it open."""
    busy_timeout_seconds: float = Field(default=30.0, gt=0, le=3600, allow_inf_nan=False)
    """How long a write waits for its turn: for the one writer of a SQLite file, or for a lock of PostgreSQL."""

    @model_validator(mode="after")
    def _a_worker_ends_itself_before_others_take_its_job(self) -> Self:
        if not self.beat_seconds < self.fence_seconds < self.dead_seconds:
            raise ValueError(
                f"BREAKEVEN_BEAT_SECONDS={self.beat_seconds:g}, BREAKEVEN_FENCE_SECONDS={self.fence_seconds:g} and "
                f"BREAKEVEN_DEAD_SECONDS={self.dead_seconds:g} must ascend: a worker has to end itself before others "
                "take its job"
            )
        return self


def read_settings() -> Settings:
    """The settings that the environment gives. Raises WrongSettingsError."""
    try:
        return Settings()
    except ValidationError as error:
        raise WrongSettingsError("; ".join(_told(each) for each in error.errors())) from None


def _told(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors, with the variable that is wrong."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    variable = "BREAKEVEN_" + str(error["loc"][0]).upper().removeprefix("BREAKEVEN_")
    if variable == "BREAKEVEN_DATABASE_URL" and variable not in os.environ:
        variable = "DATABASE_URL"
    return f"{variable}={_without_password(str(error['input']))}: {message}"


def _without_password(value: str) -> str:
    """An address as it may be shown, even if it is none."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1:***@", value))


@cache
def settings() -> Settings:
    """The settings of this process. Raises WrongSettingsError."""
    return read_settings()
