import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.client import Client
from service.documents import AdviceDocument, ProbeDocument
from service.models import ProbeStatus
from service.settings import Settings
from tests.service.measured import insert_measurements, insert_probe
from tests.service.served import (
    breakeven,
    finished,
    heard,
    insert_worker,
    listening_socket,
    play_start,
    queued_probe,
    run,
    serving,
    until,
    worker_of,
)

# What commands say and how they end is the same on every database.
pytestmark = pytest.mark.sqlite_only

PROMPTS = "".join(json.dumps({"prompt": f"prompt {number}"}) + "\n" for number in range(8))
PROBE = ("tiny-moe", "--hardware", "cpu", "--batch-sizes", "1,4", "--max-draft-tokens", "2", "--wait-for-worker")


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    """The address of the real application."""
    with serving(settings) as url:
        yield url


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of eight prompts."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(PROMPTS)
    return file


def test_help_and_version_load_nothing_that_takes_long() -> None:
    loaded = "import sys, service.cli; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "pydantic", "sqlmodel", "uvicorn", "dbos", "fastapi", "rich.table", "numpy"} & set(modules)


def test_wrong_usage_ends_with_2(prompts: Path) -> None:
    prompts.write_text('{"prompt": "a"}\n{"prompts": "b"}\n')
    for arguments, told in [
        ((), "Usage"),
        (("probe", "m"), "--hardware"),
        (("probe", "m", "--hardware", "cpu", "--prompts", prompts), "line 2"),
        (("probe", "m", "--hardware", "cpu", "--budget", "20"), "20m"),
        (("advice",), "PROBE_ID"),
        (("advice", "x", "--model", "m"), "PROBE_ID"),
        (("advice", "x", "--server", "localhost"), "http://"),
    ]:
        code, out, err = run(*arguments)
        assert code == 2, (arguments, err)
        assert told in err + out


def test_a_probe_that_is_waited_for_gives_its_advice_alone_on_standard_output(
    url: str, engine: Engine, prompts: Path
) -> None:
    with worker_of(engine):
        code, out, err = run("probe", *PROBE, "--prompts", prompts, "--wait", "--json", "--server", url)
    assert code == 0, err
    advice = AdviceDocument.model_validate_json(out)
    assert advice.complete
    assert [row.verdict for row in advice.batch_sizes] == ["enable", "enable"]
    assert f"probe {advice.probe_id}: queued" in err
    assert "baseline: loading the engine" in err
    assert "1 of 4 repeats done" in err
    assert "\x1b" not in err


def test_a_probe_that_is_not_waited_for_prints_its_id_and_where_workers_are(url: str, engine: Engine) -> None:
    insert_worker(engine, "cpu")
    code, out, err = run("probe", "m", "--hardware", "1xH100-SXM", "--wait-for-worker", "--server", url)
    assert code == 0, err
    with Client(url) as client:
        probe = client.get_probe(out.strip())
    assert probe.request.batch_sizes == [1, 2, 4]
    assert [drafter.method for drafter in probe.request.drafters] == ["ngram"]
    assert "no worker works for 1xH100-SXM" in err
    assert "live workers are there for cpu" in err
    assert f"breakeven advice {probe.id} --server {url}" in err

    code, out, err = run("probe", "m", "--hardware", "1xH100-SXM", "--json", "--server", url)
    assert ProbeDocument.model_validate_json(out) == probe
    assert "--fresh" in err


