"""What endpoints ask for: the service of their app, and a transaction that is committed before the answer is sent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlmodel import Session

from service.database import transaction
from service.problems import PROBLEM_MEDIA_TYPE
from service.queue import ProbeQueue
from service.settings import Settings
from service.worker_process import WorkerProcess


@dataclass(frozen=True)
class Service:
    """What a running app holds."""

    settings: Settings
    engine: Engine
    queue: ProbeQueue
    own_worker: WorkerProcess | None = None
    """The worker that this process keeps, if it keeps one."""


def running_service(request: Request) -> Service:
    """The service of the app that answers this request."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


TheService = Annotated[Service, Depends(running_service)]


def _transaction(service: TheService) -> Iterator[Session]:
    with transaction(service.engine) as session:
        yield session


# Of scope "function": committed when the endpoint returns. The default would send the answer first and commit after.
Transaction = Annotated[Session, Depends(_transaction, scope="function")]


def problems(**descriptions: str) -> dict[int | str, dict[str, Any]]:
    """The problem documents that an endpoint may answer with, for OpenAPI: `_404="no such probe"`."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        int(status.removeprefix("_")): {"description": description, "content": content}
        for status, description in descriptions.items()
    }


REFUSED_BODY = problems(_413="the body is larger than 1 MB", _415="the body does not say that it is JSON")
WRONG_PARAMETER = problems(_422="a parameter is wrong; `errors` names each")
