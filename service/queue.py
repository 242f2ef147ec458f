"""The client side of the durable queue. Puts jobs in and takes them out; never runs one, never launches DBOS.

A job is only a probe's id: everything else a worker reads from the probe's row.
"""

from dbos import DBOSClient, DBOSPortableJSONSerializer
from sqlalchemy import Engine
from sqlmodel import Session

from service.models import Probe

WORKFLOW_NAME = "probe"
# Bumped only when the order or the names of a workflow's steps change: half-done jobs stay with their version.
APPLICATION_VERSION = "1"


def queue_name(hardware: str) -> str:
    """The queue that workers of this hardware label listen on."""
    return f"hardware:{hardware}"


class ProbeQueue:
    """Where probes wait for a worker of their hardware."""

    def __init__(self, engine: Engine) -> None:
        self._client = DBOSClient(
            system_database_engine=engine,
            serializer=DBOSPortableJSONSerializer(),
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(self, session: Session, probe: Probe) -> None:
        """Queue the probe's job in the session's transaction: the row and its job are committed together."""
        self._client.enqueue_in_transaction(
            session,
            {
                "workflow_name": WORKFLOW_NAME,
                "queue_name": queue_name(probe.hardware),
                "workflow_id": probe.id,
                "app_version": APPLICATION_VERSION,
            },
            probe.id,
        )

    def cancel(self, probe_id: str) -> None:
        """Take the job out of the queue, or stop it within a second where it runs. Own transaction: commit first."""
        self._client.cancel_workflow(probe_id)

    def close(self) -> None:
        """Let go of the client; the engine stays open for its owner to dispose of."""
        self._client.destroy()
