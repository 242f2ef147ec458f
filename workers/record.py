"""What a child reports, kept: rows and the events that tell of them, in one transaction each.

Every write first makes sure that the probe runs and that its job is still this worker's: of two workers that both
think so, one is refused.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, select, update

from service.database import database_time
from service.events import add_event
from service.models import Event, Generation, Launch, Probe, ProbeStatus, Repeat
from workers.plan import Arm, arm_cells, probe_arms

MOST_DEATHS = 5
"""A job whose workers died so often, without a measurement in between, is taken to be what kills them."""


class ProbeEndedError(Exception):
    """The probe has a final status: nothing more is measured of it."""


class JobLostError(Exception):
    """Another worker has taken the job, so this one was thought to be dead."""


def take_probe(session: Session, probe_id: str, worker: str) -> Probe | None:
    """The probe, running and this worker's from now on; None if it has ended."""
    started = session.exec(
        update(Probe)
        .where(col(Probe.id) == probe_id, col(Probe.status) == ProbeStatus.QUEUED)
        .values(status=ProbeStatus.RUNNING, started_at=database_time(session))
    )
    if started.rowcount:
        add_event(session, probe_id, "status", status=ProbeStatus.RUNNING)
    taken = session.exec(
        update(Probe).where(col(Probe.id) == probe_id, col(Probe.status) == ProbeStatus.RUNNING).values(worker=worker)
    )
    return session.get_one(Probe, probe_id) if taken.rowcount else None


def end_probe(session: Session, probe_id: str, status: ProbeStatus, error: str | None = None) -> None:
    """Give a running probe its final status, unless it was given one meanwhile.

    Whoever measured it: a worker that died after the last arm leaves only this to the next.
    """
    ended = session.exec(
        update(Probe)
        .where(col(Probe.id) == probe_id, col(Probe.status) == ProbeStatus.RUNNING)
        .values(status=status, error=error, finished_at=database_time(session))
    )
    if ended.rowcount:
        add_event(session, probe_id, "status", status=status, error=error)


def hand_back(session: Session, worker: str) -> None:
    """Tell of each probe that this worker measures that it stops on purpose: it did not die of it."""
    mine = select(Probe.id).where(Probe.status == ProbeStatus.RUNNING, Probe.worker == worker).order_by(Probe.id)
    for probe_id in session.exec(mine).all():
        of_arms = select(Event).where(Event.probe_id == probe_id, Event.kind == "arm")
        if last := session.exec(of_arms.order_by(col(Event.id).desc()).limit(1)).first():
            add_event(session, probe_id, "arm", arm=last.data["arm"], state="handed_back")


def deaths_in_a_row(session: Session, probe_id: str) -> int:
    """How many workers began an arm of this probe since anything of it was last measured or handed back."""
    deaths = 0
    newest_first = select(Event).where(Event.probe_id == probe_id).order_by(col(Event.id).desc()).limit(200)
    for event in session.exec(newest_first):
        state = event.data.get("state") if event.kind == "arm" else None
        if event.kind in ("repeat", "generation") or state in ("finished", "handed_back"):
            break
        deaths += state == "started"
    return deaths


