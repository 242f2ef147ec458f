"""What a probe has to measure: its arms in order, and of each arm what no earlier attempt has measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.models import Generation, Repeat
from workers.probe.engine import LaunchSpec
from workers.probe.spec import MINIMUM_REPEATS, ArmSpec, Cell

CLEAN_STEPS = 24
"""Clean steps of a timed repeat."""

ACCEPTANCE_BATCH_SIZE = 8
"""Acceptance hardly depends on the batch size, so it is measured once, at a comfortable one."""


@dataclass(frozen=True)
class Arm:
    """One engine launch of a probe.

    Fields:
        name: what its rows are kept under.
        key: names the launch among all of the probe; the name, unless one arm is launched for each K.
        drafter: as in the request; None for a launch without speculation.
        draft_tokens: every K that is measured in it, ascending.
        repeats: of each timed cell.
        continuations: whether prompts are continued to their end here: outputs, and acceptance.
    """

    name: str
    key: str
    drafter: Mapping[str, Any] | None
    draft_tokens: tuple[int, ...]
    repeats: int
    continuations: bool


def probe_arms(request: Mapping[str, Any]) -> list[Arm]:
    """The arms of a request, in order: baseline, each drafter, and a second, short baseline as the control.

    A drafter is launched once for all K, in the relaunch mode once for each.
    """
    repeats = request["repeats"]
    every_k = tuple(range(request["max_draft_tokens"] + 1))
    arms = [_without_speculation("baseline", repeats, continuations=True)]
    for drafter in request["drafters"]:
        name = f"drafter:{drafter['name']}"
        launches = {f"{name},K={k}": (k,) for k in every_k} if request.get("relaunch") else {name: every_k}
        arms += [Arm(name, key, drafter, ks, repeats, continuations=True) for key, ks in launches.items()]
    return [*arms, _without_speculation("control", min(repeats, MINIMUM_REPEATS), continuations=False)]


def _without_speculation(name: str, repeats: int, *, continuations: bool) -> Arm:
    return Arm(name, name, None, (0,), repeats, continuations)


def arm_cells(request: Mapping[str, Any], arm: Arm) -> list[Cell]:
    """The cells that an arm times: every batch size at each of its K."""
    contexts = request["workload"]["context_lengths"] or [0]
    return [(c, b, k) for c in contexts for b in request["batch_sizes"] for k in arm.draft_tokens]


def arm_continuations(request: Mapping[str, Any], arm: Arm, num_prompts: int) -> list[Cell]:
    """Where an arm continues every prompt: the baseline at two batch sizes, since low precision lets outputs depend on
    the batch; a drafter at each K."""
    if not arm.continuations:
        return []
    contexts = request["workload"]["context_lengths"] or [0]
    comfortable = min(ACCEPTANCE_BATCH_SIZE, num_prompts)
    if arm.drafter is None:
        return [(c, b, 0) for c in contexts for b in dict.fromkeys((1, comfortable))]
    return [(c, comfortable, k) for c in contexts for k in arm.draft_tokens if k]


def arm_spec(
    request: Mapping[str, Any],
    arm: Arm,
    *,
    prompts: Sequence[Mapping[str, Any]],
    repeats: Sequence[Repeat],
    generations: Sequence[Generation],
    seconds: float,
) -> ArmSpec:
    """What is left to measure of an arm whose rows so far are `repeats` and `generations`, in `seconds`."""
    arms = probe_arms(request)
    launch, *launches_to_come = (
        LaunchSpec(
            target=request["target"],
            drafter=each.drafter,
            draft_tokens=each.draft_tokens,
            max_batch_size=max(*request["batch_sizes"], min(ACCEPTANCE_BATCH_SIZE, len(prompts))),
            seed=position,
        )
        for position, each in enumerate(arms)
        if position >= arms.index(arm)
    )
    return ArmSpec(
        arm=arm.name,
        engine=request["engine"],
        launch=launch,
        launches_to_come=launches_to_come,
        prompts=[dict(prompt) for prompt in prompts],
        output_tokens=request["workload"]["output_tokens"],
        temperature=request["workload"]["temperature"],
        cells=arm_cells(request, arm),
        repeats=arm.repeats,
        steps=CLEAN_STEPS,
        seconds=seconds,
        apart=bool(request.get("relaunch")),
        watch_pace=request["hardware"] == "cpu" and request["engine"] != "simulated",
        continuations=arm_continuations(request, arm, len(prompts)),
        done_repeats=[(r.context_length, r.batch_size, r.draft_tokens, r.repeat) for r in repeats],
        done_prompts=[(g.context_length, g.batch_size, g.draft_tokens, g.prompt) for g in generations],
    )
