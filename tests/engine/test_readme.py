"""README's session through REST, word for word, on the real engine through the real queue."""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import Session, select

from service.client import Client
from service.database import open_engine
from service.models import Generation, Repeat
from service.science import fit_pace
from service.settings import Settings

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).parents[2]
BREAKEVEN = Path(sys.executable).with_name("breakeven")


def readme_session() -> str:
    """The block of shell commands that README shows for REST."""
    section = (REPOSITORY / "README.md").read_text().split("## The same through REST")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    assert len(blocks) == 2
    assert blocks[0] == ".venv/bin/breakeven serve\n"
    session: str = blocks[1]
    return session


class Served:
    """A service with its worker, and what README's session printed when it was run against it."""

    def __init__(self, home: Path, url: str, printed: str, client: Client) -> None:
        self.home, self.url, self.printed, self.client = home, url, printed, client
        self.advice: dict[str, Any] = httpx.get(
            f"{url}/v1/advice", params={"model": "breakeven/demo-moe", "hardware": "cpu"}
        ).json()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    others = {name: value for name, value in os.environ.items() if not name.endswith("DATABASE_URL")}
    environment = others | {"BREAKEVEN_HOME": str(home)}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([BREAKEVEN, "serve", "--port", str(port)], env=environment) as service:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    if httpx.get(f"{url}/readyz").is_success:
                        break
                except httpx.TransportError:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
            session = readme_session().replace("127.0.0.1:8421", f"127.0.0.1:{port}")
            printed = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", session],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                check=True,
                timeout=1100,
            ).stdout
            with Client(url) as client:
                yield Served(home, url, printed, client)
        finally:
            service.terminate()


def test_the_session_ends_with_a_succeeded_probe_and_its_advice(served: Served) -> None:
    assert 'data: {"status": "succeeded", "error": null}' in served.printed
    assert served.printed.count(f'"probe_id":"{served.advice["probe_id"]}"') == 2
    assert "drafter:draft_model" in served.printed
    assert served.advice["complete"] is True
    assert (served.advice["evidence"], served.advice["engine"]["name"]) == ("measured", "vllm")


def test_four_engine_loads_measure_every_batch_size_at_every_k_with_both_drafters(served: Served) -> None:
    assert served.advice["engine_loads"] == 4
    assert [row["batch_size"] for row in served.advice["batch_sizes"]] == [1, 2, 4, 8]
    every = {(drafter, k) for drafter in ("ngram", "draft_model") for k in range(1, 6)}
    for row in served.advice["batch_sizes"]:
        assert {(c["drafter"], c["draft_tokens"]) for c in row["candidates"]} == every
        assert row["verdict"] in ("enable", "disable", "inconclusive")
        assert all(c["speedup_low"] < c["speedup"] < c["speedup_high"] for c in row["candidates"])


def test_outputs_are_those_of_the_baseline(served: Served) -> None:
    assert served.advice["outputs"]["compared"] == 16
    assert served.advice["outputs"]["diverged"] == served.advice["outputs"]["diverged_baseline"] == 0


def test_the_figures_follow_from_the_rows(served: Served) -> None:
    engine = open_engine(Settings(home=served.home, database_url=f"sqlite:///{served.home}/breakeven.sqlite"))
    with Session(engine) as session:
        generations, repeats = session.exec(select(Generation)).all(), session.exec(select(Repeat)).all()
    engine.dispose()

    def lengths(drafter: str, k: int) -> float:
        rows = [g for g in generations if (g.arm, g.draft_tokens) == (f"drafter:{drafter}", k)]
        assert len(rows) == 16
        return sum(g.emitted_tokens for g in rows) / sum(g.request_steps for g in rows)

    pace = fit_pace([[(r.step_ms, r.step_pace_ms)] for r in repeats])
    assert pace is not None

    def step_ms(arms: tuple[str, ...], batch_size: int, k: int) -> float:
        cell = [r for r in repeats if r.arm in arms and (r.batch_size, r.draft_tokens) == (batch_size, k)]
        assert len(cell) >= 3
        return statistics.median(float(pace.at_best(r.step_ms, r.step_pace_ms).mean()) for r in cell)

    for row in served.advice["batch_sizes"]:
        decode_ms = step_ms(("baseline", "control"), row["batch_size"], 0)
        assert row["decode_step_ms"] == pytest.approx(decode_ms, rel=0.25)
        for candidate in row["candidates"]:
            drafter, k = candidate["drafter"], candidate["draft_tokens"]
            assert candidate["acceptance_length"] == pytest.approx(lengths(drafter, k), abs=1e-3)
            # Moved to the workload's share of drafts and freed of interrupted steps, so only roughly this mean.
            assert candidate["step_ms"] == pytest.approx(
                step_ms((f"drafter:{drafter}",), row["batch_size"], k), rel=0.3
            )
            expected = candidate["acceptance_length"] * row["decode_step_ms"] / candidate["step_ms"]
            assert candidate["speedup"] == pytest.approx(expected, rel=1e-3)


def test_the_draft_model_is_as_good_as_its_card_says(served: Served) -> None:
    (three,) = {
        c["acceptance_length"]
        for c in served.advice["batch_sizes"][0]["candidates"]
        if (c["drafter"], c["draft_tokens"]) == ("draft_model", 3)
    }
    assert three >= 1.8


def test_asking_again_gives_the_same_probe_and_the_command_line_the_same_advice(served: Served) -> None:
    body = re.search(r"-d '(\{.*?\})' \|", readme_session(), flags=re.DOTALL)
    assert body is not None
    again = httpx.post(f"{served.url}/v1/probes", json=json.loads(body[1]))
    assert (again.status_code, again.json()["id"]) == (200, served.advice["probe_id"])
    told = subprocess.run(
        [BREAKEVEN, "advice", "--model", "breakeven/demo-moe", "--hardware", "cpu", "--server", served.url, "--json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(told) == served.advice
