"""Creating, finding and cancelling probes over HTTP."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text
from sqlmodel import select

from service.database import transaction
from service.models import Event, Probe, ProbeStatus, PromptSet
from service.probes import create_probe
from service.queue import APPLICATION_VERSION, WORKFLOW_NAME, ProbeQueue, queue_name
from service.schemas import ProbeRequest
from tests.databases import queue_table
from tests.service.measured import ENGINE, insert_probe, request


def jobs(engine: Engine) -> list[tuple[Any, ...]]:
    """Id, status, name, queue and version of every job."""
    columns = "workflow_uuid, status, name, queue_name, application_version"
    jobs = queue_table(engine, "workflow_status")
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT {columns} FROM {jobs}"))]


def test_a_new_request_is_accepted_with_its_job(client: TestClient, engine: Engine) -> None:
    answer = client.post("/v1/probes", json=request())
    probe = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/probes/{probe['id']}"
    assert probe["status"] == "queued"
    assert probe["progress"] == {"arm": None, "repeats_done": 0, "repeats_total": None}
    assert jobs(engine) == [(probe["id"], "ENQUEUED", WORKFLOW_NAME, queue_name("cpu"), APPLICATION_VERSION)]
    assert client.get(f"/v1/probes/{probe['id']}").json() == probe


def test_the_same_request_twice_gives_the_same_probe(client: TestClient, engine: Engine) -> None:
    first = client.post("/v1/probes", json=request(budget_seconds=60))
    second = client.post("/v1/probes", json=request(budget_seconds=90, batch_sizes=[4, 1]))
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json() == second.json()
    assert len(jobs(engine)) == 1


def test_the_same_request_many_times_at_once_gives_one_probe(client: TestClient, engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/probes", json=request()), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(jobs(engine)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"batch_sizes": [1, 2]},
        {"hardware": "1xH100-SXM"},
        {"target": {"model": "tiny-moe", "revision": "main"}},
        {"drafters": [{"method": "ngram", "options": {"prompt_lookup_max": 4}}]},
        {"workload": {"prompts": [{"prompt": "another"}]}},
        {"engine": "simulated"},
    ],
)
def test_whatever_changes_what_is_measured_makes_a_new_probe(client: TestClient, change: dict[str, Any]) -> None:
    assert client.post("/v1/probes", json=request()).status_code == 202
    assert client.post("/v1/probes", json=request(**change)).status_code == 202


def test_a_succeeded_probe_is_given_back_until_a_fresh_one_is_wanted(client: TestClient, engine: Engine) -> None:
    old = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    assert client.post("/v1/probes", json=request()).json()["id"] == old
    new = client.post("/v1/probes", json=request(fresh=True))
    assert new.status_code == 202
    assert new.json()["id"] != old
    # Nothing is fresher than one that has not ended.
    again = client.post("/v1/probes", json=request(fresh=True))
    assert (again.status_code, again.json()["id"]) == (200, new.json()["id"])


@pytest.mark.parametrize("status", [ProbeStatus.FAILED, ProbeStatus.CANCELLED])
def test_a_probe_without_success_is_not_given_back(client: TestClient, engine: Engine, status: ProbeStatus) -> None:
    old = insert_probe(engine, status=status)
    answer = client.post("/v1/probes", json=request())
    assert answer.status_code == 202
    assert answer.json()["id"] != old


def test_the_row_and_its_job_are_committed_together_or_not_at_all(engine: Engine) -> None:
    queue = ProbeQueue(engine)

    def interrupted() -> None:
        with transaction(engine) as session:
            _, created = create_probe(session, queue, ProbeRequest.model_validate(request()))
            assert created
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    queue.close()
    assert jobs(engine) == []
    with transaction(engine) as session:
        assert session.exec(select(Probe)).all() == []
        assert session.exec(select(PromptSet)).all() == []
        assert session.exec(select(Event)).all() == []


def test_prompts_are_kept_once_by_their_hash(client: TestClient, engine: Engine) -> None:
    one = client.post("/v1/probes", json=request()).json()
    other = client.post("/v1/probes", json=request(hardware="1xL4")).json()
    assert one["request"]["workload"]["prompts"] == "inline"
    assert one["request"]["workload"]["prompts_sha256"] == other["request"]["workload"]["prompts_sha256"]
    with transaction(engine) as session:
        (prompts,) = session.exec(select(PromptSet)).all()
    assert prompts.prompts == request()["workload"]["prompts"]


def test_built_in_prompts_are_stored_by_name_and_hash(client: TestClient, engine: Engine) -> None:
    workload = client.post("/v1/probes", json=request(workload={"prompts": "demo"})).json()["request"]["workload"]
    assert workload["prompts"] == "demo"
    with transaction(engine) as session:
        assert session.get_one(PromptSet, workload["prompts_sha256"]).prompts


def test_drafters_without_a_name_are_called_by_their_method(client: TestClient) -> None:
    drafters = [
        {"method": "ngram", "options": {"prompt_lookup_max": 2}},
        {"method": "ngram", "options": {"prompt_lookup_max": 4}},
        {"method": "draft_model", "model": "tiny", "name": "ngram-2"},
    ]
    stored = client.post("/v1/probes", json=request(drafters=drafters)).json()["request"]["drafters"]
    assert [drafter["name"] for drafter in stored] == ["ngram", "ngram-3", "ngram-2"]


@pytest.mark.parametrize("status", [ProbeStatus.QUEUED, ProbeStatus.RUNNING])
def test_cancelling_ends_a_probe_and_takes_its_job_off(client: TestClient, engine: Engine, status: ProbeStatus) -> None:
    probe_id = insert_probe(engine, status=status)
    answer = client.delete(f"/v1/probes/{probe_id}")
    assert answer.status_code == 202
    assert answer.json()["status"] == "cancelled"
    assert answer.json()["finished_at"] is not None
    assert jobs(engine)[0][:2] == (probe_id, "CANCELLED")
    with transaction(engine) as session:
        assert session.exec(select(Event.data)).all()[-1] == {"status": "cancelled"}


@pytest.mark.parametrize("status", [ProbeStatus.SUCCEEDED, ProbeStatus.FAILED, ProbeStatus.CANCELLED])
def test_a_probe_that_has_ended_cannot_be_cancelled(client: TestClient, engine: Engine, status: ProbeStatus) -> None:
    answer = client.delete(f"/v1/probes/{insert_probe(engine, status=status)}")
    assert answer.status_code == 409
    assert repr(status.value) in answer.json()["detail"]


def test_lists_are_newest_first_and_paged_without_gaps_or_repeats(client: TestClient, engine: Engine) -> None:
    ids = [insert_probe(engine, status=ProbeStatus.FAILED, days_old=age) for age in (3, 0, 4, 1, 2)]
    expected = [ids[i] for i in (1, 3, 4, 0, 2)]
    seen: list[str] = []
    cursor: str | None = None
    while len(seen) < 5:
        page = client.get("/v1/probes", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [probe["id"] for probe in page["probes"]]
        cursor = page["next_cursor"]
    assert seen == expected
    assert cursor is None


def test_a_probe_that_arrives_between_two_pages_shifts_nothing(client: TestClient, engine: Engine) -> None:
    ids = [insert_probe(engine, status=ProbeStatus.FAILED, days_old=age) for age in (1, 2, 3)]
    first = client.get("/v1/probes?limit=1").json()
    insert_probe(engine, status=ProbeStatus.FAILED)
    second = client.get("/v1/probes", params={"cursor": first["next_cursor"]}).json()
    assert [probe["id"] for probe in second["probes"]] == ids[1:]


def test_every_filter_keeps_what_it_names(client: TestClient, engine: Engine) -> None:
    def found(query: str) -> set[str]:
        answer = client.get("/v1/probes?" + query)
        assert answer.status_code == 200, answer.text
        return {probe["id"] for probe in answer.json()["probes"]}

    plain = insert_probe(engine, status=ProbeStatus.SUCCEEDED, days_old=10)
    other = insert_probe(engine, status=ProbeStatus.FAILED, target={"model": "other/moe"}, hardware="1xL4")
    newer = insert_probe(
        engine,
        status=ProbeStatus.SUCCEEDED,
        batch_sizes=[2],
        days_old=5,
        resolved={"engine": {**ENGINE, "version": "0.33.0"}},
    )
    unresolved = insert_probe(engine, status=ProbeStatus.QUEUED, batch_sizes=[3], resolved=None)
    everything = {plain, other, newer, unresolved}
    midpoint = client.get(f"/v1/probes/{newer}").json()["created_at"]

    assert found("") == everything
    assert found("model=other/moe") == {other}
    assert found("hardware=cpu") == everything - {other}
    assert found("engine_version=0.33.0") == {newer}
    assert found("status=succeeded") == {plain, newer}
    assert found("status=failed&status=queued") == {other, unresolved}
    assert found(f"since={midpoint}") == everything - {plain}
    assert found(f"until={midpoint}") == {plain}
    assert found("since=2001-01-01T00:00:00&hardware=1xL4&status=succeeded") == set()


def test_progress_is_what_the_last_events_tell(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    with transaction(engine) as session:
        for kind, data in (
            ("arm", {"arm": "baseline", "state": "loaded"}),
            ("repeat", {"arm": "baseline", "done": 1, "total": 40}),
            ("repeat", {"arm": "baseline", "done": 2, "total": 40}),
            ("arm", {"arm": "drafter:ngram", "state": "started"}),
            ("log", {"line": "loading weights"}),
        ):
            session.add(Event(probe_id=probe_id, kind=kind, data=data))
    expected = {"arm": "drafter:ngram", "repeats_done": 2, "repeats_total": 40}
    assert client.get(f"/v1/probes/{probe_id}").json()["progress"] == expected
    assert client.get("/v1/probes").json()["probes"][0]["progress"] == expected


def test_requests_survive_the_round_trip_through_the_database(client: TestClient, engine: Engine) -> None:
    target = {"model": "tiny-moe", "engine_args": {"enforce_eager": True, "nested": {"a": [1, 2.5, None, "ä"]}}}
    probe_id = client.post("/v1/probes", json=request(target=target)).json()["id"]
    with transaction(engine) as session:
        stored = session.get_one(Probe, probe_id).request
    assert stored["target"]["engine_args"] == target["engine_args"]
    assert json.loads(json.dumps(stored)) == stored
