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
        ({"batch_sizes": [0]}, "/batch_sizes/0", "0 is less than 1: give at least 1"),
        ({"batch_sizes": [1, -4]}, "/batch_sizes/1", "-4 is less than 1: give at least 1"),
        ({"batch_sizes": [10**9]}, "/batch_sizes/0", "1000000000 is more than 1024: give at most 1024"),
        ({"batch_sizes": [2, 4, 2]}, "/batch_sizes", "batch size 2 is given more than once"),
        ({"batch_sizes": []}, "/batch_sizes", "the list is empty: name at least 1, such as [1, 2, 4, 8]"),
        ({"batch_sizes": [1.5]}, "/batch_sizes/0", "1.5 is no whole number: give one"),
        ({"batch_sizes": ["1"]}, "/batch_sizes/0", '"1" is no number: give one, without quotes'),
        ({"batch_sizes": [True]}, "/batch_sizes/0", "true is no number"),
        ({"batch_sizes": [None]}, "/batch_sizes/0", "null is no whole number"),
        ({"batch_sizes": [10**40]}, "/batch_sizes/0", "0 is more than 1024"),
        ({"batch_sizes": 4}, "/batch_sizes", "4 is no list: give one, in brackets, such as [1, 2, 4, 8]"),
        ({"batch_sizes": list(range(1, 66))}, "/batch_sizes", "65 are too many: name at most 64"),
        ({"max_draft_tokens": 0}, "/max_draft_tokens", "0 is less than 1: give at least 1, such as 5"),
        ({"max_draft_tokens": 33}, "/max_draft_tokens", "33 is more than 32: give at most 32"),
        ({"max_draft_tokens": "5"}, "/max_draft_tokens", '"5" is no number: give one, without quotes'),
        ({"drafters": []}, "/drafters", 'the list is empty: name at least 1, such as [{"method": "ngram"}]'),
        ({"drafters": [{"method": f"m{i}"} for i in range(17)]}, "/drafters", "17 are too many: name at most 16"),
        ({"drafters": ["ngram"]}, "/drafters/0", '"ngram" is no JSON object: give one, such as {"method": "ngram"'),
        (
            {"drafters": [{"method": "a b"}]},
            "/drafters/0/method",
            '"a b" is no drafter\'s method or name: write letters',
        ),
        ({"drafters": [{"method": "a", "name": "x"}, {"method": "b", "name": "x"}]}, "/drafters", "'x'"),
        ({"arms": ["baseline", "drafters", "routing"]}, "/arms", "'routing' is planned but not measured yet"),
        ({"arms": ["baseline", "drafters", "verification"]}, "/arms", "measures baseline, drafters"),
        ({"arms": ["magic"]}, "/arms", "no arm 'magic'"),
        ({"arms": ["drafters"]}, "/arms", "'baseline' is missing"),
        ({"colour": "red"}, "/colour", "there is no such field: remove it"),
        ({"target": {"model": ""}}, "/target/model", "the text is empty: give at least 1 character"),
        ({"target": {"model": "x" * 513}}, "/target/model", "has 513 characters: shorten it to at most 512"),
        ({"target": {"model": "a\nb"}}, "/target/model", "a line break or another control character: remove it"),
        ({"hardware": "H100; DROP TABLE"}, "/hardware", '"H100; DROP TABLE" is no hardware label: write letters'),
        ({"workload": {"prompts": []}}, "/workload/prompts", "the list is empty: name at least 1"),
        ({"workload": {"prompts": 7}}, "/workload/prompts", "7 is no list: give one"),
        ({"workload": {"prompts": [{"prompt": ""}]}}, "/workload/prompts/0/prompt", "give at least 1 character"),
        ({"workload": {"prompts": [{"prompt": 7}]}}, "/workload/prompts/0/prompt", "7 is no text: give one, in quotes"),
        ({"workload": {"prompts": [{"text": "a"}]}}, "/workload/prompts/0/text", "no such field: remove it"),
        ({"workload": {"prompts": [{}]}}, "/workload/prompts/0", "this one has neither: give one of them"),
        (
            {"workload": {"prompts": [{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}]}},
            "/workload/prompts/0",
            "this one has both: give one of them",
        ),
        ({"workload": {"prompts": "none-such"}}, "/workload/prompts", "use one of agent, chat, code, demo"),
        (
            {"workload": {"prompts": "demo", "temperature": 3}},
            "/workload/temperature",
            "3 is more than 2: give at most 2",
        ),
        ({"workload": {"prompts": "demo", "context_lengths": [8, 8]}}, "/workload/context_lengths", "length 8"),
        ({"repeats": 2}, "/repeats", "2 is less than 3: give at least 3"),
        ({"engine": "magic"}, "/engine", "\"magic\" is not possible: use 'vllm' or 'simulated'"),
        ({"fresh": "perhaps"}, "/fresh", '"perhaps" is neither true nor false'),
        ({"budget_seconds": "20m"}, "/budget_seconds", '"20m" is no number: give one'),
        ({"budget_seconds": 0}, "/budget_seconds", "0 is not above 0: give more"),
    ],
)
def test_a_wrong_value_is_pointed_at(client: TestClient, change: dict[str, Any], pointer: str, words: str) -> None:
    problem = problem_of(client.post("/v1/probes", json=request(**change)), 422)
    (error,) = (each for each in problem["errors"] if each["pointer"] == pointer)
    assert words in error["detail"]
    assert words in problem["detail"]
    value = _at(request(**change), pointer)
    # What is long is told by its beginning.
    assert error["value"] == (value if len(str(value)) <= 200 else str(value)[:200] + "…")


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
