"""What the environment decides. Read once, then handed to whoever needs it; nothing else reads the environment."""

from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import AliasChoices, Field, model_validator
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
    beat_seconds: float = Field(default=10.0, gt=0)
    """How often a worker says that it lives, and looks for others that do not."""
    fence_seconds: float = Field(default=30.0, gt=0)
    """A worker that could not say so for longer ends itself: others may take its job soon."""
    dead_seconds: float = Field(default=60.0, gt=0)
    """A worker not heard of for longer counts as dead, and its job goes to another."""
    stop_seconds: float = Field(default=20.0, ge=0)
    """How long a worker that is told to stop waits for the repeat that is under way."""
    event_poll_seconds: float = Field(default=0.2, gt=0)
    """How often a stream of events looks for new ones."""
    event_ping_seconds: float = Field(default=15.0, gt=0)
    """How often a silent stream sends a comment, so that proxies keep it open."""

    @model_validator(mode="after")
    def _a_worker_ends_itself_before_others_take_its_job(self) -> Self:
        if not self.beat_seconds < self.fence_seconds < self.dead_seconds:
            raise ValueError(
                f"BREAKEVEN_BEAT_SECONDS={self.beat_seconds:g}, BREAKEVEN_FENCE_SECONDS={self.fence_seconds:g} and "
                f"BREAKEVEN_DEAD_SECONDS={self.dead_seconds:g} must ascend: a worker has to end itself before others "
                "take its job"
            )
        return self


@cache
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
