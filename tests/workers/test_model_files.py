"""What is read of a model before any engine is asked, on folders and on a hub of this machine's own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from workers.probe.engine import EngineError
from workers.probe.model_files import inner_value, read_config
from workers.probe.shipped import resolve_model

NOBODY_LISTENS = "http://127.0.0.1:9"


def refusal(model: str | Path, revision: str | None = None) -> str:
    with pytest.raises(EngineError) as refused:
        read_config(str(model), revision, "the target")
    return str(refused.value)


def folder(place: Path, config: str | bytes) -> Path:
    (place / "config.json").write_bytes(config if isinstance(config, bytes) else config.encode())
    return place


class Hub(BaseHTTPRequestHandler):
    """Has `org/model`; `org/gated` is gated, anything else unknown."""

    def do_HEAD(self) -> None:
        owner_and_name, revision = "/".join(self.path.split("/")[1:3]), self.path.split("/")[4]
        known = {"org/model": (200, ""), "org/gated": (403, "GatedRepo"), "org/bare": (404, "EntryNotFound")}
        status, code = known.get(owner_and_name, (404, "RepoNotFound"))
        if (status, revision == "main") == (200, False):
            status, code = 404, "RevisionNotFound"
        self.send_response(status)
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "abc")
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name that the library gave it
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def asked(models: list[tuple[str, str | None]], hub: str, home: Path, **variables: str) -> list[str]:
    """What a worker with this hub says of each (model, revision); the hub's client reads its settings on import."""
    program = (
        "import json, sys\n"
        "from workers.probe.engine import EngineError\n"
        "from workers.probe.model_files import read_config\n"
        "for model, revision in json.loads(sys.argv[1]):\n"
        "    try: print(read_config(model, revision, 'the target'))\n"
        "    except EngineError as error: print(error)\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(home), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(models)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_config_of_a_folder_is_what_its_file_says(tmp_path: Path) -> None:
    assert read_config(str(folder(tmp_path, '{"model_type": "llama"}')), None, "the target") == {"model_type": "llama"}
    shipped = read_config(resolve_model("breakeven/demo-moe"), None, "the target")
    assert shipped is not None
    assert shipped["num_experts"] == 32


@pytest.mark.parametrize("path", ["/nowhere/model", "./nowhere", "../nowhere/model", "a/b/nowhere", "~/nowhere"])
def test_a_path_that_is_not_there_is_named_as_the_worker_sees_it(path: str) -> None:
    said = refusal(path)
    assert said.startswith(f"the target {path!r} is not on this worker: there is no folder '{Path(path).absolute()}'.")
    assert "give a path that the worker sees, or an id of the Hugging Face hub" in said


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"the target '{tmp_path}' has no config.json on this worker: give the folder that holds config.json, the "
        "weights and the tokenizer."
    )
    (tmp_path / "params.json").write_text("{}")
    assert read_config(str(tmp_path), None, "the target") is None


def test_a_config_that_is_no_json_is_told_with_its_line_and_column(tmp_path: Path) -> None:
    assert refusal(folder(tmp_path, "{\n  'a': 1\n}")).startswith(
        f"'{tmp_path}/config.json' is not JSON, from line 2, column 3 on (Expecting property name enclosed in"
    )


def test_a_config_that_is_no_object_or_no_text_is_told(tmp_path: Path) -> None:
    assert "holds [1, 2], and should hold an object" in refusal(folder(tmp_path, "[1, 2]"))
    assert "cannot be read: 'utf-8' codec can't decode" in refusal(folder(tmp_path, b'{"a": "\xff"}'))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[" * 200_000, "is nested too deep for a file of a model: download the model again"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "cannot be read: Exceeds the limit"),
        ('{"num_attention_heads": 0}', "says num_attention_heads=0, and no model has less than one: correct it"),
        ('{"text_config": {"vocab_size": -1}}', "says vocab_size=-1, and no model has less than one"),
    ],
)
def test_a_config_that_can_be_no_models_is_told(tmp_path: Path, config: str, said: str) -> None:
    assert said in refusal(folder(tmp_path, config))


def weights(header: bytes, data_bytes: int) -> bytes:
    return len(header).to_bytes(8, "little") + header + b"0" * data_bytes


