"""A worker process: checks the schema, takes its accelerators, launches DBOS on its one queue, waits to be stopped."""

import logging
import os
import signal
import sys
import threading

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from service.database import open_engine, schema_is_current
from service.exit_codes import CommandError
from service.queue import APPLICATION_VERSION, queue_name
from service.settings import Settings
from workers import workflow
from workers.detect import device_ids, hardware_label
from workers.presence import Presence, executor_id, hold_accelerators
from workers.stopping import StopRequest

QUEUE_POLL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class SchemaOutdatedError(CommandError):
    """The database is not at this release's schema."""


def run_worker(settings: Settings, hardware: str | None, *, exit_with_stdin: bool) -> None:
    """Work until SIGTERM, SIGINT or, with `exit_with_stdin`, the end of stdin.

    The repeat that is under way then is finished, and its job handed back to the queue.
    Raises AcceleratorTakenError, OtherHostError, SchemaOutdatedError or MixedAcceleratorsError.
    """
    label = hardware or hardware_label()
    devices = device_ids(label, settings.home)
    executor = executor_id(label, devices)
    engine = open_engine(settings)
    if not schema_is_current(engine):
        raise SchemaOutdatedError(
            "the database is not at this release's schema: start `breakeven serve` of the same release on it first"
        )
    with hold_accelerators(label, devices, settings):
        stop = StopRequest()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.make())
        if exit_with_stdin:
            threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), daemon=True).start()
        presence = Presence(engine, settings, executor, label)
        presence.join()

        config: DBOSConfig = {
            "name": "breakeven",
            "system_database_url": settings.database_url,
            "sys_db_idle_transaction_timeout_sec": settings.fence_seconds,
            "application_version": APPLICATION_VERSION,
            "executor_id": executor,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": False,
            "log_level": "WARNING",
        }
        DBOS(config=config)
        workflow.register(engine, presence, stop)
        DBOS.listen_queues([queue_name(label)])
        DBOS.launch()
        DBOS.register_queue(queue_name(label), worker_concurrency=1, polling_interval_sec=QUEUE_POLL_SECONDS)
        presence.look_after_others()
        logger.info("worker %s listens for probes on %s", executor, label)
        stop.wait()
        if not stop.wait_for_engine(settings.stop_seconds):
            logger.warning("the repeat under way took longer than %g s, and is lost", settings.stop_seconds)
        presence.leave()
        # Not an orderly end of DBOS, which would record the running arm as failed.
        os._exit(0)


def _stop_at_end_of_stdin(stop: StopRequest) -> None:
    sys.stdin.buffer.read()
    # Whoever started this worker was killed: its accelerator is wanted back.
    stop.make_at_once()
