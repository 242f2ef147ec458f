"""What can be done with probes: create, look up, list, cancel. Each in the caller's transaction."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID, uuid4

from pydantic import AfterValidator, Field
from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import Session, col, func, select, update

from service.database import insert_if_absent
from service.documents import ProbeDocument, ProbeList, Progress
from service.errors import InvalidRequestError, ProbeIsFinalError, ProbeNotFoundError
from service.events import add_event
from service.hardware import require_worker
from service.models import Event, Probe, ProbeStatus, PromptSet, now
from service.prompt_sets import INLINE, built_in, prompt_set, sha256_of
from service.queue import ProbeQueue
from service.schemas import ProbePlan, ProbeRequest, Request, Text, Workload

LIVE = (ProbeStatus.QUEUED, ProbeStatus.RUNNING)


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("this is before the year 1 or after the year 9999 in UTC") from None


Time = Annotated[datetime, AfterValidator(_in_utc)]


class ProbeFilters(Request):
    """Which probes to list. Times are in UTC unless they say otherwise; `until` itself is left out."""

    model: Text | None = None
    hardware: Text | None = None
    engine_version: Text | None = None
    status: list[ProbeStatus] | None = None
    since: Time | None = None
    until: Time | None = None
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=500)


def create_probe(
    session: Session, queue: ProbeQueue, request: ProbeRequest, *, live_seconds: float | None = None
) -> tuple[Probe, bool]:
    """The probe that answers this request, and whether it is new: then its job is queued in the same transaction.

    Of two equal requests at once, one creates and the other is given the same probe. With `live_seconds`, a new one
    whose request does not wait for a worker needs one that was heard of within them: NoWorkerError.
    """
    prompts = _prompts_of(request)
    plan = plan_of(request, prompts)
    fingerprint = fingerprint_of(plan)
    while True:
        existing = _newest(session, fingerprint, LIVE)
        if existing is None and not request.fresh:
            existing = _newest(session, fingerprint, [ProbeStatus.SUCCEEDED])
        if existing is not None:
            return existing, False
        if live_seconds is not None and not request.wait_for_worker:
            require_worker(session, plan.hardware, live_seconds)
        insert_if_absent(session, prompts)
        probe = Probe(
            id=str(uuid4()),
            fingerprint=fingerprint,
            model=plan.target.model,
            hardware=plan.hardware,
            request=plan.model_dump(mode="json"),
            prompts_sha256=prompts.sha256,
        )
        if insert_if_absent(session, probe):
            add_event(session, probe.id, "status", status=ProbeStatus.QUEUED)
            queue.enqueue(session, probe)
            return session.get_one(Probe, probe.id), True


def plan_of(request: ProbeRequest, prompts: PromptSet) -> ProbePlan:
    """The request as it is stored: every drafter named, the prompts by name and hash."""
    fields = request.model_dump(mode="json", exclude={"workload", "fresh", "wait_for_worker"})
    load = request.workload.model_dump(mode="json", exclude={"prompts"})
    workload = Workload(prompts=prompts.name, prompts_sha256=prompts.sha256, **load)
    return ProbePlan(**fields, workload=workload)


def fingerprint_of(plan: ProbePlan) -> str:
    """The identity of what is measured: the plan without what it is called and what it may cost."""
    return sha256_of(plan.model_dump(mode="json", exclude={"budget_seconds": True, "workload": {"prompts"}}))


def get_probe(session: Session, probe_id: str) -> Probe:
    """The probe with this id; ProbeNotFoundError if there is none."""
    # PostgreSQL cannot even be asked for text with a NUL in it.
    probe = None if "\x00" in probe_id else session.get(Probe, probe_id)
    if probe is None:
        raise ProbeNotFoundError(probe_id)
    return probe


def list_probes(session: Session, filters: ProbeFilters) -> ProbeList:
    """One page of the probes that pass every filter, newest first."""
    statement = select(Probe).where(*_conditions(filters))
    newest_first = statement.order_by(col(Probe.created_at).desc(), col(Probe.id).desc())
    found = session.exec(newest_first.limit(filters.limit + 1)).all()
    page = found[: filters.limit]
    return ProbeList(
        probes=probe_documents(session, page),
        next_cursor=_cursor_after(page[-1]) if len(found) > len(page) else None,
    )


def cancel_probe(session: Session, probe_id: str) -> Probe:
    """Give a queued or running probe its final status; ProbeIsFinalError if it has one.

    Its job is not touched: take it off the queue when this is committed.
    """
    probe = get_probe(session, probe_id)
    # Decided by the database, so that a worker which ends the probe at this moment is not overruled.
    cancelled = session.exec(
        update(Probe)
        .where(col(Probe.id) == probe_id, col(Probe.status).in_(LIVE))
        .values(status=ProbeStatus.CANCELLED, finished_at=now())
    )
    session.refresh(probe)
    if not cancelled.rowcount:
        raise ProbeIsFinalError(probe_id, probe.status)
    add_event(session, probe_id, "status", status=ProbeStatus.CANCELLED)
    return probe


def probe_documents(session: Session, probes: Sequence[Probe]) -> list[ProbeDocument]:
    """The probes as they are shown, with how far each is by the last events that tell of it."""
    ids = [probe.id for probe in probes]
    last = (
        select(func.max(Event.id))
        .where(col(Event.probe_id).in_(ids), col(Event.kind).in_(("arm", "repeat")))
        .group_by(col(Event.probe_id), col(Event.kind))
    )
    progress = {probe_id: Progress() for probe_id in ids}
    for event in session.exec(select(Event).where(col(Event.id).in_(last)).order_by(col(Event.id))):
        told = progress[event.probe_id]
        told.arm = event.data.get("arm", told.arm)
        told.repeats_done = event.data.get("done", told.repeats_done)
        told.repeats_total = event.data.get("total", told.repeats_total)
    return [ProbeDocument(**probe.model_dump(), progress=progress[probe.id]) for probe in probes]


def probe_document(session: Session, probe: Probe) -> ProbeDocument:
    """The probe as it is shown."""
    return probe_documents(session, [probe])[0]


def _prompts_of(request: ProbeRequest) -> PromptSet:
    prompts = request.workload.prompts
    return built_in(prompts) if isinstance(prompts, str) else prompt_set(INLINE, prompts)


def _newest(session: Session, fingerprint: str, statuses: Sequence[ProbeStatus]) -> Probe | None:
    statement = select(Probe).where(Probe.fingerprint == fingerprint, col(Probe.status).in_(statuses))
    return session.exec(statement.order_by(col(Probe.created_at).desc()).limit(1)).first()


def _conditions(filters: ProbeFilters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.model is not None:
        conditions.append(col(Probe.model) == filters.model)
    if filters.hardware is not None:
        conditions.append(col(Probe.hardware) == filters.hardware)
    if filters.engine_version is not None:
        conditions.append(col(Probe.resolved)["engine"]["version"].as_string() == filters.engine_version)
    if filters.status:
        conditions.append(col(Probe.status).in_(filters.status))
    if filters.since is not None:
        conditions.append(col(Probe.created_at) >= filters.since)
    if filters.until is not None:
        conditions.append(col(Probe.created_at) < filters.until)
    if filters.cursor is not None:
        created_at, probe_id = _position(filters.cursor)
        same_time = and_(col(Probe.created_at) == created_at, col(Probe.id) < probe_id)
        conditions.append(or_(col(Probe.created_at) < created_at, same_time))
    return conditions


def _cursor_after(probe: Probe) -> str:
    return base64.urlsafe_b64encode(json.dumps([probe.created_at.isoformat(), probe.id]).encode()).decode()


def _position(cursor: str) -> tuple[datetime, str]:
    try:
        created_at, probe_id = json.loads(base64.urlsafe_b64decode(cursor))
        return _in_utc(datetime.fromisoformat(created_at)), str(UUID(probe_id))
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequestError(
            f"the cursor {cursor!r} is not one of this service: use the 'next_cursor' of an earlier page, or none",
            parameter="cursor",
            value=cursor,
        ) from None
