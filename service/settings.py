"""What the environment decides. Read once, then handed to whoever needs it; nothing else reads the environment."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def _sqlite_under_home(values: dict[str, Any]) -> str:
    return f"sqlite:///{Path(values['home']).resolve() / 'breakeven.sqlite'}"


class Settings(BaseSettings):
    """One field per environment variable: its name in capitals after `BREAKEVEN_`."""

    model_config = SettingsConfigDict(env_prefix="BREAKEVEN_", frozen=True, populate_by_name=True)

    home: Path = Path("data")
    """Where the embedded service keeps its database and its locks."""
    database_url: str = Field(
        default_factory=_sqlite_under_home,
        validation_alias=AliasChoices("BREAKEVEN_DATABASE_URL", "DATABASE_URL"),
    )
    """`sqlite:///...` or `postgresql://...`; without one, a SQLite file under `home`."""
    worker_live_seconds: float = Field(default=60.0, gt=0)
    """A worker not heard of for longer counts as gone."""
    event_poll_seconds: float = Field(default=0.2, gt=0)
    """How often a stream of events looks for new ones."""
    event_ping_seconds: float = Field(default=15.0, gt=0)
    """How often a silent stream sends a comment, so that proxies keep it open."""


@cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