def test_every_option_of_a_probe_arrives(url: str) -> None:
    code, out, err = run(
        *("probe", "org/m", "--hardware", "2xH100-SXM", "--drafter", "ngram,prompt_lookup_max=4"),
        *("--drafter", "eagle3:org/e", "--batch-sizes", "8,2", "--max-draft-tokens", "7", "--output-tokens", "64"),
        *("--prompts", "demo", "--context-lengths", "1024,8192", "--revision", "r", "--dtype", "bfloat16"),
        *("--quantization", "fp8", "--tensor-parallel", "2", "--temperature", "0.5", "--engine-arg", "eager=true"),
        *("--budget", "20m", "--fresh", "--wait-for-worker", "--json", "--server", url),
    )
    assert code == 0, err
    plan = ProbeDocument.model_validate_json(out).request
    target = {"model": "org/m", "revision": "r", "dtype": "bfloat16", "quantization": "fp8", "tensor_parallel": 2}
    assert plan.target.model_dump() == {**target, "engine_args": {"eager": True}}
    assert [drafter.model_dump() for drafter in plan.drafters] == [
        {"method": "ngram", "model": None, "options": {"prompt_lookup_max": 4}, "name": "ngram"},
        {"method": "eagle3", "model": "org/e", "options": {}, "name": "eagle3"},
    ]
    assert (plan.batch_sizes, plan.max_draft_tokens, plan.budget_seconds) == ([2, 8], 7, 1200)
    workload = plan.workload
    assert (workload.context_lengths, workload.output_tokens, workload.temperature) == ([1024, 8192], 64, 0.5)


def test_a_probe_that_fails_ends_with_4_and_says_why(url: str, engine: Engine) -> None:
    with worker_of(engine, error="the model m is not there"):
        code, out, err = run("probe", *PROBE, "--wait", "--json", "--server", url)
    assert code == 4, err
    assert not AdviceDocument.model_validate_json(out).complete
    assert "is failed: the model m is not there" in err


def test_what_the_service_refuses_ends_with_2_and_its_words(url: str) -> None:
    code, out, err = run("probe", "m", "--hardware", "cpu", "--batch-sizes", "0", "--server", url)
    assert (code, out) == (2, "")
    assert "breakeven: /batch_sizes/0" in err


def test_advice_is_read_in_100_columns_or_as_the_document(url: str, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    insert_measurements(engine, probe_id, step_ms=15, tokens_per_step=2)
    code, out, _ = run("advice", probe_id, "--server", url)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    assert "enable" in out

    code, out, _ = run("advice", "--model", "tiny-moe", "--hardware", "cpu", "--json", "--server", url)
    assert code == 0
    assert AdviceDocument.model_validate_json(out).probe_id == probe_id


def test_without_evidence_advice_ends_with_3(url: str, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED, hardware="busy")
    code, out, err = run("advice", probe_id, "--json", "--server", url)
    assert code == 3
    assert not AdviceDocument.model_validate_json(out).complete
    assert f"probe {probe_id} is queued" in err

    measured = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    code, out, err = run("advice", "--model", "tiny-moe", "--hardware", "gpu", "--server", url)
    assert (code, out) == (3, "")
    assert f"nearest: probe {measured}" in err

    # Nothing was timed in that one, so nothing is decided.
    assert run("advice", measured, "--server", url)[0] == 3


def test_a_server_that_is_not_there_ends_with_5() -> None:
    with listening_socket("127.0.0.1", 0) as placeholder:
        url = f"http://127.0.0.1:{placeholder.getsockname()[1]}"
    code, out, err = run("advice", "x", "--server", url)
    assert (code, out) == (5, "")
    assert "no service can be reached" in err
    assert "Traceback" not in err


def test_an_interrupted_command_leaves_the_probe_to_its_service(url: str, engine: Engine) -> None:
    insert_worker(engine, "cpu")
    command = breakeven("probe", *PROBE, "--wait", "--server", url)
    probe_id = until(lambda: queued_probe(engine))
    play_start(engine, probe_id)
    heard(command, "baseline: warming up")
    command.send_signal(signal.SIGINT)
    code, out, err = finished(command)
    assert (code, out) == (130, ""), err
    assert f"probe {probe_id} goes on without this command" in err
    assert f"curl -X DELETE {url}/v1/probes/{probe_id}" in err
    with Client(url) as client:
        assert client.get_probe(probe_id).status == "running"
