"""/v1/probes: ask for measurements, watch them, read them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import PlainTextResponse
from sse_starlette import EventSourceResponse

from service import probes
from service.cells import cells_of, to_csv
from service.database import transaction
from service.documents import CellList, ProbeDocument, ProbeList
from service.errors import NoWorkerError
from service.events import stream_events
from service.routes.dependencies import REFUSED_BODY, WRONG_PARAMETER, Service, TheService, Transaction, problems
from service.schemas import ProbeRequest
from service.worker_start import trouble_of_start

router = APIRouter(prefix="/v1/probes", tags=["probes"], responses=WRONG_PARAMETER)
NO_SUCH_PROBE = "no probe has this id"


def _known_probe_id(probe_id: str, session: Transaction) -> str:
    return probes.get_probe(session, probe_id).id


KnownProbeId = Annotated[str, Depends(_known_probe_id)]


@router.post("", status_code=202, responses={200: {"model": ProbeDocument}, **REFUSED_BODY})
def create(body: ProbeRequest, response: Response, service: TheService) -> ProbeDocument:
    """Ask for a probe: 202 if its job is queued now, 200 if an equal one is under way or has succeeded.

    A new one is refused if no live worker works for its hardware, unless it says `wait_for_worker`.
    """
    try:
        probe, created = _create(body, service)
    except NoWorkerError as error:
        if service.own_worker is None:
            raise
        trouble = trouble_of_start(service.own_worker, service.engine, service.settings.dead_seconds)
        if trouble:
            raise NoWorkerError(error.label, error.live_labels, trouble) from None
        probe, created = _create(body, service)
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/probes/{probe.id}"
    return probe


def _create(body: ProbeRequest, service: Service) -> tuple[ProbeDocument, bool]:
    with transaction(service.engine) as session:
        probe, created = probes.create_probe(session, service.queue, body, live_seconds=service.settings.dead_seconds)
        return probes.probe_document(session, probe), created


@router.get("")
def read_page(filters: Annotated[probes.ProbeFilters, Query()], session: Transaction) -> ProbeList:
    """Probes, newest first."""
    return probes.list_probes(session, filters)


@router.get("/{probe_id}", responses=problems(_404=NO_SUCH_PROBE))
def read(probe_id: str, session: Transaction) -> ProbeDocument:
    """A probe: where it stands."""
    return probes.probe_document(session, probes.get_probe(session, probe_id))


@router.delete("/{probe_id}", status_code=202, responses=problems(_404=NO_SUCH_PROBE, _409="it has ended already"))
def cancel(probe_id: str, service: TheService) -> ProbeDocument:
    """Cancel a probe. Its accelerator is free a moment later; what it measured stays."""
    with transaction(service.engine) as session:
        document = probes.probe_document(session, probes.cancel_probe(session, probe_id))
    service.queue.cancel(probe_id)
    return document


@router.get(
    "/{probe_id}/events",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {}}}, **problems(_404=NO_SUCH_PROBE)},
)
async def follow(
    probe_id: KnownProbeId, service: TheService, last_event_id: Annotated[int, Header(ge=0)] = 0
) -> EventSourceResponse:
    """What happens to a probe, as server-sent events, until it has ended. `Last-Event-ID` resumes after that event."""
    stream = stream_events(service.engine, probe_id, last_event_id, service.settings.event_poll_seconds)
    return EventSourceResponse(stream, ping=service.settings.event_ping_seconds)


@router.get(
    "/{probe_id}/cells",
    response_model=CellList,
    responses={200: {"content": {"text/csv": {}}}, **problems(_404=NO_SUCH_PROBE)},
)
def read_cells(
    probe_id: str,
    session: Transaction,
    format: Literal["json", "csv"] | None = None,  # noqa: A002  (the parameter's name in the contract's spirit)
    accept: Annotated[str, Header()] = "",
) -> CellList | Response:
    """What was timed so far, as JSON, or as CSV if `?format=csv` or the Accept header asks for it."""
    cells = cells_of(session, probes.get_probe(session, probe_id).id)
    if format == "csv" or (format is None and "text/csv" in accept):
        return PlainTextResponse(to_csv(cells), media_type="text/csv")
    return CellList(probe_id=probe_id, cells=cells)
