"""The tables. A probe is a job; its measurements are rows that are written once and only read afterwards.

Nothing here is an answer: advice is computed from these rows whenever it is read.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Column, DateTime, Dialect, Index, String, text
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel


def now() -> datetime:
    """The time of day in UTC, as every timestamp here is kept."""
    return datetime.now(UTC)


class UtcDateTime(TypeDecorator[datetime]):
    """A timestamp that stays in UTC on databases that forget time zones, as SQLite does."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


class ToldText(TypeDecorator[str]):
    """Text of programs that we do not know: what no database keeps, a NUL or half a character, becomes U+FFFD."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        if value is None:
            return None
        return "".join("\ufffd" if each == "\0" or "\ud800" <= each <= "\udfff" else each for each in value)


class ProbeStatus(StrEnum):
    """Where a probe stands. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in (ProbeStatus.QUEUED, ProbeStatus.RUNNING)


class PromptSet(SQLModel, table=True):
    """Prompts as they were sent, kept by the SHA-256 of their canonical JSON."""

    __tablename__ = "prompt_set"

    sha256: str = Field(primary_key=True)
    name: str
    prompts: list[dict[str, Any]] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


class Probe(SQLModel, table=True):
    """A durable job: the arms of one target on one hardware under one workload. Its id is the workflow's id too."""

    __tablename__ = "probe"
    __table_args__ = (
        # One live probe per request: whoever asks for the same again is given the one that is under way.
        Index(
            "probe_live_fingerprint",
            "fingerprint",
            unique=True,
            sqlite_where=text("status IN ('queued', 'running')"),
            postgresql_where=text("status IN ('queued', 'running')"),
        ),
    )

    id: str = Field(primary_key=True)
    fingerprint: str = Field(index=True)
    status: str = Field(default=ProbeStatus.QUEUED, index=True)
    model: str = Field(index=True)
    hardware: str = Field(index=True)
    request: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    """The validated request, with the prompts replaced by their name and hash."""
    prompts_sha256: str = Field(foreign_key="prompt_set.sha256")
    resolved: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """What only the worker knows: revision, engine and its version, dtype, provenance of the machine."""
    error: str | None = Field(default=None, sa_type=ToldText)
    worker: str | None = None
    """The id of the worker that last took the job: what any other measures of it is refused."""
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False, index=True)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Launch(SQLModel, table=True):
    """One engine load, with what it cost and what the engine said of itself."""

    __tablename__ = "launch"

    id: int | None = Field(default=None, primary_key=True)
    probe_id: str = Field(foreign_key="probe.id", index=True)
    arm: str
    worker: str | None = None
    """The id of the worker that loaded it."""
    draft_tokens: list[int] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """Every K that it was loaded for."""
    import_seconds: float
    """Until the engine's code was imported."""
    load_seconds: float
    """From there until the engine was ready."""
    warm_up_seconds: float | None = None
    """From there until every shape had run; null if it never came to that."""
    engine: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


class Repeat(SQLModel, table=True):
    """One timed repeat of one cell (arm, context length, batch size, draft tokens).

    Only clean steps count: exactly `batch_size` requests decode and none prefills. A context length of 0
    stands for prompts as they came, not padded.
    """

    __tablename__ = "repeat"

    probe_id: str = Field(foreign_key="probe.id", primary_key=True)
    arm: str = Field(primary_key=True)
    context_length: int = Field(primary_key=True)
    batch_size: int = Field(primary_key=True)
    draft_tokens: int = Field(primary_key=True)
    repeat: int = Field(primary_key=True)
    launch_id: int | None = Field(default=None, foreign_key="launch.id")
    """The engine load that it was timed in."""
    seconds: float
    steps: int
    emitted_tokens: int
    request_steps: int
    drafted_steps: int
    drafted_tokens: int
    step_ms: list[float] = Field(sa_column=Column(JSON, nullable=False))
    """Milliseconds of each clean step."""
    step_drafted_tokens: list[int] = Field(sa_column=Column(JSON, nullable=False))
    """Draft tokens verified in each clean step, over all requests."""
    step_pace_ms: list[float] = Field(sa_column=Column(JSON, nullable=False))
    """Time of a fixed piece of work beside each clean step; empty where the machine's pace is not watched."""
    accepted_per_position: list[int] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


class Generation(SQLModel, table=True):
    """One prompt continued to its end of text: the acceptance it saw and the tokens it gave.

    Prefill steps are not counted: `emitted_tokens` leaves out the one token that the prefill gives.
    """

    __tablename__ = "generation"

    probe_id: str = Field(foreign_key="probe.id", primary_key=True)
    arm: str = Field(primary_key=True)
    context_length: int = Field(primary_key=True)
    batch_size: int = Field(primary_key=True)
    draft_tokens: int = Field(primary_key=True)
    prompt: int = Field(primary_key=True)
    """The prompt's index in its set."""
    launch_id: int | None = Field(default=None, foreign_key="launch.id")
    """The engine load that it was continued in."""
    prompt_tokens: int
    token_ids: list[int] = Field(sa_column=Column(JSON, nullable=False))
    finish_reason: str
    emitted_tokens: int
    request_steps: int
    drafted_steps: int
    drafted_tokens: int
    accepted_per_position: list[int] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


class Event(SQLModel, table=True):
    """What happened to a probe, in order; written with the rows that it tells of."""

    __tablename__ = "event"

    id: int | None = Field(default=None, primary_key=True)
    probe_id: str = Field(foreign_key="probe.id", index=True)
    kind: str
    data: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)


class Worker(SQLModel, table=True):
    """A worker process and when it was last heard of."""

    __tablename__ = "worker"

    id: str = Field(primary_key=True)
    """The executor id: host and accelerators."""
    hardware: str = Field(index=True)
    host: str
    pid: int
    engine: str | None = None
    started_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)
    beat_at: datetime = Field(default_factory=now, sa_type=UtcDateTime, nullable=False)
