"""A new probe needs a live worker of its hardware, or says that it waits for one."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from service.app import create_app
from service.database import transaction
from service.models import ProbeStatus, Worker, now
from service.settings import Settings
from service.worker_process import WorkerProcess
from service.worker_start import trouble_of_start
from tests.service.measured import insert_probe, request
from tests.service.served import insert_worker, run, serving
from tests.service.test_errors import problem_of

WAITING = "import sys; print('started', flush=True); sys.stdin.read()"
COMES_UP = """
import os, socket, sys, time
from service.database import open_engine, transaction
from service.models import Worker
from service.settings import Settings

time.sleep(1)
with transaction(open_engine(Settings(database_url=sys.argv[1]))) as session:
    session.add(Worker(id="own", hardware="cpu", host=socket.gethostname(), pid=os.getpid()))
sys.stdin.read()
"""


def impatient(**changes: Any) -> dict[str, Any]:
    """A request that does not wait for a worker."""
    return request(wait_for_worker=False, **changes)


def rows_of(engine: Engine) -> dict[str, int]:
    """How many probes, jobs, prompt sets and events there are."""
    jobs = "workflow_status" if engine.dialect.name == "sqlite" else "dbos.workflow_status"
    with engine.connect() as connection:
        return {
            table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            for table in ("probe", jobs, "prompt_set", "event")
        }


@contextmanager
def service_with_worker(settings: Settings, program: str) -> Iterator[TestClient]:
    """A service that keeps a worker which runs this program."""
    command = [sys.executable, "-c", program, settings.database_url]
    with (
        WorkerProcess(settings.home / "worker.log", command, grace_seconds=1) as worker,
        TestClient(create_app(settings, worker)) as client,
    ):
        yield client


def test_a_label_without_a_live_worker_is_refused_with_those_that_have_one(client: TestClient, engine: Engine) -> None:
    insert_worker(engine, "1xL4")
    with transaction(engine) as session:
        session.add(Worker(id="dead", hardware="cpu", host="h", pid=1, beat_at=now() - timedelta(seconds=61)))
    problem = problem_of(client.post("/v1/probes", json=impatient()), 422)
    assert problem["type"] == "urn:breakeven:problem:no-worker"
    assert problem["hardware"] == ["1xL4"]
    assert problem["errors"] == [{"pointer": "/hardware", "value": "cpu", "detail": problem["detail"]}]
    for words in ("'cpu'", "live workers are there for 1xL4", "breakeven worker --hardware cpu", "wait_for_worker"):
        assert words in problem["detail"]
    assert set(rows_of(engine).values()) == {0}


def test_without_any_worker_the_refusal_says_so(client: TestClient) -> None:
    problem = problem_of(client.post("/v1/probes", json=impatient()), 422)
    assert problem["hardware"] == []
    assert "no worker lives at all" in problem["detail"]


def test_a_live_worker_or_the_wish_to_wait_is_enough(client: TestClient, engine: Engine) -> None:
    waiting = client.post("/v1/probes", json=request())
    assert waiting.status_code == 202
    assert "wait_for_worker" not in waiting.json()["request"]
    insert_worker(engine, "1xL4")
    assert client.post("/v1/probes", json=impatient(hardware="1xL4")).status_code == 202


@pytest.mark.parametrize("status", [ProbeStatus.QUEUED, ProbeStatus.RUNNING, ProbeStatus.SUCCEEDED])
def test_a_probe_that_is_there_is_given_back_whatever_the_workers_do(
    client: TestClient, engine: Engine, status: ProbeStatus
) -> None:
    there = insert_probe(engine, status=status)
    answer = client.post("/v1/probes", json=impatient())
    assert (answer.status_code, answer.json()["id"]) == (200, there)


def test_a_request_waits_while_the_service_s_own_worker_starts(settings: Settings) -> None:
    with service_with_worker(settings, COMES_UP) as client:
        started = time.monotonic()
        assert client.post("/v1/probes", json=impatient()).status_code == 202
        assert time.monotonic() - started > 0.5
        # The worker is there by now: another label is refused at once.
        started = time.monotonic()
        assert problem_of(client.post("/v1/probes", json=impatient(hardware="1xL4")), 422)["hardware"] == ["cpu"]
        assert time.monotonic() - started < 5


def test_an_own_worker_that_dies_is_told_with_its_log(settings: Settings) -> None:
    with service_with_worker(settings, "import sys, time; time.sleep(1); sys.exit(7)") as client:
        problem = problem_of(client.post("/v1/probes", json=impatient()), 422)
    assert problem["type"] == "urn:breakeven:problem:no-worker"
    assert f"own worker ended with exit code 7 and is started again, {settings.home}/worker.log" in problem["detail"]


def test_an_own_worker_that_does_not_come_up_is_told_with_its_log(settings: Settings, engine: Engine) -> None:
    log = settings.home / "worker.log"
    with WorkerProcess(log, [sys.executable, "-c", WAITING], grace_seconds=1) as worker:
        trouble = trouble_of_start(worker, engine, settings.dead_seconds, patience_seconds=0.5)
    assert trouble == f"this service's own worker has not come up in 0.5 s, {log} may say why"


def test_nothing_is_locked_while_a_request_waits(settings: Settings, engine: Engine) -> None:
    with service_with_worker(settings, COMES_UP.replace("sleep(1)", "sleep(4)")) as client:
        answers: list[int] = []
        waiting = threading.Thread(
            target=lambda: answers.append(client.post("/v1/probes", json=impatient()).status_code)
        )
        waiting.start()
        time.sleep(1)
        insert_probe(engine, status=ProbeStatus.QUEUED, batch_sizes=[3])
        assert answers == []
        waiting.join()
    assert answers == [202]


def test_on_the_command_line_a_refusal_ends_with_2(settings: Settings) -> None:
    with serving(settings) as url:
        code, out, err = run("probe", "m", "--hardware", "1xH100-SXM", "--server", url)
        assert (code, out) == (2, "")
        assert "'1xH100-SXM'" in err
        assert "--wait-for-worker" in err
        assert run("probe", "m", "--hardware", "1xH100-SXM", "--wait-for-worker", "--server", url)[0] == 0
