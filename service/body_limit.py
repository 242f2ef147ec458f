"""How much of a request's body is read at all. What is larger is answered, not kept."""

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLargeError
from service.problems import answer_of
from service.schemas import LARGEST_BODY_BYTES


class BodyLimit:
    """Reads a body before the application does, and answers in its place once that is larger than `largest_bytes`.

    A body that says its size is refused unread, so a client that asks first (Expect: 100-continue) never sends it. The
    connection stays open: the server throws away what still comes, and the client gets to read the answer.
    """

    def __init__(self, app: ASGIApp, largest_bytes: int = LARGEST_BODY_BYTES) -> None:
        self._app = app
        self._largest_bytes = largest_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"")
        if said.isdigit() and int(said) > self._largest_bytes:
            error = BodyTooLargeError(f"{int(said):,}", self._largest_bytes)
            await answer_of(Request(scope), error)(scope, receive, send)
            return
        messages, size = [], 0
        while True:
            messages.append(message := await receive())
            size += len(message.get("body", b""))
            if size > self._largest_bytes:
                error = BodyTooLargeError(f"more than {self._largest_bytes:,}", self._largest_bytes)
                await answer_of(Request(scope), error)(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        messages.reverse()

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)
