"""What happened to a probe, as a stream that can be taken up again where it was lost."""

import json
from collections.abc import AsyncIterator, Sequence

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import Engine
from sqlmodel import Session, col, select
from sse_starlette import ServerSentEvent

from service.database import transaction
from service.models import Event, Probe, ProbeStatus

PAGE = 500
LARGEST_ID = 2**31 - 1


def add_event(session: Session, probe_id: str, kind: str, **data: object) -> None:
    """Write an event, in the transaction of what it tells of.

    Of two transactions that tell of one probe, the later waits for the earlier to end: PostgreSQL gives an event its id
    before it is committed, and a reader that has seen the greater id does not come back for the smaller one.
    """
    # The lock that an update of the probe takes too; rows may refer to it meanwhile. SQLite has one writer anyway.
    session.exec(select(Probe.id).where(Probe.id == probe_id).with_for_update(key_share=True)).one()
    session.add(Event(probe_id=probe_id, kind=kind, data=data))


def events_after(session: Session, probe_id: str, event_id: int) -> Sequence[Event]:
    """The next events of a probe, oldest first; at most a page of them."""
    # A number beyond every id is one that a client made up; databases refuse to compare with it.
    statement = select(Event).where(Event.probe_id == probe_id, col(Event.id) > min(event_id, LARGEST_ID))
    return session.exec(statement.order_by(col(Event.id)).limit(PAGE)).all()


async def stream_events(
    engine: Engine, probe_id: str, after: int, poll_seconds: float
) -> AsyncIterator[ServerSentEvent]:
    """A probe's events as they come, from the one after `after` to the one that tells its final status.

    Looks at the table every `poll_seconds`, each time in a transaction that is over at once.
    """

    def look() -> tuple[Sequence[Event], bool]:
        with transaction(engine) as session:
            # The status first: once it is final, no event of interest is written any more.
            ended = ProbeStatus(session.get_one(Probe, probe_id).status).final
            return events_after(session, probe_id, after), ended

    while True:
        events, ended = await run_sync(look)
        for event in events:
            yield ServerSentEvent(json.dumps(event.data), event=event.kind, id=str(event.id))
            after = event.id or after
            if event.kind == "status" and ProbeStatus(event.data["status"]).final:
                return
        if ended and not events:
            return
        if len(events) < PAGE:
            await anyio.sleep(poll_seconds)
