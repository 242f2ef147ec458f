import itertools
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import Engine

from service.client import (
    Client,
    NothingMeasuredError,
    ProbeEvent,
    RequestRefusedError,
    ServerUnreachableError,
)
from service.exit_codes import ExitCode
from service.models import ProbeStatus
from service.settings import Settings
from tests.service.measured import insert_measurements, insert_probe, request
from tests.service.served import end_probe, insert_worker, listening_socket, play_start, serving, worker_of

# What the client makes of answers is the same on every database.
pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def service(settings: Settings) -> Iterator[Client]:
    """A client of the real application, behind a real socket."""
    with serving(settings) as url, Client(url + "/") as client:
        yield client


def test_a_probe_is_created_once_and_found_again(service: Client) -> None:
    probe, created = service.create_probe(request())
    again, created_again = service.create_probe(request())
    assert (created, created_again) == (True, False)
    assert probe == again == service.get_probe(probe.id)
    assert probe.status == "queued"


def test_events_are_those_of_the_whole_probe_until_it_has_ended(service: Client, engine: Engine) -> None:
    with worker_of(engine):
        probe, _ = service.create_probe(request())
        events = list(service.events(probe.id))
    assert [event.kind for event in events] == ["status", "status", "arm", "arm", "repeat", "log", "status"]
    assert [event.final for event in events] == [False] * 6 + [True]
    assert list(service.events(probe.id, after=events[-2].id)) == events[-1:]
    assert list(service.events(probe.id, after=events[-1].id)) == []


def test_advice_and_cells_are_read(service: Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    insert_measurements(engine, probe_id, step_ms=15, tokens_per_step=2)
    advice = service.advice(probe_id)
    assert [row.verdict for row in advice.batch_sizes] == ["enable", "enable"]
    assert service.find_advice("tiny-moe", "cpu", max_age="1d") == advice
    assert {cell.arm for cell in service.cells(probe_id)} == {"baseline", "drafter:ngram", "control"}


def test_hardware_lists_labels_with_live_workers(service: Client, engine: Engine) -> None:
    insert_worker(engine, "1xH100-SXM")
    assert [(each.label, each.live_workers) for each in service.hardware()] == [("1xH100-SXM", 1)]


def test_a_cancelled_probe_ends_its_events(service: Client) -> None:
    probe, _ = service.create_probe(request())
    assert service.cancel(probe.id).status == "cancelled"
    assert [event.data["status"] for event in service.events(probe.id)] == ["queued", "cancelled"]


def test_a_refusal_carries_the_problem_document(service: Client) -> None:
    with pytest.raises(RequestRefusedError, match="arm 'routing'") as error:
        service.create_probe(request(arms=["baseline", "drafters", "routing"]))
    assert error.value.exit_code is ExitCode.WRONG_USAGE
    assert error.value.problem["errors"][0]["pointer"] == "/arms"


@pytest.mark.parametrize("probe_id", ["nope", "a/b", "..", "ä?#%", "x y"])
def test_an_unknown_id_is_refused_whatever_it_holds(service: Client, probe_id: str) -> None:
    with pytest.raises(RequestRefusedError) as error:
        service.get_probe(probe_id)
    assert error.value.problem["status"] == 404
    with pytest.raises(RequestRefusedError):
        next(service.events(probe_id))


def test_nothing_measured_is_an_error_of_its_own_with_the_nearest(service: Client, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    with pytest.raises(NothingMeasuredError) as error:
        service.find_advice("tiny-moe", "1xH100-SXM")
    assert error.value.exit_code is ExitCode.NO_EVIDENCE
    assert [offer["probe_id"] for offer in error.value.problem["nearest"]] == [probe_id]


def test_a_stream_that_broke_goes_on_where_it_was_lost(settings: Settings, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED)
    with listening_socket("127.0.0.1", 0) as placeholder:
        port = placeholder.getsockname()[1]
    play_start(engine, probe_id)
    heard: list[ProbeEvent] = []
    with Client(f"http://127.0.0.1:{port}", reconnect_seconds=20) as client:
        events = client.events(probe_id)
        with serving(settings, port):
            heard += itertools.islice(events, 5)
        end_probe(engine, probe_id, ProbeStatus.SUCCEEDED)
        with serving(settings, port):
            heard += events
    assert [event.kind for event in heard] == ["status", "status", "arm", "arm", "repeat", "log", "status"]
    assert len({event.id for event in heard}) == len(heard)


def test_a_service_that_stays_away_is_unreachable() -> None:
    with listening_socket("127.0.0.1", 0) as placeholder:
        url = f"http://127.0.0.1:{placeholder.getsockname()[1]}"
    with Client(url, reconnect_seconds=0.1) as client:
        assert not client.is_ready()
        with pytest.raises(ServerUnreachableError, match=url) as error:
            client.hardware()
        with pytest.raises(ServerUnreachableError):
            next(client.events("any"))
    assert error.value.exit_code is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.Response(404, text="<html>not found</html>"), "not a Breakeven service"),
        (httpx.Response(200, text="hello"), "not one that this release reads"),
        (httpx.Response(200, json={"hardware": [{"label": "cpu"}]}), "not one that this release reads"),
        (httpx.Response(503, json={"title": "t", "detail": "no database"}), "cannot answer: no database"),
    ],
)
def test_what_is_no_answer_of_the_service_counts_as_unreachable(answer: httpx.Response, told: str) -> None:
    with (
        Client("http://else.where", transport=httpx.MockTransport(lambda _: answer)) as client,
        pytest.raises(ServerUnreachableError, match=told),
    ):
        client.hardware()


def test_an_address_that_is_none_is_unreachable() -> None:
    with pytest.raises(ServerUnreachableError):
        Client("http://[:::1")


def test_the_token_is_sent_as_a_bearer() -> None:
    sent: list[str | None] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        sent.append(asked.headers.get("Authorization"))
        return httpx.Response(200, json={"hardware": []})

    for token in ("secret", None):
        with Client("http://else.where", token, transport=httpx.MockTransport(answer)) as client:
            client.hardware()
    assert sent == ["Bearer secret", None]
