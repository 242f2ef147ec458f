"""Everything that can go wrong in an answer. `service.problems` gives it the one form in which it is told.

    BreakevenError
        InvalidRequestError         422  what was sent cannot be used
            UnknownPromptSetError
            NoWorkerError                nobody would measure it; names the labels that have live workers
        NotFoundError               404  what was asked for does not exist
            ProbeNotFoundError
            NoEvidenceError              nothing was measured; offers the nearest that was
        ConflictError               409  it exists, in a state that forbids this
            ProbeIsFinalError
        BodyTooLargeError           413  more was sent than is read
        MediaTypeError              415  what was sent does not say that it is JSON
        NotReadyError               503  the service cannot answer yet
            DatabaseUnavailableError     its database is locked, full or away; says when to try again

A message names the value that was wrong and says what to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from service.validation_messages import echo


class BreakevenError(Exception):
    """The service cannot do what was asked."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    type = "about:blank"
    title = "Internal Server Error"

    @property
    def members(self) -> dict[str, Any]:
        """What the problem document holds beyond the members that RFC 9457 names."""
        return {}

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says beside the document."""
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
            f'{{"prompt": ...}} or {{"messages": ...}} objects (on the command line: a file that ends in .jsonl)',
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


class BodyTooLargeError(BreakevenError):
    """More was sent than is read. `size` is what is known of it, in bytes."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    type = "urn:breakeven:problem:body-too-large"
    title = "The body is too large"

    def __init__(self, size: str, limit_bytes: int) -> None:
        super().__init__(
            f"the body has {size} bytes, and at most {limit_bytes:,} are read: send fewer or shorter prompts, some "
            "dozens of those that you will serve are enough"
        )
        self.limit_bytes = limit_bytes

    @property
    def members(self) -> dict[str, Any]:
        return {"limit_bytes": self.limit_bytes}


class MediaTypeError(BreakevenError):
    """A body whose Content-Type is not JSON's. None stands for a request without that header."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    type = "urn:breakeven:problem:not-json"
    title = "The body does not say that it is JSON"

    def __init__(self, media_type: str | None) -> None:
        said = (
            f"Content-Type {echo(media_type)!r} is not JSON's" if media_type else "the header Content-Type is missing"
        )
        super().__init__(f"{said}: send JSON, with the header Content-Type: application/json")


class NotReadyError(BreakevenError):
    """The service cannot answer yet, or not any more."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    type = "urn:breakeven:problem:not-ready"
    title = "The service is not ready"


class DatabaseUnavailableError(NotReadyError):
    """The database cannot do what the request needs at the moment; nothing of it was kept."""

    type = "urn:breakeven:problem:database-unavailable"
    title = "The database cannot be used at the moment"

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_seconds)}
