"""Every error is a problem document that names the value and says what to do."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from service.app import create_app
from service.settings import Settings
from tests.service.measured import request


def problem_of(answer: Any, status: int) -> dict[str, Any]:
    """The problem document, after checking that it is one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem.keys() >= {"type", "title", "status", "detail", "instance"}
    assert problem["status"] == status
    return problem


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"batch_sizes": [0]}, "/batch_sizes/0", "greater than or equal to 1"),
        ({"batch_sizes": [1, -4]}, "/batch_sizes/1", "greater than or equal to 1"),
        ({"batch_sizes": [10**9]}, "/batch_sizes/0", "less than or equal to 1024"),
        ({"batch_sizes": [2, 4, 2]}, "/batch_sizes", "batch size 2 is given more than once"),
        ({"batch_sizes": []}, "/batch_sizes", "at least 1 item"),
        ({"max_draft_tokens": 0}, "/max_draft_tokens", "greater than or equal to 1"),
        ({"max_draft_tokens": 33}, "/max_draft_tokens", "less than or equal to 32"),
        ({"drafters": []}, "/drafters", "at least 1 item"),
        ({"drafters": [{"method": "a", "name": "x"}, {"method": "b", "name": "x"}]}, "/drafters", "'x'"),
        ({"arms": ["baseline", "drafters", "routing"]}, "/arms", "'routing' is planned but not measured yet"),
        ({"arms": ["baseline", "drafters", "verification"]}, "/arms", "measures baseline, drafters"),
        ({"arms": ["magic"]}, "/arms", "no arm 'magic'"),
        ({"arms": ["drafters"]}, "/arms", "'baseline' is missing"),
        ({"colour": "red"}, "/colour", "not permitted"),
        ({"target": {"model": ""}}, "/target/model", "at least 1 character"),
        ({"target": {"model": "a\x00b"}}, "/target/model", "pattern"),
        ({"hardware": "H100; DROP TABLE"}, "/hardware", "pattern"),
        ({"workload": {"prompts": []}}, "/workload/prompts", "at least 1 item"),
        ({"workload": {"prompts": 7}}, "/workload/prompts", "valid list"),
        ({"workload": {"prompts": [{"prompt": ""}]}}, "/workload/prompts/0/prompt", "at least 1 character"),
        ({"workload": {"prompts": [{"text": "a"}]}}, "/workload/prompts/0/text", "not permitted"),
        ({"workload": {"prompts": [{}]}}, "/workload/prompts/0", 'either "prompt" or "messages"'),
        ({"workload": {"prompts": "none-such"}}, "/workload/prompts", "use one of demo"),
        ({"workload": {"prompts": "demo", "temperature": 3}}, "/workload/temperature", "less than or equal to 2"),
        ({"workload": {"prompts": "demo", "context_lengths": [8, 8]}}, "/workload/context_lengths", "length 8"),
        ({"repeats": 2}, "/repeats", "greater than or equal to 3"),
        ({"engine": "magic"}, "/engine", "'vllm' or 'simulated'"),
    ],
)
def test_a_wrong_value_is_pointed_at(client: TestClient, change: dict[str, Any], pointer: str, words: str) -> None:
    problem = problem_of(client.post("/v1/probes", json=request(**change)), 422)
    (error,) = (each for each in problem["errors"] if each["pointer"] == pointer)
    assert words in error["detail"]
    assert words in problem["detail"]
    assert error["value"] == _at(request(**change), pointer)


def _at(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        document = document[int(step) if isinstance(document, list) else step]
    return document


def test_what_is_missing_is_named(client: TestClient) -> None:
    problem = problem_of(client.post("/v1/probes", json={"hardware": "cpu"}), 422)
    assert {error["pointer"] for error in problem["errors"]} == {"/target", "/drafters", "/batch_sizes", "/workload"}


@pytest.mark.parametrize("body", ["", "{", "[]", "7", "null", '{"a": 1}}', "\ufeff{}", '"\\ud800"'])
def test_a_body_that_is_no_request_is_refused(client: TestClient, body: str) -> None:
    answer = client.post("/v1/probes", content=body.encode(), headers={"content-type": "application/json"})
    problem_of(answer, answer.status_code)
    assert answer.status_code in (400, 422)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_refused(client: TestClient, number: str) -> None:
    for body in (
        request(workload={"prompts": "demo", "temperature": "?"}),
        request(target={"model": "m", "engine_args": {"a": "?"}}),
        request(drafters=[{"method": "ngram", "options": {"a": ["?"]}}]),
        request(workload={"prompts": [{"messages": [{"role": "user", "content": "a", "extra": "?"}]}]}),
    ):
        content = json.dumps(body).replace('"?"', number)
        problem_of(client.post("/v1/probes", content=content, headers={"content-type": "application/json"}), 422)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(request())), value=JSON)
@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
def test_no_value_anywhere_breaks_the_service(client: TestClient, field: str, value: Any) -> None:
    content = json.dumps(request() | {field: value})
    answer = client.post("/v1/probes", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 202, 422), answer.text


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("status=done", "status"),
        ("since=yesterday", "since"),
        ("colour=red", "colour"),
        ("cursor=xyz", "cursor"),
        ("cursor=WzEsMl0=", "cursor"),
        ("model=", "model"),
    ],
)
def test_a_wrong_filter_is_named(client: TestClient, query: str, parameter: str) -> None:
    (error,) = problem_of(client.get(f"/v1/probes?{query}"), 422)["errors"]
    assert error["parameter"] == parameter
    assert str(error["value"]) == query.split("=", 1)[1]


@pytest.mark.parametrize("path", ["", "/advice", "/cells", "/events"])
def test_a_probe_that_does_not_exist_is_named(client: TestClient, path: str) -> None:
    assert "'no-such-id'" in problem_of(client.get(f"/v1/probes/no-such-id{path}"), 404)["detail"]


def test_an_address_that_does_not_exist_is_a_problem_too(client: TestClient) -> None:
    problem_of(client.get("/v2/probes"), 404)


def test_a_method_that_is_not_possible_names_those_that_are(client: TestClient) -> None:
    answer = client.put("/v1/probes")
    problem_of(answer, 405)
    assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


def test_an_error_of_our_own_is_told_without_its_insides(settings: Settings, engine: Engine) -> None:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE event"))
        problem = problem_of(client.get("/v1/probes"), 500)
    assert "event" not in problem["detail"]