HEADER = b'{"__metadata__": {}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (weights(HEADER, 15), "is cut short: it has 105 bytes, and 106 by what it says at its beginning. Download it"),
        (b"", "is damaged: it does not begin as a safetensors file does. Download it again."),
        (b"version https://git-lfs.github.com/spec/v1", "is damaged"),
        (weights(b"not JSON", 16), "is damaged"),
        (weights(b'{"w": {}}', 16), "is damaged"),
        (weights(b"[1]", 16), "is damaged"),
        (HEADER, "is damaged"),
    ],
)
def test_weights_that_are_cut_short_or_none_are_told(tmp_path: Path, content: bytes, said: str) -> None:
    file = folder(tmp_path, '{"model_type": "llama"}') / "model.safetensors"
    file.write_bytes(content)
    assert refusal(tmp_path).startswith(f"'{file}' {said}")


@pytest.mark.parametrize("content", ["", '{"version": '])
def test_a_tokenizer_that_is_empty_or_cut_short_is_told(tmp_path: Path, content: str) -> None:
    file = folder(tmp_path, '{"model_type": "llama"}') / "tokenizer.json"
    file.write_text(content)
    assert refusal(tmp_path).startswith(f"'{file}' is not JSON, from line 1, column ")
    file.write_text("{}")
    read_config(str(tmp_path), None, "the target")


def test_whole_weights_pass(tmp_path: Path) -> None:
    for name, content in {"a": weights(HEADER, 16), "b": weights(b"{}   ", 0)}.items():
        (folder(tmp_path, '{"model_type": "llama"}') / f"{name}.safetensors").write_bytes(content)
    assert read_config(str(tmp_path), None, "the target") == {"model_type": "llama"}


def test_what_only_the_engine_can_tell_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert read_config(str(tmp_path / "model.gguf"), None, "the target") is None
    assert read_config("s3://bucket/model", None, "the target") is None


def test_a_name_that_is_neither_path_nor_id_is_told() -> None:
    assert refusal("a b").startswith(
        "the target 'a b' is neither a folder of this worker nor an id of the Hugging Face hub: Repo id must use"
    )


def test_a_hub_that_cannot_be_reached_is_told_within_seconds_and_with_what_to_do(tmp_path: Path) -> None:
    started = time.monotonic()
    (said,) = asked([("org/model", None)], NOBODY_LISTENS, tmp_path)
    assert time.monotonic() - started < 20
    assert said.startswith(
        "the target 'org/model' is neither a folder nor in the Hugging Face cache of this worker, and "
        f"{NOBODY_LISTENS} cannot be reached ("
    )
    assert "download it on the worker with `hf download org/model`" in said


def test_what_the_hub_says_of_a_model_is_told(hub: str, tmp_path: Path) -> None:
    models = [("org/model", None), ("org/model", "v9"), ("org/gated", None), ("org/nowhere", None), ("org/bare", None)]
    there, revision, gated, unknown, bare = asked(models, hub, tmp_path)
    assert (there, bare) == ("None", "None")
    assert (
        revision == "the target 'org/model' (revision 'v9'): the Hugging Face hub has the model, but not this revision."
    )
    assert gated == (
        f"the target 'org/gated' is gated: accept its terms on {hub}/org/gated, and set HF_TOKEN on the worker."
    )
    assert "the Hugging Face hub does not know it: correct the id or, if it is private, set HF_TOKEN" in unknown


def test_offline_only_the_cache_counts(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--org--cached" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "llama"}')
    refs = tmp_path / "hub" / "models--org--cached" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    cached, absent = asked([("org/cached", None), ("org/model", "v9")], NOBODY_LISTENS, tmp_path, HF_HUB_OFFLINE="1")
    assert cached == "{'model_type': 'llama'}"
    assert absent.endswith(
        "HF_HUB_OFFLINE forbids to look further: download it on the worker with `hf download org/model --revision v9`, "
        "or unset HF_HUB_OFFLINE."
    )


def test_a_field_is_found_in_the_model_that_another_wraps() -> None:
    assert inner_value({"vocab_size": 5, "text_config": {"vocab_size": 7}}, "vocab_size") == 5
    assert inner_value({"text_config": {"vocab_size": 7}}, "vocab_size") == 7
    assert inner_value({"transformer_layer_config": {"vocab_size": 8}}, "vocab_size") == 8
    assert inner_value({"text_config": None}, "vocab_size") is None
