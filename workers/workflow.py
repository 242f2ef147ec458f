"""The durable workflow of a probe: start, one step per engine load, end.

A step that is run again, because its worker died or was stopped, finds the rows of the first attempt and measures only
what is missing. Bump `service.queue.APPLICATION_VERSION` when the order or the names of the steps change.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from dbos import DBOS
from dbos import error as dbos_error
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlmodel import Session, select

from service.database import database_time, transaction
from service.models import Generation, Probe, ProbeStatus, PromptSet, Repeat
from service.queue import WORKFLOW_NAME
from workers.child import ArmError, EngineProcess
from workers.plan import Arm, arm_spec, probe_arms
from workers.presence import Presence
from workers.probe.spec import ArmSpec
from workers.record import MOST_DEATHS, ArmRecord, JobLostError, ProbeEndedError, deaths_in_a_row, end_probe, take_probe
from workers.stopping import StopRequest

ARM_TIMEOUT_SECONDS = 4 * 3600
"""No engine load takes longer, whatever its budget: a hung one must not hold its accelerator for ever."""
STORE_PATIENCE_SECONDS = 120.0
"""How long a measurement waits for a database that cannot be written, as while its disk is full."""
STORE_PAUSE_SECONDS = 1.0

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def register(engine: Engine, presence: Presence, stop: StopRequest) -> None:
    """Make the workflow known to DBOS in this process. Call it once, before DBOS is launched."""
    worker = presence.executor
    engines = EngineProcess(presence.hardware)

    async def stored(write: Callable[[Session], Result], patience_seconds: float = STORE_PATIENCE_SECONDS) -> Result:
        return await _stored(engine, presence, write, patience_seconds)

    @DBOS.step(name="start")
    async def start(probe_id: str) -> list[str]:
        def take(session: Session) -> list[str]:
            probe = take_probe(session, probe_id, worker)
            return [arm.key for arm in probe_arms(probe.request)] if probe else []

        return await stored(take)

    @DBOS.step(name="arm", preemptible=True, timeout_seconds=ARM_TIMEOUT_SECONDS)
    async def run_arm(probe_id: str, key: str) -> str | None:
        """Why the arm could not be measured; None if it could. Returned, not raised: a replay gives it as it was."""
        try:
            await measure(probe_id, key)
        except ArmError as error:
            return str(error)
        return None

    async def measure(probe_id: str, key: str) -> None:
        def begin(session: Session) -> tuple[ArmRecord, ArmSpec] | None:
            probe = take_probe(session, probe_id, worker)
            if probe is None:
                return None
            arm = next(arm for arm in probe_arms(probe.request) if arm.key == key)
            _refuse_deadly(session, probe_id, arm)
            record = ArmRecord(probe_id, worker, arm)
            record.state(session, "started")
            return record, _missing(session, probe, arm)

        begun = await stored(begin)
        if begun is None or begun[1].measured:
            return
        record, spec = begun
        try:
            async with aclosing(engines.run(spec)) as messages:
                async for message in messages:
                    await stored(partial(record.keep, message=message))
                    stop.measuring()
                    if stop.made:
                        break
                else:
                    return
        except ProbeEndedError as ended:
            logger.info("%s: its engine is gone", ended)
            return
        except JobLostError as lost:
            presence.end(str(lost))
        finally:
            stop.let_go()
        # The step ends neither well nor badly: this process is about to end, and the job goes on elsewhere.
        await asyncio.Event().wait()

    @DBOS.step(name="end")
    async def end(probe_id: str, status: str, error: str | None) -> None:
        write = partial(end_probe, probe_id=probe_id, status=ProbeStatus(status), error=error)
        # However long it takes, or the probe would run for ever.
        await stored(write, math.inf)

    # Attempts are counted by what they measured (`deaths_in_a_row`), not by how many there were.
    @DBOS.workflow(name=WORKFLOW_NAME, max_recovery_attempts=None)
    async def probe(probe_id: str) -> None:
        try:
            reason = None
            for key in await start(probe_id):
                if reason := await run_arm(probe_id, key):
                    break
        except Exception as error:
            reason = _reason(error)
        if reason:
            logger.warning("probe %s failed: %s", probe_id, reason)
        await end(probe_id, ProbeStatus.FAILED if reason else ProbeStatus.SUCCEEDED, reason)


async def _stored(
    engine: Engine, presence: Presence, write: Callable[[Session], Result], patience_seconds: float
) -> Result:
    """What `write` gives, its transaction committed; tried again while the database cannot be written.

    Raises ArmError if it cannot for long.
    """

    def in_transaction() -> Result:
        presence.end_if_fenced()
        with transaction(engine) as session:
            return write(session)

    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return await asyncio.to_thread(in_transaction)
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() > deadline:
                raise ArmError(
                    f"the database could not be written for {patience_seconds:.0f} s ({error.orig}): free its "
                    "disk, or end what keeps it locked, and ask for the probe again"
                ) from error
            logger.warning("the database cannot be written, trying again: %s", error.orig)
            await asyncio.sleep(STORE_PAUSE_SECONDS)


def _refuse_deadly(session: Session, probe_id: str, arm: Arm) -> None:
    deaths = deaths_in_a_row(session, probe_id)
    if deaths >= MOST_DEATHS:
        raise ArmError(
            f"{deaths} workers in a row died in {arm.key} before they had measured anything: see their logs and the "
            "system's (too little memory, a driver's fault), then ask for the probe again"
        )


def _missing(session: Session, probe: Probe, arm: Arm) -> ArmSpec:
    """What is left to measure of an arm."""
    arms = probe_arms(probe.request)
    time_there = database_time(session)
    spent = (time_there - (probe.started_at or time_there)).total_seconds()
    return arm_spec(
        probe.request,
        arm,
        prompts=session.get_one(PromptSet, probe.prompts_sha256).prompts,
        repeats=session.exec(select(Repeat).where(Repeat.probe_id == probe.id, Repeat.arm == arm.name)).all(),
        generations=session.exec(
            select(Generation).where(Generation.probe_id == probe.id, Generation.arm == arm.name)
        ).all(),
        # What is left of the budget is shared alike among the arms that are left.
        seconds=max(0.0, probe.request["budget_seconds"] - spent) / (len(arms) - arms.index(arm)),
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ArmError):
        return str(error)
    if isinstance(error, dbos_error.DBOSStepTimeoutError):
        return (
            f"an arm took longer than {ARM_TIMEOUT_SECONDS / 3600:g} hours, and was ended: ask for fewer batch sizes, "
            "draft tokens or output tokens, or look in the worker's log for what the engine waits for"
        )
    return f"{type(error).__name__}: {error}"
