"""The application as a whole: health, hardware, and what it says of itself in OpenAPI."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from sqlalchemy import Engine, text

from service import examples
from service.app import create_app
from service.database import transaction
from service.models import ProbeStatus, Worker, now
from service.settings import Settings
from tests.service.measured import insert_probe, request
from tests.service.served import insert_worker


def test_a_migrated_service_lives_and_is_ready(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").status_code == 200


def test_a_service_on_an_old_schema_lives_but_is_not_ready(client: TestClient, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "breakeven serve" in answer.json()["detail"]


def test_a_service_without_its_database_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "breakeven.sqlite").mkdir()
    with TestClient(create_app(Settings(home=tmp_path))) as client:
        answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "BREAKEVEN_DATABASE_URL" in answer.json()["detail"]


def test_hardware_shows_live_workers_and_what_waits(client: TestClient, engine: Engine) -> None:
    running = insert_probe(engine, status=ProbeStatus.RUNNING, hardware="1xH100-SXM")
    insert_probe(engine, status=ProbeStatus.QUEUED, hardware="1xH100-SXM", batch_sizes=[2])
    insert_probe(engine, status=ProbeStatus.QUEUED, hardware="1xL4")
    insert_probe(engine, status=ProbeStatus.SUCCEEDED, hardware="1xB200")
    with transaction(engine) as session:
        for name, hardware, silent in (("a", "1xH100-SXM", 0), ("b", "1xH100-SXM", 50), ("c", "cpu", 70)):
            beat_at = now() - timedelta(seconds=silent)
            session.add(Worker(id=name, hardware=hardware, host="h", pid=1, engine="vllm 0.32.0", beat_at=beat_at))
    h100, l4 = client.get("/v1/hardware").json()["hardware"]
    assert h100 == {
        "label": "1xH100-SXM",
        "live_workers": 2,
        "engines": ["vllm 0.32.0"],
        "queued": 1,
        "running": [running],
    }
    assert l4 == {"label": "1xL4", "live_workers": 0, "engines": [], "queued": 1, "running": []}


@pytest.fixture(scope="module")
def openapi(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(Settings(home=tmp_path_factory.mktemp("openapi"))).openapi()


def schemas_with_examples(openapi: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in openapi["components"]["schemas"].items():
        if "examples" in schema:
            yield name, schema


def test_every_example_is_valid_against_the_schema_that_it_illustrates(openapi: dict[str, Any]) -> None:
    checked = []
    for name, schema in schemas_with_examples(openapi):
        whole = {**schema, "components": openapi["components"]}
        for example in schema["examples"]:
            Draft202012Validator(whole).validate(example)
        checked.append(name)
    assert {"ProbeRequest", "ProbeDocument", "AdviceDocument", "CellList", "HardwareList"} <= set(checked)


def test_every_body_and_answer_of_every_endpoint_has_an_example(openapi: dict[str, Any]) -> None:
    with_examples = {f"#/components/schemas/{name}" for name, _ in schemas_with_examples(openapi)}
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            bodies = [operation["requestBody"]] if "requestBody" in operation else []
            for body in [*bodies, *operation["responses"].values()]:
                schema = body.get("content", {}).get("application/json", {}).get("schema")
                assert schema is None or schema == {} or schema["$ref"] in with_examples, (method, path, schema)


def test_errors_are_documented_as_problem_documents(openapi: dict[str, Any]) -> None:
    for path, operations in openapi["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], path


def test_the_examples_of_requests_are_accepted(client: TestClient, engine: Engine) -> None:
    insert_worker(engine, "1xH100-SXM")
    for example in (examples.PROBE_REQUEST, examples.SMALLEST_REQUEST):
        assert client.post("/v1/probes", json=example).status_code == 202


def test_the_contract_s_names_are_all_there(openapi: dict[str, Any]) -> None:
    schemas = openapi["components"]["schemas"]
    assert schemas["AdviceDocument"]["properties"].keys() >= examples.ADVICE.keys()
    assert set(openapi["paths"]) >= {
        "/v1/probes",
        "/v1/probes/{probe_id}",
        "/v1/probes/{probe_id}/events",
        "/v1/probes/{probe_id}/cells",
        "/v1/probes/{probe_id}/advice",
        "/v1/advice",
        "/v1/hardware",
        "/healthz",
        "/readyz",
    }


def test_a_second_start_finds_what_the_first_one_kept(settings: Settings) -> None:
    with TestClient(create_app(settings)) as client:
        probe_id = client.post("/v1/probes", json=request()).json()["id"]
    with TestClient(create_app(settings)) as client:
        assert client.get(f"/v1/probes/{probe_id}").json()["status"] == "queued"
