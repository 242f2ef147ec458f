"""Cells: repeats added up."""

import csv
import io

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from service.documents import CellDocument
from service.models import ProbeStatus
from tests.service.measured import insert_measurements, insert_probe


@pytest.fixture
def probe_id(engine: Engine) -> str:
    probe_id = insert_probe(engine, status=ProbeStatus.RUNNING)
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    return probe_id


def test_repeats_are_added_up_by_cell(client: TestClient, probe_id: str) -> None:
    document = client.get(f"/v1/probes/{probe_id}/cells").json()
    assert document["probe_id"] == probe_id
    cells = {(cell["arm"], cell["batch_size"], cell["draft_tokens"]): cell for cell in document["cells"]}
    assert len(cells) == len(document["cells"]) == 2 + 2 + 6
    cell = cells["drafter:ngram", 4, 2]
    assert (cell["repeats"], cell["steps"], cell["context_length"]) == (5, 100, None)
    assert cell["step_ms"] == pytest.approx(14.0, rel=1e-3)
    assert cell["step_ms_low"] < cell["step_ms"] < cell["step_ms_high"]
    assert (cell["request_steps"], cell["emitted_tokens"], cell["drafted_tokens"]) == (400, 800, 800)
    assert cell["tokens_per_second"] == pytest.approx(4 * 2 / 0.014, rel=1e-2)


@pytest.mark.parametrize(
    ("query", "headers"), [("?format=csv", {}), ("", {"Accept": "text/csv"}), ("", {"Accept": "text/csv, */*;q=0.1"})]
)
def test_cells_come_as_csv_when_asked(client: TestClient, probe_id: str, query: str, headers: dict[str, str]) -> None:
    answer = client.get(f"/v1/probes/{probe_id}/cells{query}", headers=headers)
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    as_json = client.get(f"/v1/probes/{probe_id}/cells?format=json", headers=headers).json()["cells"]
    assert list(rows[0]) == list(CellDocument.model_fields)
    assert [{k: "" if v is None else str(v) for k, v in cell.items()} for cell in as_json] == rows


def test_a_probe_without_repeats_has_no_cells(client: TestClient, engine: Engine) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.QUEUED)
    assert client.get(f"/v1/probes/{probe_id}/cells").json() == {"probe_id": probe_id, "cells": []}
    assert client.get(f"/v1/probes/{probe_id}/cells?format=csv").text.count("\n") == 1
