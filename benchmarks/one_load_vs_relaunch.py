"""What one engine load for a whole sweep saves, and whether it measures the same as a launch for each K.

Two probes of the demo's model through the service and its queue, in turn: one loads the engine once for K = 0..5 and
sets K between measurements, the other (`"relaunch": true`) starts the engine anew for each K, in a process of its own
and with a schedule that holds only this K. Both time every K at batch sizes 1, 2, 4 and 8, three times each (the least
that a verdict takes), in a drafter's arm, whose wall time is compared, from the start of the first process to the end
of the last repeat:

    one load, cold      the import of the engine's code included, as in a worker's first arm
    one load, warm      as in every later one: the import is shared
    relaunch            six processes, imports included

Promised: one cold load is at least 3 times faster, and acceptance, which is no matter of time, is identical for every
prompt and K. Step times: how many cells agree within the noise floors of the probes (both together, never below 2 %),
and how far the same cells of two probes of the same kind are apart, if there is more than one round. At least 9 in 10
have to agree; where the floors together exceed 10 % the machine is too noisy to tell, and `step_times_agree` is null.

    python benchmarks/one_load_vs_relaunch.py [--rounds 2] [--repeats 3] [--method ngram|draft_model] [--home DIR]
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from service.client import Client
from service.database import open_engine
from service.demo import DEMO_REQUEST
from service.home import read_record
from service.measured import BASELINE, DRAFTER
from service.models import Event, Generation, Launch, Repeat
from service.science import fit_pace
from service.settings import Settings

Cell = tuple[int, int]
"""(batch size, K)"""

PROMISED_RATIO = 3.0
PROMISED_AGREEMENT = 0.9
LARGEST_TELLING_MARGIN = 0.10
SMALLEST_MARGIN = 0.02
"""As that of a verdict."""


def sweep_request(method: str, repeats: int, *, relaunch: bool) -> dict[str, Any]:
    """The demo's request with one drafter, and time enough for every repeat."""
    drafters = [drafter for drafter in DEMO_REQUEST["drafters"] if drafter["method"] == method]
    changes = {"drafters": drafters, "repeats": repeats, "budget_seconds": 4 * 3600, "relaunch": relaunch}
    return DEMO_REQUEST | changes


def run_probe(client: Client, request: dict[str, Any]) -> str:
    """Ask for a probe and follow it to its end; its id."""
    probe, _ = client.create_probe(request)
    for event in client.events(probe.id):
        if event.kind in ("arm", "status"):
            print(f"{probe.id[:8]} {json.dumps(event.data)}", file=sys.stderr)
    probe = client.get_probe(probe.id)
    if probe.status != "succeeded":
        raise SystemExit(f"the probe {probe.id} ended as {probe.status}: {probe.error}")
    return probe.id


def sweep_seconds(session: Session, probe_id: str) -> dict[str, Any]:
    """Wall time of the drafter's launches, and its parts."""
    events = session.exec(
        select(Event).where(Event.probe_id == probe_id, Event.kind == "arm").order_by(col(Event.id))
    ).all()
    of_drafter = [event for event in events if event.data["arm"].startswith(DRAFTER)]
    times: dict[str, list[float]] = defaultdict(list)
    for event in of_drafter:
        times[event.data["state"]].append(event.created_at.timestamp())
    seconds = sum(end - start for start, end in zip(times["started"], times["finished"], strict=True))
    launches = session.exec(select(Launch).where(Launch.probe_id == probe_id)).all()
    own = [launch for launch in launches if launch.arm.startswith(DRAFTER)]
    # In the one-load probe the baseline's arm, the first, paid for the import that all arms share.
    shared_import = next(launch.import_seconds for launch in launches if launch.arm == BASELINE)
    return {
        "seconds": seconds,
        "launches": len(own),
        "import_seconds": sum(launch.import_seconds for launch in own),
        "load_seconds": sum(launch.load_seconds for launch in own),
        "warm_up_seconds": sum(launch.warm_up_seconds or 0.0 for launch in own),
        "shared_import_seconds": shared_import,
    }


def step_times(session: Session, probe_ids: list[str]) -> dict[str, dict[Cell, float]]:
    """Milliseconds of a step by probe and cell of the drafter's arm: medians of repeats at one pace for all probes."""
    rows = session.exec(select(Repeat).where(col(Repeat.probe_id).in_(probe_ids))).all()
    by_cell: dict[tuple[str, str, Cell], list[tuple[list[float], list[float]]]] = defaultdict(list)
    for row in rows:
        by_cell[row.probe_id, row.arm, (row.batch_size, row.draft_tokens)].append((row.step_ms, row.step_pace_ms))
    pace = fit_pace(list(by_cell.values()))
    times: dict[str, dict[Cell, float]] = defaultdict(dict)
    for (probe_id, arm, cell), repeats in by_cell.items():
        if arm.startswith(DRAFTER):
            medians = [statistics.median(map(float, pace.at_best(*r) if pace else r[0])) for r in repeats]
            times[probe_id][cell] = statistics.median(medians)
    return times


def log_ratios(above: list[dict[Cell, float]], below: list[dict[Cell, float]]) -> dict[Cell, float]:
    """Logarithm of the ratio of two kinds of probe, by cell: the mean over rounds."""
    return {
        cell: statistics.mean(math.log(a[cell] / b[cell]) for a, b in zip(above, below, strict=True))
        for cell in above[0]
    }


