"""Everything that can go wrong in an answer, and the one form in which it is told: RFC 9457 problem documents.

    BreakevenError
        InvalidRequestError         422  what was sent cannot be used
            UnknownPromptSetError
            NoWorkerError                nobody would measure it; names the labels that have live workers
        NotFoundError               404  what was asked for does not exist
            ProbeNotFoundError
            NoEvidenceError              nothing was measured; offers the nearest that was
        ConflictError               409  it exists, in a state that forbids this
            ProbeIsFinalError
        NotReadyError               503  the service cannot answer yet

A message names the value that was wrong and says what to do.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

PROBLEM_MEDIA_TYPE = "application/problem+json"
LONGEST_ECHO = 200


class BreakevenError(Exception):
    """The service cannot do what was asked."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    type = "about:blank"
    title = "Internal Server Error"

    @property
    def members(self) -> dict[str, Any]:
        """What the problem document holds beyond the members that RFC 9457 names."""
        return {}


class InvalidRequestError(BreakevenError):
    """What was sent cannot be used. `pointer` is the RFC 6901 pointer of the wrong value in the body."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    type = "urn:breakeven:problem:invalid-request"
    title = "The request cannot be used"

    def __init__(self, message: str, **error: Any) -> None:
        super().__init__(message)
        self.errors = [{**error, "detail": message}]

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": self.errors}


class UnknownPromptSetError(InvalidRequestError):
    """A name of built-in prompts that this release does not ship."""

    type = "urn:breakeven:problem:unknown-prompt-set"
    title = "There are no such prompts"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"no built-in prompts are named {name!r}: use one of {', '.join(known)}, or send a list of "
            f'{{"prompt": ...}} or {{"messages": ...}} objects',
            pointer="/workload/prompts",
            value=name,
        )


class NoWorkerError(InvalidRequestError):
    """No live worker works for the label, so a probe of it might wait forever. `reason` tells what else is known."""

    type = "urn:breakeven:problem:no-worker"
    title = "No worker works for this hardware"

    def __init__(self, label: str, live_labels: Sequence[str], reason: str | None = None) -> None:
        there = f"live workers are there for {', '.join(live_labels)}" if live_labels else "no worker lives at all"
        super().__init__(
            f"no live worker works for the hardware label {label!r}, and {there}"
            + (f" ({reason})" if reason else "")
            + f": start one with `breakeven worker --hardware {label}`, name a label that has one, or send "
            '"wait_for_worker": true (--wait-for-worker) to queue the probe until one works for it',
            pointer="/hardware",
            value=label,
        )
        self.label, self.live_labels = label, list(live_labels)

    @property
    def members(self) -> dict[str, Any]:
        return {**super().members, "hardware": self.live_labels}


class NotFoundError(BreakevenError):
    """What was asked for does not exist."""

    status = HTTPStatus.NOT_FOUND
    type = "urn:breakeven:problem:not-found"
    title = "It does not exist"


class ProbeNotFoundError(NotFoundError):
    """No probe has this id."""

    type = "urn:breakeven:problem:probe-not-found"
    title = "There is no such probe"

    def __init__(self, probe_id: str) -> None:
        super().__init__(f"no probe has the id {probe_id!r}: GET /v1/probes lists those that exist")


class NoEvidenceError(NotFoundError):
    """No finished probe matches; `nearest` are those that miss it least, each with what differs."""

    type = "urn:breakeven:problem:no-evidence"
    title = "Nothing that matches was measured"

    def __init__(self, model: str, hardware: str, nearest: Sequence[Mapping[str, Any]]) -> None:
        offer = "the nearest are listed under 'nearest'" if nearest else "nothing like it was measured either"
        super().__init__(
            f"no probe of {model!r} on {hardware!r} that matches this has succeeded, and {offer}: "
            "POST /v1/probes measures it"
        )
        self.nearest = list(nearest)

    @property
    def members(self) -> dict[str, Any]:
        return {"nearest": self.nearest}


class ConflictError(BreakevenError):
    """It exists, in a state that forbids this."""

    status = HTTPStatus.CONFLICT
    type = "urn:breakeven:problem:conflict"
    title = "Its state forbids this"


class ProbeIsFinalError(ConflictError):
    """A probe that has ended cannot be cancelled."""

    type = "urn:breakeven:problem:probe-is-final"
    title = "The probe has already ended"

    def __init__(self, probe_id: str, status: str) -> None:
        super().__init__(f"probe {probe_id} has already ended: its status is {status!r}, there is nothing to cancel")


class NotReadyError(BreakevenError):
    """The service cannot answer yet, or not any more."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    type = "urn:breakeven:problem:not-ready"
    title = "The service is not ready"


def problem(
    request: Request,
    status: int,
    detail: str,
    *,
    type: str = "about:blank",  # noqa: A002  (the member's name in RFC 9457)
    title: str | None = None,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The problem document of one failed request."""
    content = {
        "type": type,
        "title": title or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        **(members or {}),
    }
    # In ASCII, because a wrong value that is told back need not be valid Unicode.
    return Response(json.dumps(jsonable_encoder(content)), status, headers, media_type=PROBLEM_MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of this app, the framework's own included, with a problem document."""

    @app.exception_handler(BreakevenError)
    async def ours(request: Request, error: BreakevenError) -> Response:
        return problem(request, error.status, str(error), type=error.type, title=error.title, members=error.members)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = [_validation_error(each) for each in error.errors()]
        detail = "; ".join(
            f"{each.get('pointer') or each.get('parameter', 'body')}: {each['detail']}" for each in errors[:5]
        )
        return problem(
            request,
            InvalidRequestError.status,
            detail + (f"; and {len(errors) - 5} more" if len(errors) > 5 else ""),
            type=InvalidRequestError.type,
            title=InvalidRequestError.title,
            members={"errors": errors},
        )

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        detail = error.detail
        if error.status_code == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
            detail = f"nothing is at {request.url.path}: /docs lists what is"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method} is not possible at {request.url.path}: /docs lists what is"
        return problem(request, error.status_code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, _error: Exception) -> Response:
        detail = "this should not have happened, and the service's log says more: please report it"
        return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def _validation_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """One of pydantic's errors with its place as a JSON pointer (body) or a parameter's name (everything else)."""
    where, *path = error["loc"]
    detail = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "json_invalid":
        return {"pointer": "", "detail": f"this is not JSON: {error['ctx']['error']} at character {path[0]}"}
    if where == "body":
        # The names of a union's branches are pydantic's, not the body's: they are written in angle brackets here.
        steps = [str(step) for step in path if not str(step).startswith("<")]
        place = {"pointer": "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)}
    else:
        place = {"parameter": str(path[0])}
    # The input of a field that is missing is all that is there instead.
    value = {} if error["type"] == "missing" else {"value": _echo(error["input"])}
    return {**place, "detail": detail, **value}


def _echo(value: Any) -> Any:
    """The value as it came if it is short and JSON can say it, else the beginning of how Python writes it."""
    try:
        if len(json.dumps(value, allow_nan=False)) <= LONGEST_ECHO:
            return value
    except (TypeError, ValueError):
        pass
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"
