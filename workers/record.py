"""What a child reports, kept: rows and the events that tell of them, in one transaction each."""

from collections.abc import Mapping
from typing import Any

from sqlmodel import Session, col, select, update

from service.events import add_event
from service.models import Generation, Launch, Probe, ProbeStatus, Repeat, now
from workers.plan import arm_cells, probe_arms


def start_probe(session: Session, probe_id: str) -> bool:
    """Mark a queued probe as running; False if it has ended. Of a running one, a later attempt changes nothing."""
    started = session.exec(
        update(Probe)
        .where(col(Probe.id) == probe_id, col(Probe.status) == ProbeStatus.QUEUED)
        .values(status=ProbeStatus.RUNNING, started_at=now())
    )
    if started.rowcount:
        add_event(session, probe_id, "status", status=ProbeStatus.RUNNING)
    return session.get_one(Probe, probe_id).status == ProbeStatus.RUNNING


def end_probe(session: Session, probe_id: str, status: ProbeStatus, error: str | None = None) -> None:
    """Give a running probe its final status, unless it was given one meanwhile."""
    ended = session.exec(
        update(Probe)
        .where(col(Probe.id) == probe_id, col(Probe.status) == ProbeStatus.RUNNING)
        .values(status=status, error=error, finished_at=now())
    )
    if ended.rowcount:
        add_event(session, probe_id, "status", status=status, error=error)


def keep_message(session: Session, probe_id: str, arm: str, message: Mapping[str, Any]) -> None:
    """Store one message of an arm's child. A repeat or generation that is there already is replaced, not doubled."""
    fields = {name: value for name, value in message.items() if name != "kind"}
    match message["kind"]:
        case "loaded":
            _keep_launch(session, probe_id, arm, fields)
        case "repeat":
            session.merge(Repeat(probe_id=probe_id, arm=arm, **fields))
            session.flush()
            place = {k: fields[k] for k in ("context_length", "batch_size", "draft_tokens", "repeat")}
            step_ms = round(1e3 * fields["seconds"] / fields["steps"], 3)
            add_event(
                session, probe_id, "repeat", arm=arm, **place, step_ms=step_ms, **_progress(session, probe_id, arm)
            )
        case "generation":
            session.merge(Generation(probe_id=probe_id, arm=arm, **fields))
            place = {k: fields[k] for k in ("context_length", "batch_size", "draft_tokens", "prompt")}
            counts = {k: fields[k] for k in ("emitted_tokens", "request_steps")}
            add_event(session, probe_id, "generation", arm=arm, **place, **counts)
        case "log":
            add_event(session, probe_id, "log", line=fields["line"])
        case "finished":
            add_event(session, probe_id, "arm", arm=arm, state="finished")


def _keep_launch(session: Session, probe_id: str, arm: str, description: Mapping[str, Any]) -> None:
    engine = {"name": description["name"], "version": description["version"]}
    seconds = {name: round(description[name], 3) for name in ("import_seconds", "load_seconds")}
    session.add(Launch(probe_id=probe_id, arm=arm, **seconds, engine=engine | description["details"]))
    probe = session.get_one(Probe, probe_id)
    if probe.resolved is None:
        probe.resolved = {"engine": engine, **description["resolved"]}
    add_event(session, probe_id, "arm", arm=arm, state="loaded", **seconds)


def _progress(session: Session, probe_id: str, arm: str) -> dict[str, int]:
    """Timed repeats that are done, and that there will be.

    Of arms that are over those that they did, which a spent budget may have cut short; of the others those that are
    planned, and those added so far for noisy cells.
    """
    request = session.get_one(Probe, probe_id).request
    arms = probe_arms(request)
    names = [each.name for each in arms]
    rows = session.exec(select(Repeat.arm, Repeat.repeat).where(col(Repeat.probe_id) == probe_id)).all()
    total = sum(names.index(name) < names.index(arm) for name, _ in rows)
    for each in arms[names.index(arm) :]:
        added = sum(name == each.name and repeat >= each.repeats for name, repeat in rows)
        total += len(arm_cells(request, each)) * each.repeats + added
    return {"done": len(rows), "total": total}
