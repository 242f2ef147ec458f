"""Input that is hostile or broken, at the edge of HTTP and of the command line: told, never a 500 or a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi.testclient import TestClient

from service.cli import arguments
from service.json_faults import DEEPEST_NESTING, first_fault
from service.settings import Settings
from tests.service.measured import request
from tests.service.served import breakeven, finished, listening_socket, run, serving
from tests.service.test_errors import problem_of

# What is refused before a database is asked is refused alike on both.
pytestmark = pytest.mark.sqlite_only

JSON = {"content-type": "application/json"}


def send(client: TestClient, body: Any, replacement: str) -> dict[str, Any]:
    """The problem that comes of a request in which "?" stands for this raw JSON."""
    content = json.dumps(body).replace('"?"', replacement)
    return problem_of(client.post("/v1/probes", content=content, headers=JSON), 422)


FREE_TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"target": {"model": "?"}}, "/target/model"),
    ({"target": {"model": "m", "revision": "?"}}, "/target/revision"),
    ({"target": {"model": "m", "engine_args": {"a": {"b": ["?"]}}}}, "/target/engine_args/a/b/0"),
    ({"drafters": [{"method": "ngram", "model": "?"}]}, "/drafters/0/model"),
    ({"drafters": [{"method": "ngram", "options": {"a/b": "?"}}]}, "/drafters/0/options/a~1b"),
    ({"hardware": "?"}, "/hardware"),
    ({"arms": ["?"]}, "/arms/0"),
    ({"workload": {"prompts": "?"}}, "/workload/prompts"),
    ({"workload": {"prompts": [{"prompt": "?"}]}}, "/workload/prompts/0/prompt"),
    (
        {"workload": {"prompts": [{"messages": [{"role": "user", "content": "?"}]}]}},
        "/workload/prompts/0/messages/0/content",
    ),
    (
        {"workload": {"prompts": [{"messages": [{"role": "user", "more": {"a": "?"}}]}]}},
        "/workload/prompts/0/messages/0/more/a",
    ),
    ({"colour": "?"}, "/colour"),
]


@pytest.mark.parametrize(("change", "pointer"), FREE_TEXTS)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"a\\u0000b"', "holds a NUL (the character U+0000), which PostgreSQL cannot store: remove it"),
        ('"a\\ud800b"', "holds half a character (\\ud800, a surrogate without its pair)"),
    ],
)
def test_text_that_cannot_be_stored_is_refused_wherever_it_stands(
    client: TestClient, change: dict[str, Any], pointer: str, text: str, told: str
) -> None:
    (error,) = send(client, request(**change), text)["errors"]
    assert error["pointer"] == pointer
    assert told in error["detail"]
    assert error["value"] == json.loads(text)


@pytest.mark.parametrize("name", ['"a\\u0000b"', '"a\\ud800b"'])
def test_a_name_that_cannot_be_stored_is_refused_too(client: TestClient, name: str) -> None:
    (error,) = send(client, request(target={"model": "m", "engine_args": {"?": 1}}), name)["errors"]
    assert error["pointer"] == "/target/engine_args"
    assert f"the name {json.loads(name)!a} holds" in error["detail"]


@pytest.mark.parametrize(
    "body",
    [
        request(target={"model": "m", "engine_args": {"a": "?"}}),
        request(drafters=[{"method": "ngram", "options": {"a": "?"}}]),
        request(workload={"prompts": [{"messages": [{"role": "user", "content": "a", "more": "?"}]}]}),
        request(batch_sizes="?"),
        "?",
    ],
)
@pytest.mark.parametrize("depth", [100, 500, 900, 10_000, 100_000])
def test_brackets_within_brackets_end_somewhere(client: TestClient, body: Any, depth: int) -> None:
    problem = send(client, body, "[" * depth + "]" * depth)
    assert "brackets within brackets" in problem["detail"] or "no JSON object" in problem["detail"]
    problem_of(client.post("/v1/probes", content="[" * depth, headers=JSON), 422)


def test_the_deepest_nesting_is_counted_from_the_whole_document() -> None:
    deep: Any = 0
    for _ in range(DEEPEST_NESTING):
        deep = [deep]
    assert first_fault(deep) is None
    fault = first_fault({"a": deep})
    assert fault is not None
    assert fault.pointer == "/a" + "/0" * (DEEPEST_NESTING - 1)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("1e400", "the number is inf, which JSON cannot say: give a finite one"),
        ("-1e400", "the number is -inf"),
        ("NaN", "the number is nan"),
        ("9" * 5000, "a whole number of thousands of digits"),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {"batch_sizes": ["?"]},
        {"target": {"model": "m", "engine_args": {"a": "?"}}},
        {"workload": {"prompts": "demo", "temperature": "?"}},
        {"fresh": "?"},
    ],
)
def test_a_number_beyond_all_use_is_refused(client: TestClient, change: dict[str, Any], number: str, told: str) -> None:
    assert told in send(client, request(**change), number)["detail"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "there is no body: send a JSON object"),
        (b"null", "there is no body: send a JSON object"),
        (b"[]", "[] is no JSON object: give one, /docs shows it"),
        (b'{"target": "\xff"}', "the body is not UTF-8, at byte 12: send it in that encoding"),
        (b'{"a": }', "this is not JSON: Expecting value at character 6"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(client: TestClient, content: bytes, told: str) -> None:
    assert told in problem_of(client.post("/v1/probes", content=content, headers=JSON), 422)["detail"]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, "the header Content-Type is missing"),
        ({"content-type": "text/plain"}, "Content-Type 'text/plain' is not JSON's"),
        ({"content-type": "application/x-www-form-urlencoded"}, "'application/x-www-form-urlencoded' is not JSON's"),
        ({"content-type": "multipart/form-data; boundary=x"}, "is not JSON's"),
    ],
)
def test_a_body_that_does_not_say_that_it_is_json_is_refused(
    client: TestClient, headers: dict[str, str], told: str
) -> None:
    problem = problem_of(client.post("/v1/probes", content=json.dumps(request()), headers=headers), 415)
    assert told in problem["detail"]
    assert "with the header Content-Type: application/json" in problem["detail"]


@pytest.mark.parametrize("size", [[8, 1, 4], [1.0, 4.0, 8.0]])
def test_batch_sizes_come_in_any_order_and_spelling(client: TestClient, size: list[float]) -> None:
    assert client.post("/v1/probes", json=request(batch_sizes=size)).json()["request"]["batch_sizes"] == [1, 4, 8]


@pytest.mark.parametrize(
    "probe_id", ["%00", "a%00b", "%2F", "..%2F..", "%FF", "%ED%A0%80", "%0a", "x" * 5000, "' OR 1=1 --", "🙂"]
)
def test_whatever_stands_for_an_id_is_not_found(client: TestClient, probe_id: str) -> None:
    for path in ("/advice", "/cells", "/events", "/routing"):
        problem_of(client.get(f"/v1/probes/{probe_id}{path}"), 404)
    # A slash alone is the list of probes.
    if probe_id != "%2F":
        problem_of(client.get(f"/v1/probes/{probe_id}"), 404)
        problem_of(client.delete(f"/v1/probes/{probe_id}"), 404)


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "", " ", "nan", "1e3"])
def test_an_event_id_that_is_none_is_refused(client: TestClient, last: str) -> None:
    probe_id = client.post("/v1/probes", json=request()).json()["id"]
    answer = client.get(f"/v1/probes/{probe_id}/events", headers={"Last-Event-ID": last})
    (error,) = problem_of(answer, 422)["errors"]
    assert error["parameter"] == "last-event-id"
    assert f'"{last}" is' in error["detail"] or f"{last} is less than 0" in error["detail"]


def test_a_question_with_wrong_parameters_names_each(client: TestClient) -> None:
    query = "model=%00&hardware=a%20b&temperature=warm&context_length=long&colour=red"
    problem = problem_of(client.get(f"/v1/advice?{query}"), 422)
    told = {error["parameter"]: error["detail"] for error in problem["errors"]}
    assert told.keys() == {"model", "hardware", "temperature", "context_length", "colour"}
    assert told["hardware"].startswith('"a b" is no hardware label: write')
    assert told["temperature"].startswith('"warm" is no number: give one')
    assert told["colour"].startswith("there is no such parameter: remove it")


def test_a_file_of_prompts_that_is_no_file_or_too_large_is_named(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    large.write_text('{"prompt": "a"}\n' * 100_000)
    for file, told in (
        (tmp_path, "the file cannot be read (Is a directory): name a file"),
        (tmp_path / "none.jsonl", "the file cannot be read (No such file or directory): name a file"),
        (large, "the file has more than the 1,000,000 bytes that a request can hold: keep fewer"),
        (Path("/dev/zero"), "the file has more than the 1,000,000 bytes"),
    ):
        with pytest.raises(typer.BadParameter) as error:
            arguments.prompts(str(file))
        assert str(file) in str(error.value)
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"hello", 'line 2 of the prompts is not {"prompt": ...} or {"messages": ...}: this is not JSON'),
        (b'{"promt": "b"}', "/promt there is no such field: remove it"),
        (b'{"prompt": "b", "messages": [{"role": "user", "content": "c"}]}', "this one has both: give one of them"),
        (b'{"prompt": "a\\u0000b"}', "/prompt the text holds a NUL"),
        (b'{"prompt": "a\\ud800b"}', "line 2"),
        (b"[" * 100_000, "line 2"),
        (b"\xff", "line 2 of the file is not UTF-8: save it in that encoding"),
    ],
)
def test_a_line_that_is_no_prompt_is_named_with_what_is_wrong(tmp_path: Path, line: bytes, told: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n' + line + b"\n")
    with pytest.raises(typer.BadParameter) as error:
        arguments.prompts(str(file))
    assert told in str(error.value)
    assert len(str(error.value)) < 400


def test_commands_tell_wrong_input_by_option_and_value(settings: Settings) -> None:
    probe = ("probe", "m", "--hardware", "cpu")
    with serving(settings) as url:
        for command, told in (
            ((*probe, "--batch-sizes", "0,1"), "/batch_sizes/0: 0 is less than 1: give at least 1"),
            ((*probe, "--batch-sizes", ""), "'--batch-sizes': '': write whole numbers with commas"),
            ((*probe, "--batch-sizes", "1,,2"), "'--batch-sizes': '1,,2': write whole numbers with commas"),
            ((*probe, "--batch-sizes", "1e9"), "'--batch-sizes': '1e9': write whole numbers with commas"),
            ((*probe, "--context-lengths", ""), "'--context-lengths': '': write whole numbers"),
            ((*probe, "--max-draft-tokens", "x"), "'--max-draft-tokens': 'x': write a whole number"),
            ((*probe, "--max-draft-tokens", "33"), "/max_draft_tokens: 33 is more than 32"),
            ((*probe, "--temperature", "nan"), "'--temperature': 'nan': write a number"),
            ((*probe, "--budget", ""), "'--budget': '': write a number and one of s, m, h"),
            ((*probe, "--prompts", "nosuch"), "on the command line: a file that ends in .jsonl"),
            (("probe", "m\udcff", "--hardware", "cpu"), "is not UTF-8: write it in that encoding"),
            (("advice", "m\udcff"), "is not UTF-8: write it in that encoding"),
        ):
            code, out, err = run(*command, "--server", url)
            # Long lines are broken to the width of the terminal.
            assert (code, out) == (2, ""), (command, err)
            assert told in " ".join(err.split()), (command, err)


def test_a_worker_is_told_that_its_label_is_none() -> None:
    for label in ("a b", "", "x" * 101, "a;b"):
        code, _, err = run("worker", "--hardware", label)
        assert code == 2
        assert "'--hardware'" in err
        assert "is no hardware label: write letters and digits" in " ".join(err.split()) or "101 characters" in err


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_is_none_is_named(port: str) -> None:
    code, _, err = run("serve", "--no-worker", "--port", port)
    assert code == 2
    assert f"'--port': '{port}': write a" in " ".join(err.split())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_that_is_taken_is_named_with_what_to_do(settings: Settings, host: str) -> None:
    with listening_socket(host, 0) as listener:
        port = listener.getsockname()[1]
        code, _, err = run("serve", "--no-worker", "--host", host, "--port", str(port), settings=settings)
    assert code == 2
    assert f"port {port} of {host} is taken by another program: stop that one, or choose another with --port" in err
    assert len(err.splitlines()) == 1


def test_a_token_that_no_header_can_hold_is_refused(settings: Settings) -> None:
    with serving(settings) as url:
        code, _, err = finished(breakeven("advice", "x", "--server", url, token="gehe\u00edm"))
    assert code == 2
    assert "BREAKEVEN_TOKEN holds a character" in err
