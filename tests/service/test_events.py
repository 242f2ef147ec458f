"""The stream of events, over a real socket from a real server."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import httpx
import pytest
import uvicorn
from httpx_sse import ServerSentEvent, connect_sse
from sqlalchemy import Engine

from service.app import create_app
from service.database import transaction
from service.events import add_event, events_after
from service.models import Event, Probe, ProbeStatus
from service.settings import Settings
from tests.service.measured import insert_probe


@pytest.fixture
def server(settings: Settings) -> Iterator[httpx.Client]:
    """A client of a server on a free port."""
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client
    server.should_exit = True
    thread.join(timeout=10)
    assert not thread.is_alive()


def tell(engine: Engine, probe_id: str, kind: str, **data: object) -> None:
    """What a worker does: the event, and the final status with it."""
    with transaction(engine) as session:
        session.add(Event(probe_id=probe_id, kind=kind, data=data))
        if kind == "status":
            session.get_one(Probe, probe_id).status = str(data["status"])


def events(client: httpx.Client, probe_id: str, last_event_id: str | None = None) -> Iterator[ServerSentEvent]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    with connect_sse(client, "GET", f"/v1/probes/{probe_id}/events", headers=headers) as source:
        assert source.response.status_code == 200
        yield from source.iter_sse()


def test_events_arrive_as_they_are_written_until_the_probe_has_ended(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED)
    stream = events(server, probe_id)
    first = next(stream)
    assert (first.event, json.loads(first.data)) == ("status", {"status": "queued"})

    tell(engine, probe_id, "status", status="running")
    tell(engine, probe_id, "repeat", arm="baseline", done=1, total=2)
    assert json.loads(next(stream).data) == {"status": "running"}
    repeat = next(stream)
    assert (repeat.event, json.loads(repeat.data)["done"]) == ("repeat", 1)

    tell(engine, probe_id, "log", line="two\nlines")
    tell(engine, probe_id, "status", status="succeeded")
    rest = list(stream)
    assert [event.event for event in rest] == ["log", "status"]
    assert json.loads(rest[0].data) == {"line": "two\nlines"}


def test_a_stream_is_resumed_after_the_last_event_that_was_seen(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED)
    insert_probe(engine, status=ProbeStatus.FAILED, hardware="1xL4")  # Its events are not ours.
    for number in range(5):
        tell(engine, probe_id, "log", line=str(number))
    tell(engine, probe_id, "status", status="failed", error="no such model")
    whole = list(events(server, probe_id))
    assert len(whole) == 7
    for position in range(7):
        resumed = list(events(server, probe_id, whole[position].id))
        assert [event.id for event in resumed] == [event.id for event in whole[position + 1 :]]


def test_a_stream_longer_than_a_page_loses_nothing(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    with transaction(engine) as session:
        session.add_all(Event(probe_id=probe_id, kind="log", data={"line": number}) for number in range(1201))
    tell(engine, probe_id, "status", status="succeeded")
    lines = [json.loads(event.data)["line"] for event in events(server, probe_id) if event.event == "log"]
    assert lines == list(range(1201))


def test_an_event_is_not_seen_while_one_before_it_is_being_written(engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    written, go_on = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction(engine) as session:
            add_event(session, probe_id, "log", line="first")
            session.flush()
            written.set()
            go_on.wait(20)

    def write_quickly() -> None:
        with transaction(engine) as session:
            add_event(session, probe_id, "log", line="second")

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write_slowly)]
        assert written.wait(20)
        writers.append(pool.submit(write_quickly))
        assert wait(writers, timeout=0.5).done == set()
        with transaction(engine) as session:
            seen = [*events_after(session, probe_id, 0)]
        go_on.set()
        for writer in writers:
            writer.result(20)
        with transaction(engine) as session:
            seen += events_after(session, probe_id, max((event.id or 0 for event in seen), default=0))
    assert [event.data["line"] for event in seen if event.kind == "log"] == ["first", "second"]


def test_a_reader_misses_nothing_of_many_writers(engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)

    def write(writer: int) -> None:
        for number in range(25):
            with transaction(engine) as session:
                add_event(session, probe_id, "log", line=f"{writer}-{number}")
                session.flush()
                time.sleep(0.002 * (number % 3))  # A commit comes later than its id.

    seen: list[Event] = []
    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, writer) for writer in range(4)]
        over = False
        while not over:
            over = all(writer.done() for writer in writers)
            with transaction(engine) as session:
                seen += events_after(session, probe_id, seen[-1].id or 0 if seen else 0)
        for done in writers:
            done.result()
    lines = [event.data["line"] for event in seen if event.kind == "log"]
    assert len(lines) == 100
    for number in range(4):
        assert [line for line in lines if line.startswith(f"{number}-")] == [f"{number}-{each}" for each in range(25)]


def test_cancelling_ends_the_stream(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    stream = events(server, probe_id)
    next(stream)
    with httpx.Client(base_url=server.base_url) as another:
        assert another.delete(f"/v1/probes/{probe_id}").status_code == 202
    assert [json.loads(event.data) for event in stream] == [{"status": "cancelled"}]


def test_clients_that_leave_do_not_keep_anything(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    for _ in range(30):  # More than the pool has connections.
        next(events(server, probe_id))
    assert server.get("/readyz").status_code == 200


def test_many_silent_streams_leave_the_service_free_to_answer(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    streams = [events(server, probe_id) for _ in range(40)]
    for stream in streams:
        next(stream)
    start = time.monotonic()
    assert server.get(f"/v1/probes/{probe_id}").status_code == 200
    assert time.monotonic() - start < 5
    tell(engine, probe_id, "status", status="succeeded")
    for stream in streams:
        assert [json.loads(event.data) for event in stream] == [{"status": "succeeded"}]


def test_a_probe_that_does_not_exist_has_no_stream(server: httpx.Client) -> None:
    answer = server.get("/v1/probes/nonesuch/events")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_last_event_id_that_is_no_number_is_refused(server: httpx.Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.FAILED)
    answer = server.get(f"/v1/probes/{probe_id}/events", headers={"Last-Event-ID": "abc"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["value"] == "abc"
