"""What a probe has to measure: its arms in order, and of each arm what no earlier attempt has measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.models import Generation, Repeat
from workers.probe.arms import MINIMUM_REPEATS, ArmSpec, Cell
from workers.probe.engine import LaunchSpec

CLEAN_STEPS = 24
"""Clean steps of a timed repeat."""

ACCEPTANCE_BATCH_SIZE = 8
"""Acceptance hardly depends on the batch size, so it is measured once, at a comfortable one."""


@dataclass(frozen=True)
class Arm:
    """One engine launch of a probe.

    Fields:
        drafter: as in the request; None for a launch without speculation.
        repeats: of each timed cell.
        continuations: whether prompts are continued to their end here: outputs, and acceptance.
    """

    name: str
    drafter: Mapping[str, Any] | None
    repeats: int
    continuations: bool


def probe_arms(request: Mapping[str, Any]) -> list[Arm]:
    """The arms of a request, in order: baseline, each drafter, and a second, short baseline as the control."""
    wanted, repeats = request["arms"], request["repeats"]
    arms = []
    if "baseline" in wanted:
        arms.append(Arm("baseline", None, repeats, continuations=True))
    if "drafters" in wanted:
        arms += [Arm(f"drafter:{d['name']}", d, repeats, continuations=True) for d in request["drafters"]]
    if "baseline" in wanted and len(arms) > 1:
        arms.append(Arm("control", None, min(repeats, MINIMUM_REPEATS), continuations=False))
    return arms


def arm_cells(request: Mapping[str, Any], arm: Arm) -> list[Cell]:
    """The cells that an arm times: every batch size at K = 0, with a drafter at every K up to the largest."""
    draft_tokens = range(request["max_draft_tokens"] + 1 if arm.drafter else 1)
    contexts = request["workload"]["context_lengths"] or [0]
    return [(c, b, k) for c in contexts for b in request["batch_sizes"] for k in draft_tokens]


def arm_continuations(request: Mapping[str, Any], arm: Arm, num_prompts: int) -> list[Cell]:
    """Where an arm continues every prompt: the baseline at two batch sizes, since low precision lets outputs depend on
    the batch; a drafter at each K."""
    if not arm.continuations:
        return []
    contexts = request["workload"]["context_lengths"] or [0]
    comfortable = min(ACCEPTANCE_BATCH_SIZE, num_prompts)
    if arm.drafter is None:
        return [(c, b, 0) for c in contexts for b in dict.fromkeys((1, comfortable))]
    return [(c, comfortable, k) for c in contexts for k in range(1, request["max_draft_tokens"] + 1)]


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
    position = [a.name for a in probe_arms(request)].index(arm.name)
    return ArmSpec(
        arm=arm.name,
        engine=request["engine"],
        launch=LaunchSpec(
            target=request["target"],
            drafter=arm.drafter,
            draft_tokens=tuple(range(request["max_draft_tokens"] + 1)) if arm.drafter else (0,),
            max_batch_size=max(*request["batch_sizes"], min(ACCEPTANCE_BATCH_SIZE, len(prompts))),
            seed=position,
        ),
        prompts=[dict(prompt) for prompt in prompts],
        output_tokens=request["workload"]["output_tokens"],
        temperature=request["workload"]["temperature"],
        cells=arm_cells(request, arm),
        repeats=arm.repeats,
        steps=CLEAN_STEPS,
        seconds=seconds,
        watch_pace=request["hardware"] == "cpu" and request["engine"] != "simulated",
        continuations=arm_continuations(request, arm, len(prompts)),
        done_repeats=[(r.context_length, r.batch_size, r.draft_tokens, r.repeat) for r in repeats],
        done_prompts=[(g.context_length, g.batch_size, g.draft_tokens, g.prompt) for g in generations],
    )
