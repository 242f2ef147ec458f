"""A body over 1 MB is answered with 413, however it comes, and is not kept."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from starlette.types import Message

from service.body_limit import BodyLimit
from service.schemas import LARGEST_BODY_BYTES
from service.settings import Settings
from tests.service.measured import request
from tests.service.served import serving
from tests.service.test_errors import problem_of

pytestmark = pytest.mark.sqlite_only

CHUNK = b" " * 65536


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    """The address of the real application, behind a real socket."""
    with serving(settings) as url:
        yield url


def body_of(size: int) -> bytes:
    """A valid request of this many bytes."""
    bare = json.dumps(request(workload={"prompts": [{"prompt": ""}]}))
    return bare.replace('"prompt": ""', f'"prompt": "{"x" * (size - len(bare))}"').encode()


def chunks(number: int) -> Iterator[bytes]:
    yield from [CHUNK] * number


def test_the_largest_body_is_taken_and_one_byte_more_is_not(url: str) -> None:
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=url, trust_env=False) as client:
        largest = client.post("/v1/probes", content=body_of(LARGEST_BODY_BYTES), headers=headers)
        assert largest.status_code == 202, largest.text
        too_large = client.post("/v1/probes", content=body_of(LARGEST_BODY_BYTES + 1), headers=headers)
        problem = problem_of(too_large, 413)
        assert problem["type"] == "urn:breakeven:problem:body-too-large"
        assert problem["limit_bytes"] == LARGEST_BODY_BYTES
        assert "has 1,000,001 bytes, and at most 1,000,000 are read: send fewer or shorter" in problem["detail"]


@pytest.mark.parametrize("content", [CHUNK * 800, "chunked"])
def test_a_client_that_sends_all_of_50_mb_gets_the_answer_and_goes_on(url: str, content: Any) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        answer = client.post("/v1/probes", content=chunks(800) if content == "chunked" else content)
        size = "52,428,800" if content != "chunked" else "more than 1,000,000"
        assert f"the body has {size} bytes" in problem_of(answer, 413)["detail"]
        assert client.get("/healthz").status_code == 200


def test_a_body_that_says_its_size_is_refused_before_it_is_sent(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(
            b"POST /v1/probes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000001\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_no_more_is_read_than_the_limit_and_the_piece_that_passes_it() -> None:
    read = threading.Semaphore(0)
    sent: list[Message] = []

    async def never_reached(*_: object) -> None:
        raise AssertionError("the application was asked")

    async def receive() -> Message:
        read.release()
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/probes", "headers": [], "query_string": b""}
    anyio.run(BodyLimit(never_reached, largest_bytes=10_000), scope, receive, send)
    assert sent[0]["status"] == 413
    assert sum(read.acquire(blocking=False) for _ in range(100)) == 11