class ArmRecord:
    """The rows of one arm, as one worker writes them."""

    def __init__(self, probe_id: str, worker: str, arm: Arm) -> None:
        self._probe_id, self._worker, self._arm = probe_id, worker, arm
        self._launch_id: int | None = None

    def state(self, session: Session, state: str, **more: object) -> None:
        """Tell where the arm stands."""
        self._hold(session)
        add_event(
            session, self._probe_id, "arm", arm=self._arm.name, state=state, draft_tokens=self._arm.draft_tokens, **more
        )

    def keep(self, session: Session, message: Mapping[str, Any]) -> None:
        """Store a message of the arm's child. A row that is there already is replaced, not doubled.

        Raises ProbeEndedError or JobLostError.
        """
        # When it was measured, which may be long before the database could be written.
        at = datetime.fromtimestamp(message["at"], UTC)
        if self._is_kept(session, message["kind"], at):
            return
        fields = {name: value for name, value in message.items() if name not in ("kind", "at")}
        row: dict[str, Any] = {
            "probe_id": self._probe_id,
            "arm": self._arm.name,
            "launch_id": self._launch_id,
            "created_at": at,
        }
        match message["kind"]:
            case "loaded":
                self._keep_launch(session, fields, at)
            case "warmed_up":
                self._hold(session)
                session.get_one(Launch, self._launch_id).warm_up_seconds = round(fields["seconds"], 3)
            case "repeat":
                self._hold(session)
                session.merge(Repeat(**row, **fields))
                session.flush()
                step_ms = round(1e3 * fields["seconds"] / fields["steps"], 3)
                self._tell(session, "repeat", fields, ("repeat",), step_ms=step_ms, **self._progress(session))
            case "generation":
                self._hold(session)
                session.merge(Generation(**row, **fields))
                counts = {name: fields[name] for name in ("emitted_tokens", "request_steps")}
                self._tell(session, "generation", fields, ("prompt",), **counts)
            case "log":
                self._hold(session)
                add_event(session, self._probe_id, "log", line=fields["line"])
            case "finished":
                self.state(session, "finished")

    def _hold(self, session: Session) -> None:
        """Keep the probe as it is, and everybody else from it, until the transaction ends."""
        held = session.exec(
            update(Probe)
            .where(
                col(Probe.id) == self._probe_id,
                col(Probe.status) == ProbeStatus.RUNNING,
                col(Probe.worker) == self._worker,
            )
            .values(worker=self._worker)
        )
        if held.rowcount:
            return
        probe = session.get_one(Probe, self._probe_id)
        if ProbeStatus(probe.status).final:
            raise ProbeEndedError(f"probe {probe.id} was {probe.status} meanwhile")
        raise JobLostError(f"probe {probe.id} is measured by {probe.worker} by now, not by {self._worker}")

    def _is_kept(self, session: Session, kind: str, at: datetime) -> bool:
        """Whether this very message was kept already, and only the database's answer to that was lost."""
        tables: dict[str, Any] = {"loaded": Launch, "repeat": Repeat, "generation": Generation}
        if kind not in tables:
            return False
        table = tables[kind]
        kept = session.exec(select(table).where(table.probe_id == self._probe_id, table.created_at == at)).first()
        if isinstance(kept, Launch):
            self._launch_id = kept.id
        return kept is not None

    def _keep_launch(self, session: Session, description: Mapping[str, Any], at: datetime) -> None:
        self._hold(session)
        engine = {"name": description["name"], "version": description["version"]}
        seconds = {name: round(description[name], 3) for name in ("import_seconds", "load_seconds")}
        launch = Launch(
            probe_id=self._probe_id,
            arm=self._arm.name,
            worker=self._worker,
            draft_tokens=list(self._arm.draft_tokens),
            **seconds,
            engine=engine | description["details"],
            created_at=at,
        )
        session.add(launch)
        session.flush()
        self._launch_id = launch.id
        probe = session.get_one(Probe, self._probe_id)
        if probe.resolved is None:
            probe.resolved = {"engine": engine, **description["resolved"]}
        self.state(session, "loaded", **seconds)

    def _tell(
        self, session: Session, kind: str, fields: Mapping[str, Any], number: tuple[str, ...], **more: object
    ) -> None:
        place = {name: fields[name] for name in ("context_length", "batch_size", "draft_tokens", *number)}
        add_event(session, self._probe_id, kind, arm=self._arm.name, **place, **more)

    def _progress(self, session: Session) -> dict[str, int]:
        """Timed repeats that are done, and that there will be.

        Of arms that are over those that they did, which a spent budget may have cut short; of the others those that
        are planned, and those added so far for noisy cells.
        """
        request = session.get_one(Probe, self._probe_id).request
        statement = select(Repeat.arm, Repeat.draft_tokens, Repeat.repeat).where(Repeat.probe_id == self._probe_id)
        rows = session.exec(statement).all()
        total, over = 0, True
        for arm in probe_arms(request):
            over = over and arm.key != self._arm.key
            done = [repeat for name, k, repeat in rows if name == arm.name and k in arm.draft_tokens]
            planned = len(arm_cells(request, arm)) * arm.repeats + sum(repeat >= arm.repeats for repeat in done)
            total += len(done) if over else planned
        return {"done": len(rows), "total": total}
