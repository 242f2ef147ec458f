"""The one form in which an error is told: an RFC 9457 problem document. Knows the framework's errors beside ours."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.errors import BreakevenError, InvalidRequestError, MediaTypeError
from service.validation_messages import described

PROBLEM_MEDIA_TYPE = "application/problem+json"
LONGEST_PLACE = 80


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


def answer_of(request: Request, error: BreakevenError) -> Response:
    """The problem document of an error of ours."""
    return problem(
        request,
        error.status,
        str(error),
        type=error.type,
        title=error.title,
        members=error.members,
        headers=error.headers,
    )


def install(app: FastAPI) -> None:
    """Answer every error of this app, the framework's own included, with a problem document."""

    @app.exception_handler(BreakevenError)
    async def ours(request: Request, error: BreakevenError) -> Response:
        return answer_of(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        if isinstance(error.body, bytes):
            # The framework has not even tried to read it.
            return answer_of(request, MediaTypeError(request.headers.get("content-type")))
        errors = [described(each, request.url.path.rstrip("/")) for each in error.errors()]
        detail = "; ".join(f"{_place(each)}: {each['detail']}" for each in errors[:5])
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
        if error.status_code == HTTPStatus.BAD_REQUEST and error.__cause__:
            return answer_of(request, InvalidRequestError(_unreadable(error.__cause__), pointer=""))
        if error.status_code == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
            detail = f"nothing is at {request.url.path}: /docs lists what is"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method} is not possible at {request.url.path}: /docs lists what is"
        return problem(request, error.status_code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, _error: Exception) -> Response:
        detail = "this should not have happened, and the service's log says more: please report it"
        return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def _place(error: Mapping[str, Any]) -> str:
    place = str(error.get("pointer") or error.get("parameter") or "body")
    return place if len(place) <= LONGEST_PLACE else place[:LONGEST_PLACE] + "…"


def _unreadable(cause: BaseException) -> str:
    """Why the framework could not make anything of a body."""
    match cause:
        case RecursionError():
            return "the body is nested too deep to be read: send fewer brackets within brackets"
        case UnicodeDecodeError():
            return f"the body is not UTF-8, at byte {cause.start}: send it in that encoding"
        case ValueError() if "digit" in str(cause):
            return "the body holds a whole number of thousands of digits, which nothing here takes: send a shorter one"
    return "the body cannot be read: send JSON in UTF-8"
