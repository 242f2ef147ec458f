"""Advice on a target without experts."""

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from service.models import ProbeStatus
from tests.service.measured import ENGINE, insert_measurements, insert_probe


@pytest.mark.parametrize(
    ("told", "notes"), [({"experts": None}, 1), ({"experts": {"num": 32, "per_token": 4}}, 0), ({}, 0)]
)
def test_a_target_that_is_known_to_be_dense_is_advised_on_with_one_note(
    client: TestClient, engine: Engine, told: dict[str, object], notes: int
) -> None:
    probe_id = insert_probe(engine, status=ProbeStatus.SUCCEEDED, resolved={"engine": ENGINE, **told})
    insert_measurements(engine, probe_id, step_ms=14.0, tokens_per_step=2)
    document = client.get(f"/v1/probes/{probe_id}/advice").json()
    assert sum("the target is dense (no experts)" in warning for warning in document["warnings"]) == notes
    assert {row["verdict"] for row in document["batch_sizes"]} == {"enable"}
