"""Advice from rows, and finding the probe that answers."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlmodel import select

from service.database import transaction
from service.models import Generation, ProbeStatus, Repeat
from tests.service.measured import ENGINE, insert_measurements, insert_probe


def advice_of(client: TestClient, probe_id: str) -> dict[str, Any]:
    answer = client.get(f"/v1/probes/{probe_id}/advice")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_drafter_that_pays_is_enabled_with_its_figures(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    document = advice_of(client, probe_id)

    assert document["complete"] is True
    assert document["evidence"] == "measured"
    assert document["engine"] == ENGINE
    assert document["revision"] == "abc123"
    assert document["engine_loads"] == 3
    # Baseline and control: 2 sizes, K=0. Drafter: 2 sizes, K=0 at 10 ms and K=1, 2 at 14 ms. 5 repeats of 20 steps.
    assert document["measured_seconds"] == pytest.approx(100 * (6 * 0.010 + 4 * 0.014), rel=1e-2)
    assert document["outputs"] == {
        "compared": 8,
        "diverged": 0,
        "diverged_baseline": 0,
        "failed": False,
        "divergences": [],
    }
    assert document["launch"] | {"value": None} == {
        "speculation": True,
        "drafter": "ngram",
        "max_draft_tokens": 1,
        "value": None,
    }
    assert [row["batch_size"] for row in document["batch_sizes"]] == [1, 4]
    for row in document["batch_sizes"]:
        assert (row["verdict"], row["drafter"], row["draft_tokens"]) == ("enable", "ngram", 1)
        assert row["speedup"] == pytest.approx(2 * 10 / 14, rel=5e-3)
        assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
        assert row["acceptance_length"] == 2
        assert row["draft_coverage"] == 1
        assert row["break_even_acceptance_length"] == pytest.approx(1.4, rel=5e-3)
        assert row["decode_step_ms"] == pytest.approx(10, rel=5e-3)
        assert row["step_ms"] == pytest.approx(14, rel=5e-3)
        assert row["verify_step_ms"] is row["target_efficiency"] is row["unique_experts"] is None
        assert {candidate["draft_tokens"] for candidate in row["candidates"]} == {1, 2}
        assert row["reason"]
    # Prompts as they came: the median of 30 to 37 tokens.
    assert document["schedule"] == [{"context_length": 34, "ranges": [[1, 4, 1], [5, 512, 0]]}]
    assert {row["context_length"] for row in document["batch_sizes"]} == {34}


def test_a_drafter_that_costs_more_than_it_gives_is_disabled(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    insert_measurements(engine, probe_id, step_ms=25.0, tokens_per_step=2)
    document = advice_of(client, probe_id)
    assert document["launch"]["speculation"] is False
    for row in document["batch_sizes"]:
        assert (row["verdict"], row["drafter"], row["draft_tokens"]) == ("disable", None, 0)
        assert row["speedup"] is None
        assert row["candidates"][0]["speedup"] == pytest.approx(0.8, rel=5e-3)


def test_before_anything_is_measured_every_size_asked_for_is_inconclusive(client: TestClient, engine: Engine) -> None:
    document = advice_of(client, insert_probe(engine, status=ProbeStatus.QUEUED, resolved=None))
    assert document["complete"] is False
    assert document["engine"] is None
    assert document["measured_seconds"] == 0
    assert [row["verdict"] for row in document["batch_sizes"]] == ["inconclusive"] * 2
    assert {row["context_length"] for row in document["batch_sizes"]} == {None}


def test_advice_can_be_read_after_every_single_row(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    with transaction(engine) as session:
        rows = [*session.exec(select(Repeat)), *session.exec(select(Generation))]
    for kept in range(0, len(rows), 7):
        with transaction(engine) as session:
            for row in rows:
                if (stored := session.get(type(row), _key(row))) is not None:
                    session.delete(stored)
        with transaction(engine) as session:
            session.add_all(type(row)(**row.model_dump()) for row in rows[:kept])
        document = advice_of(client, probe_id)
        assert document["complete"] is False
        assert [row["batch_size"] for row in document["batch_sizes"]] == [1, 4]


def _key(row: Repeat | Generation) -> dict[str, Any]:
    names = ["probe_id", "arm", "context_length", "batch_size", "draft_tokens"]
    names.append("repeat" if isinstance(row, Repeat) else "prompt")
    return {name: getattr(row, name) for name in names}


def test_each_context_length_has_its_own_rows_and_schedule(client: TestClient, engine: Engine) -> None:
    workload = {"prompts": "demo", "context_lengths": [2048, 256]}
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED, workload=workload)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    document = advice_of(client, probe_id)
    places = [(row["context_length"], row["batch_size"]) for row in document["batch_sizes"]]
    assert places == [(256, 1), (256, 4), (2048, 1), (2048, 4)]
    assert [schedule["context_length"] for schedule in document["schedule"]] == [256, 2048]
    assert document["outputs"]["compared"] == 16


def test_outputs_that_differ_from_the_baseline_are_named(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    with transaction(engine) as session:
        wrong = session.exec(
            select(Generation).where(
                Generation.arm == "drafter:ngram", Generation.draft_tokens == 2, Generation.prompt == 3
            )
        ).one()
        wrong.token_ids = [3, 1, 99]
    document = advice_of(client, probe_id)
    assert document["outputs"]["diverged"] == 1
    assert document["outputs"]["failed"] is True
    assert document["outputs"]["divergences"] == [{"drafter": "ngram", "draft_tokens": 2, "prompt": 3, "position": 2}]
    assert any("prompt 3" in warning for warning in document["warnings"])


def test_sampled_outputs_are_not_compared(client: TestClient, engine: Engine) -> None:
    workload = {"prompts": "demo", "temperature": 0.7}
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED, workload=workload)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    assert advice_of(client, probe_id)["outputs"] is None


def test_a_simulated_probe_never_reads_measured(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED, engine="simulated")
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    document = advice_of(client, probe_id)
    assert document["evidence"] == "simulated"
    assert "simulated" in document["warnings"][0]


def test_a_probe_that_failed_says_so_in_its_advice(client: TestClient, engine: Engine) -> None:
    document = advice_of(client, insert_probe(engine, status=ProbeStatus.FAILED))
    assert document["complete"] is False
    assert "failed" in document["warnings"][0]


def test_the_newest_succeeded_probe_answers(client: TestClient, engine: Engine) -> None:
    insert_probe(engine, status=ProbeStatus.SUCCEEDED, days_old=3)
    newest = insert_probe(engine, status=ProbeStatus.SUCCEEDED, days_old=2)
    insert_probe(engine, status=ProbeStatus.FAILED, days_old=1)
    insert_probe(engine, status=ProbeStatus.SUCCEEDED, hardware="1xL4")
    answer = client.get("/v1/advice?model=tiny-moe&hardware=cpu")
    assert answer.status_code == 200
    assert answer.json()["probe_id"] == newest


def test_every_part_of_the_question_narrows_the_answer(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(
        engine,
        status=ProbeStatus.SUCCEEDED,
        days_old=2,
        target={"model": "tiny-moe", "revision": "main", "quantization": "fp8", "tensor_parallel": 2},
        workload={"prompts": "demo", "context_lengths": [1024], "temperature": 0.5},
    )
    yes = (
        "revision=main",
        "revision=abc123",
        "dtype=auto",
        "dtype=bfloat16",
        "quantization=fp8",
        "tensor_parallel=2",
        "engine_version=0.32.0",
        "prompts=demo",
        "context_length=1024",
        "temperature=0.5",
        "max_age=3d",
        "max_age=72h",
    )
    no = (
        "revision=other",
        "dtype=float32",
        "quantization=awq",
        "tensor_parallel=1",
        "engine_version=0.31.0",
        "prompts=agent",
        "context_length=2048",
        "temperature=0",
        "max_age=1d",
        "max_age=30m",
    )
    for query in yes:
        answer = client.get(f"/v1/advice?model=tiny-moe&hardware=cpu&{query}")
        assert answer.json().get("probe_id") == probe_id, query
    for query in no:
        answer = client.get(f"/v1/advice?model=tiny-moe&hardware=cpu&{query}")
        assert answer.status_code == 404, query
        (offer,) = answer.json()["nearest"]
        assert (offer["probe_id"], offer["differs"]) == (probe_id, [query.split("=")[0]])


def test_without_a_match_the_nearest_of_the_model_are_offered_best_first(client: TestClient, engine: Engine) -> None:
    far = insert_probe(engine, status=ProbeStatus.SUCCEEDED, hardware="1xL4", days_old=50)
    near = insert_probe(engine, status=ProbeStatus.SUCCEEDED, hardware="1xH100-SXM", days_old=60, resolved={})
    insert_probe(engine, status=ProbeStatus.SUCCEEDED, target={"model": "another"})
    answer = client.get("/v1/advice?model=tiny-moe&hardware=1xH100-SXM&engine_version=0.32.0&prompts=inline")
    assert answer.status_code == 404
    assert [(offer["probe_id"], offer["differs"]) for offer in answer.json()["nearest"]] == [
        (far, ["hardware"]),
        (near, ["engine_version"]),
    ]
    assert client.get("/v1/advice?model=unheard-of&hardware=cpu").json()["nearest"] == []
