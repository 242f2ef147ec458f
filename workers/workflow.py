"""The durable workflow of a probe: start, one step per engine load, end.

A step that is run again, because its worker died, finds the rows of the first attempt and measures only what is
missing. Bump `service.queue.APPLICATION_VERSION` when the order or the names of the steps change.
"""

import logging
from contextlib import aclosing

from dbos import DBOS
from sqlalchemy import Engine
from sqlmodel import Session, col, select

from service.database import transaction
from service.events import add_event
from service.models import Generation, Probe, ProbeStatus, PromptSet, Repeat, now
from service.queue import WORKFLOW_NAME
from workers.child import ArmError, run_child
from workers.plan import arm_spec, probe_arms
from workers.probe.arms import ArmSpec
from workers.record import end_probe, keep_message, start_probe

ARM_TIMEOUT_SECONDS = 4 * 3600
"""No engine load takes longer, whatever its budget: a hung one must not hold its accelerator for ever."""

logger = logging.getLogger(__name__)


def register(engine: Engine) -> None:
    """Make the workflow known to DBOS in this process. Call it once, before DBOS is launched."""

    @DBOS.step(name="start")
    async def start(probe_id: str) -> list[str]:
        with transaction(engine) as session:
            if not start_probe(session, probe_id):
                return []
            return [arm.name for arm in probe_arms(session.get_one(Probe, probe_id).request)]

    @DBOS.step(name="arm", preemptible=True, timeout_seconds=ARM_TIMEOUT_SECONDS)
    async def run_arm(probe_id: str, arm_name: str) -> None:
        with transaction(engine) as session:
            spec = _load_arm(session, probe_id, arm_name)
            hardware = session.get_one(Probe, probe_id).hardware
            add_event(session, probe_id, "arm", arm=arm_name, state="started")
        async with aclosing(run_child(spec, hardware)) as messages:
            async for message in messages:
                with transaction(engine) as session:
                    keep_message(session, probe_id, arm_name, message)

    @DBOS.step(name="end")
    async def end(probe_id: str, status: str, error: str | None) -> None:
        with transaction(engine) as session:
            end_probe(session, probe_id, ProbeStatus(status), error)

    @DBOS.workflow(name=WORKFLOW_NAME)
    async def probe(probe_id: str) -> None:
        try:
            for arm_name in await start(probe_id):
                await run_arm(probe_id, arm_name)
        except Exception as error:
            reason = str(error) if isinstance(error, ArmError) else f"{type(error).__name__}: {error}"
            logger.warning("probe %s failed: %s", probe_id, reason)
            await end(probe_id, ProbeStatus.FAILED, reason)
        else:
            await end(probe_id, ProbeStatus.SUCCEEDED, None)


def _load_arm(session: Session, probe_id: str, arm_name: str) -> ArmSpec:
    """What is left to measure of an arm."""
    probe = session.get_one(Probe, probe_id)
    arms = probe_arms(probe.request)
    position = next(i for i, arm in enumerate(arms) if arm.name == arm_name)
    spent = (now() - (probe.started_at or now())).total_seconds()
    return arm_spec(
        probe.request,
        arms[position],
        prompts=session.get_one(PromptSet, probe.prompts_sha256).prompts,
        repeats=session.exec(select(Repeat).where(col(Repeat.probe_id) == probe_id, col(Repeat.arm) == arm_name)).all(),
        generations=session.exec(
            select(Generation).where(col(Generation.probe_id) == probe_id, col(Generation.arm) == arm_name)
        ).all(),
        # What is left of the budget is shared alike among the arms that are left.
        seconds=max(0.0, probe.request["budget_seconds"] - spent) / (len(arms) - position),
    )
