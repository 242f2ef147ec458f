"""The Python client of the HTTP interface. The command line uses nothing else to talk to a service.

CommandError                    each with the exit code that a command ends with
    ServerUnreachableError      5  no answer, or none of this service's
    RequestRefusedError         2  the service's problem document says what was wrong
        NothingMeasuredError    3  nothing that matches was measured; `problem["nearest"]` comes closest
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from httpx_sse import EventSource, SSEError, connect_sse
from pydantic import BaseModel, ValidationError

from service.documents import AdviceDocument, CellDocument, CellList, Hardware, HardwareList, ProbeDocument
from service.exit_codes import CommandError, ExitCode

ANSWER_SECONDS = 60.0
"""Longer than the pings of a silent event stream are apart."""
FINAL_STATUSES = frozenset({"succeeded", "failed", "cancelled"})
LOOPBACK = ("127.0.0.1", "::1", "localhost")
NO_EVIDENCE = "urn:breakeven:problem:no-evidence"

Document = TypeVar("Document", bound=BaseModel)


class ServerUnreachableError(CommandError):
    """The service cannot be reached, or what answers is not one."""

    exit_code = ExitCode.UNREACHABLE


class RequestRefusedError(CommandError):
    """The service refuses the request. `problem` is its RFC 9457 problem document."""

    exit_code = ExitCode.WRONG_USAGE

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or problem))
        self.problem = problem


class NothingMeasuredError(RequestRefusedError):
    """Nothing that matches the question was measured."""

    exit_code = ExitCode.NO_EVIDENCE


@dataclass(frozen=True)
class ProbeEvent:
    """One thing that happened to a probe: kind is status, arm, repeat, generation or log."""

    id: str
    kind: str
    data: Mapping[str, Any]

    @property
    def final(self) -> bool:
        """Whether it tells that the probe has ended."""
        return self.kind == "status" and self.data["status"] in FINAL_STATUSES


class Client:
    """A connection to the service at `url`; close it, or use it as a context manager.

    `reconnect_seconds` is how long a broken event stream is taken up again before the service counts as gone.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        reconnect_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._reconnect_seconds = reconnect_seconds
        try:
            host = httpx.URL(url).host
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=ANSWER_SECONDS,
            transport=transport,
            # A proxy of the environment is for other hosts.
            trust_env=host not in LOOPBACK,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def create_probe(self, request: Mapping[str, Any]) -> tuple[ProbeDocument, bool]:
        """Ask for a probe: its document, and whether it is new rather than one under way or measured before."""
        response = self._send("POST", "/v1/probes", json=request)
        return self._read(response, ProbeDocument), response.status_code == HTTPStatus.ACCEPTED

    def get_probe(self, probe_id: str) -> ProbeDocument:
        """Where a probe stands."""
        return self._read(self._send("GET", f"/v1/probes/{_segment(probe_id)}"), ProbeDocument)

    def cancel(self, probe_id: str) -> ProbeDocument:
        """Cancel a probe that has not ended."""
        return self._read(self._send("DELETE", f"/v1/probes/{_segment(probe_id)}"), ProbeDocument)

    def cells(self, probe_id: str) -> list[CellDocument]:
        """What was timed so far."""
        return self._read(self._send("GET", f"/v1/probes/{_segment(probe_id)}/cells"), CellList).cells

    def advice(self, probe_id: str) -> AdviceDocument:
        """The advice of a probe, as far as it is measured."""
        return self._read(self._send("GET", f"/v1/probes/{_segment(probe_id)}/advice"), AdviceDocument)

    def find_advice(self, model: str, hardware: str, **question: Any) -> AdviceDocument:
        """The advice of the newest succeeded probe that matches; NothingMeasuredError if there is none."""
        parameters = {"model": model, "hardware": hardware, **question}
        return self._read(self._send("GET", "/v1/advice", params=parameters), AdviceDocument)

    def hardware(self) -> list[Hardware]:
        """The hardware labels with live workers or waiting probes."""
        return self._read(self._send("GET", "/v1/hardware"), HardwareList).hardware

    def is_ready(self) -> bool:
        """Whether the service can do its work."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def events(self, probe_id: str, after: str = "") -> Iterator[ProbeEvent]:
        """What happens to a probe, from the beginning or after the event of this id, until it has ended.

        A broken stream is resumed where it was lost; ServerUnreachableError if that fails for `reconnect_seconds`.
        """
        heard_at = time.monotonic()
        while True:
            try:
                for event in self._stream(probe_id, after):
                    yield event
                    after, heard_at = event.id or after, time.monotonic()
                    if event.final:
                        return
                # A stream that ends without the last event has been resumed after it, or its server is stopping.
                if self.get_probe(probe_id).status in FINAL_STATUSES:
                    return
            except ServerUnreachableError:
                if time.monotonic() - heard_at > self._reconnect_seconds:
                    raise
            time.sleep(min(1.0, self._reconnect_seconds / 10))

    def _stream(self, probe_id: str, after: str) -> Iterator[ProbeEvent]:
        path = f"/v1/probes/{_segment(probe_id)}/events"
        try:
            with connect_sse(self._http, "GET", path, headers={"Last-Event-ID": after} if after else {}) as source:
                self._accept_stream(source)
                for event in source.iter_sse():
                    if event.data:
                        yield ProbeEvent(event.id, event.event, json.loads(event.data))
        except (httpx.TransportError, SSEError, json.JSONDecodeError) as error:
            raise self._unreachable(error) from error

    def _accept_stream(self, source: EventSource) -> None:
        if not source.response.is_success:
            source.response.read()
            self._raise_for_problem(source.response)

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **content)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        self._raise_for_problem(response)
        return response

    def _raise_for_problem(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "title" not in problem:
            raise ServerUnreachableError(
                f"what answers at {self.url} is not a Breakeven service: HTTP {response.status_code} without a problem "
                "document; check the address"
            )
        if response.is_server_error:
            raise ServerUnreachableError(f"the service at {self.url} cannot answer: {problem.get('detail')}")
        raise (NothingMeasuredError if problem.get("type") == NO_EVIDENCE else RequestRefusedError)(problem)

    def _read(self, response: httpx.Response, document: type[Document]) -> Document:
        try:
            return document.model_validate_json(response.content)
        except ValidationError as error:
            raise ServerUnreachableError(
                f"the answer of {self.url} is not one that this release reads ({error.error_count()} fields differ): "
                "check the address, and that both are of the same release"
            ) from error

    def _unreachable(self, error: Exception) -> ServerUnreachableError:
        return ServerUnreachableError(f"no service can be reached at {self.url}: {error or type(error).__name__}")


def _segment(probe_id: str) -> str:
    """An id as one segment of a path, whatever a person typed."""
    return quote(probe_id, safe="")
