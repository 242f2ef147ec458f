"""The hardware labels that probes can be sent to: who works on them, and what waits."""

from collections.abc import Sequence
from datetime import timedelta

from sqlmodel import Session, col, select

from service.database import database_time
from service.documents import Hardware
from service.errors import NoWorkerError
from service.models import Probe, ProbeStatus, Worker


def live_workers(session: Session, live_seconds: float) -> Sequence[Worker]:
    """The workers heard of in the last `live_seconds`."""
    oldest = database_time(session) - timedelta(seconds=live_seconds)
    return session.exec(select(Worker).where(col(Worker.beat_at) >= oldest)).all()


def require_worker(session: Session, label: str, live_seconds: float) -> None:
    """NoWorkerError, with the labels that have live workers, unless this one has."""
    labels = sorted({worker.hardware for worker in live_workers(session, live_seconds)})
    if label not in labels:
        raise NoWorkerError(label, labels)


def hardware_in_use(session: Session, live_seconds: float) -> list[Hardware]:
    """Every label with a worker heard of in the last `live_seconds`, or with a probe that has not ended."""
    workers = live_workers(session, live_seconds)
    live = (ProbeStatus.QUEUED, ProbeStatus.RUNNING)
    probes = session.exec(
        select(Probe.hardware, Probe.status, Probe.id)
        .where(col(Probe.status).in_(live))
        .order_by(col(Probe.created_at))
    ).all()
    labels = sorted({worker.hardware for worker in workers} | {hardware for hardware, _, _ in probes})
    return [
        Hardware(
            label=label,
            live_workers=sum(worker.hardware == label for worker in workers),
            engines=sorted({worker.engine for worker in workers if worker.hardware == label and worker.engine}),
            queued=sum((hardware, status) == (label, ProbeStatus.QUEUED) for hardware, status, _ in probes),
            running=[id_ for hardware, status, id_ in probes if (hardware, status) == (label, ProbeStatus.RUNNING)],
        )
        for label in labels
    ]
