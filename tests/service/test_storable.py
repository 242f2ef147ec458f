"""What one of the databases cannot keep, or not even be asked for, is refused on both, and breaks nothing."""

import base64
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from service.models import ProbeStatus
from tests.service.measured import insert_probe, request

NUL = "a\x00b"


def cursor(*position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"target": {"model": "m", "engine_args": {"deep": [{"er": NUL}]}}},
        {"target": {"model": "m", "engine_args": {NUL: 1}}},
        {"target": {"model": NUL}},
        {"drafters": [{"method": "ngram", "options": {"a": NUL}}]},
        {"workload": {"prompts": [{"prompt": NUL}]}},
        {"workload": {"prompts": [{"messages": [{"role": "user", "content": "a", "more": NUL}]}]}},
    ],
)
def test_a_nul_character_is_refused_wherever_it_is(client: TestClient, change: dict[str, Any]) -> None:
    assert client.post("/v1/probes", json=request(wait_for_worker=True, **change)).status_code == 422


@pytest.mark.parametrize("path", ["", "/events", "/cells", "/advice"])
def test_a_probe_whose_id_no_database_can_hold_does_not_exist(client: TestClient, path: str) -> None:
    assert client.get(f"/v1/probes/a%00b{path}").status_code == 404
    assert client.delete("/v1/probes/a%00b").status_code == 404


@pytest.mark.parametrize(
    "position",
    [
        ("2026-01-01T00:00:00+00:00", NUL),
        ("2026-01-01T00:00:00+00:00", "\ud800"),
        ("2026-01-01T00:00:00+00:00", 1),
        ("0001-01-01T00:00:00+14:00", "00000000-0000-0000-0000-000000000000"),
        (1, "00000000-0000-0000-0000-000000000000"),
        ("2026-01-01T00:00:00+00:00",),
    ],
)
def test_a_cursor_that_was_made_up_is_refused(client: TestClient, position: tuple[Any, ...]) -> None:
    answer = client.get("/v1/probes", params={"cursor": cursor(*position)})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "cursor"


@pytest.mark.parametrize("when", ["since=0001-01-01T00:00:00%2B14:00", "until=9999-12-31T23:59:59-14:00"])
def test_a_time_outside_of_the_calendar_is_refused(client: TestClient, when: str) -> None:
    answer = client.get(f"/v1/probes?{when}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == when.split("=")[0]


def test_the_first_and_the_last_time_of_the_calendar_are_taken(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED)
    found = client.get("/v1/probes?since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z").json()["probes"]
    assert [probe["id"] for probe in found] == [probe_id]


@pytest.mark.parametrize("number", [2**31, 2**63, 10**30])
def test_a_last_event_id_beyond_every_id_gives_nothing(client: TestClient, engine: Engine, number: int) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.FAILED)
    answer = client.get(f"/v1/probes/{probe_id}/events", headers={"Last-Event-ID": str(number)})
    assert (answer.status_code, answer.text) == (200, "")
