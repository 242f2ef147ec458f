"""A worker process: checks the schema, takes its accelerators, launches DBOS on its one queue, waits to be stopped."""

import logging
import os
import signal
import sys
import threading

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from service.database import open_engine, schema_is_current
from service.queue import APPLICATION_VERSION, queue_name
from service.settings import Settings
from workers import workflow
from workers.detect import hardware_label
from workers.presence import Presence, executor_id, hold_accelerators

QUEUE_POLL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class SchemaOutdatedError(Exception):
    """The database is not at this release's schema."""


def run_worker(settings: Settings, hardware: str | None, *, exit_with_stdin: bool) -> None:
    """Work until SIGTERM, SIGINT or, with `exit_with_stdin`, the end of stdin.

    A job that is under way then stays with this worker's id and goes on when the worker is started again.
    Raises AcceleratorTakenError, SchemaOutdatedError or MixedAcceleratorsError.
    """
    label = hardware or hardware_label()
    executor = executor_id(label)
    engine = open_engine(settings)
    if not schema_is_current(engine):
        raise SchemaOutdatedError(
            "the database is not at this release's schema: start `breakeven serve` of the same release on it first"
        )
    with hold_accelerators(executor, label, settings):
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        if exit_with_stdin:
            threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), daemon=True).start()

        config: DBOSConfig = {
            "name": "breakeven",
            "system_database_url": settings.database_url,
            "application_version": APPLICATION_VERSION,
            "executor_id": executor,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": False,
            "log_level": "WARNING",
        }
        DBOS(config=config)
        workflow.register(engine)
        DBOS.listen_queues([queue_name(label)])
        DBOS.launch()
        DBOS.register_queue(queue_name(label), worker_concurrency=1, polling_interval_sec=QUEUE_POLL_SECONDS)
        presence = Presence(engine, executor, label)
        logger.info("worker %s listens for probes on %s", executor, label)
        stop.wait()
        presence.leave()
        # Not an orderly end of DBOS, which would record the running arm as failed: the child dies with this
        # process, and the job is taken up again by the next worker of this id.
        os._exit(0)


def _stop_at_end_of_stdin(stop: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop.set()