def spread(logs: list[float]) -> dict[str, float]:
    """Ratios in short."""
    return {
        "median": round(math.exp(statistics.median(logs)), 4),
        "lowest": round(math.exp(min(logs)), 4),
        "highest": round(math.exp(max(logs)), 4),
    }


def acceptance(session: Session, probe_id: str) -> dict[tuple[int, int], tuple[Any, ...]]:
    """What each prompt emitted and accepted at each K of the drafter."""
    rows = session.exec(
        select(Generation).where(Generation.probe_id == probe_id, col(Generation.arm).startswith(DRAFTER))
    ).all()
    return {
        (row.draft_tokens, row.prompt): (row.token_ids, row.drafted_tokens, row.accepted_per_position) for row in rows
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="probes of each kind, in turn")
    parser.add_argument("--repeats", type=int, default=3, help="timed repeats of each cell, at least 3")
    parser.add_argument("--method", default="ngram", choices=["ngram", "draft_model"])
    parser.add_argument("--home", type=Path, help="where to keep the data; a temporary folder if not given")
    arguments = parser.parse_args()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="breakeven-relaunch-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("BREAKEVEN_", "DATABASE_URL"))}
    command = [str(Path(sys.executable).with_name("breakeven")), "serve", "--port", "0"]
    home.mkdir(parents=True, exist_ok=True)
    with (
        (home / "service.log").open("ab") as log,
        subprocess.Popen(command, env=environment | {"BREAKEVEN_HOME": str(home)}, stderr=log) as service,
    ):
        try:
            while (record := read_record(home)) is None or record.pid != service.pid:
                if service.poll() is not None:
                    raise SystemExit(f"the service did not start, see {log.name}")
                time.sleep(0.2)
            url = record.url
            ids: dict[bool, list[str]] = {False: [], True: []}
            with Client(url) as client:
                for _ in range(arguments.rounds):
                    for relaunch in (False, True):
                        request = sweep_request(arguments.method, arguments.repeats, relaunch=relaunch)
                        ids[relaunch].append(run_probe(client, request))
                floors = [
                    floor
                    for each in ids.values()
                    for probe_id in each
                    if (floor := client.advice(probe_id).noise_floor) is not None
                ]
        finally:
            service.terminate()

    settings = Settings(home=home, database_url=f"sqlite:///{home.resolve()}/breakeven.sqlite")
    engine = open_engine(settings)
    with Session(engine) as session:
        one, many = ([sweep_seconds(session, probe_id) for probe_id in ids[relaunch]] for relaunch in (False, True))
        times = step_times(session, ids[False] + ids[True])
        same_acceptance = all(
            acceptance(session, a) == acceptance(session, b) for a, b in zip(ids[False], ids[True], strict=True)
        )
    engine.dispose()

    # Two probes differ by what each of them may be off by.
    margin = max(SMALLEST_MARGIN, math.hypot(max(floors), max(floors)))
    by_kind = {relaunch: [times[probe_id] for probe_id in ids[relaunch]] for relaunch in (False, True)}
    ratios = log_ratios(by_kind[True], by_kind[False])
    agreeing = sum(abs(ratio) <= math.log1p(margin) for ratio in ratios.values())
    same_kind = [
        ratio for each in by_kind.values() for a, b in pairwise(each) for ratio in log_ratios([b], [a]).values()
    ]

    def mean(runs: list[dict[str, Any]], what: str) -> float:
        return float(statistics.mean(run[what] for run in runs))

    warm = mean(one, "seconds")
    cold = warm + mean(one, "shared_import_seconds")
    anew = mean(many, "seconds")
    measuring = cold - mean(one, "shared_import_seconds") - mean(one, "load_seconds") - mean(one, "warm_up_seconds")
    figures = {
        "method": arguments.method,
        "rounds": arguments.rounds,
        "repeats": arguments.repeats,
        "relaunch_seconds": round(anew, 1),
        "one_load_cold_seconds": round(cold, 1),
        "one_load_warm_seconds": round(warm, 1),
        "times_faster_cold": round(anew / cold, 2),
        "times_faster_warm": round(anew / warm, 2),
        "times_faster_each_round": [
            round(b["seconds"] / (a["seconds"] + a["shared_import_seconds"]), 2) for a, b in zip(one, many, strict=True)
        ],
        "one_load": {k: round(mean(one, k), 2) for k in one[0] if k != "seconds"} | {"measuring": round(measuring, 1)},
        "relaunch": {k: round(mean(many, k), 2) for k in many[0] if k not in ("seconds", "shared_import_seconds")},
        "margin": round(margin, 4),
        "cells": len(ratios),
        "cells_that_agree": agreeing,
        "relaunch_over_one_load_step_time": spread(list(ratios.values())),
        "same_kind_over_an_earlier_round": spread(same_kind) if same_kind else None,
        "each_cell": {f"B={b} K={k}": round(math.exp(ratio), 4) for (b, k), ratio in sorted(ratios.items())},
        "acceptance_is_identical": same_acceptance,
    }
    agree = agreeing >= PROMISED_AGREEMENT * len(ratios) if margin <= LARGEST_TELLING_MARGIN else None
    print(json.dumps(figures | {"step_times_agree": agree}))
    sys.exit(0 if anew / cold >= PROMISED_RATIO and same_acceptance and agree is not False else 1)


if __name__ == "__main__":
    main()
