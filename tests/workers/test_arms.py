"""What an arm measures, in which order, and what it leaves to an earlier attempt's rows."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pytest

from tests.workers.conftest import PROMPTS, probe_request
from workers.plan import arm_spec, probe_arms
from workers.probe.arms import run_arm
from workers.probe.engine import EngineError
from workers.probe.simulate import SimulatedEngine
from workers.probe.spec import ArmSpec

Messages = list[tuple[str, Mapping[str, Any]]]


def spec_of(arm_name: str, **changes: Any) -> ArmSpec:
    request = probe_request(**changes)
    arm = next(arm for arm in probe_arms(request) if arm.name == arm_name)
    return arm_spec(request, arm, prompts=PROMPTS, repeats=[], generations=[], seconds=600)


def run(spec: ArmSpec) -> Messages:
    messages: Messages = []
    run_arm(spec, SimulatedEngine(spec.launch), lambda kind, fields: messages.append((kind, fields)))
    return messages


def places(messages: Messages, kind: str, *names: str) -> list[tuple[int, ...]]:
    return [tuple(fields[name] for name in names) for k, fields in messages if k == kind]


def test_every_cell_is_timed_as_often_as_asked_and_every_prompt_continued_at_every_k() -> None:
    messages = run(spec_of("drafter:ngram"))
    cells = places(messages, "repeat", "batch_size", "draft_tokens", "repeat")
    assert sorted(cells) == [(b, k, r) for b in (1, 2, 4) for k in range(4) for r in range(3)]
    assert sorted(places(messages, "generation", "batch_size", "draft_tokens", "prompt")) == [
        (8, k, p) for k in (1, 2, 3) for p in range(12)
    ]


def test_repeats_are_interleaved_over_cells_in_another_order_each_round() -> None:
    rounds = places(run(spec_of("drafter:ngram")), "repeat", "repeat", "batch_size", "draft_tokens")
    orders = [[cell[1:] for cell in rounds if cell[0] == repeat] for repeat in range(3)]
    assert [cell[0] for cell in rounds] == sorted(cell[0] for cell in rounds)
    assert len({tuple(order) for order in orders}) == 3


def test_arms_run_in_order_with_a_short_baseline_as_the_control_at_the_end() -> None:
    arms = probe_arms(probe_request(repeats=5))
    assert [(arm.name, arm.repeats) for arm in arms] == [("baseline", 5), ("drafter:ngram", 5), ("control", 3)]


def test_the_same_prompts_are_timed_in_every_arm() -> None:
    """Otherwise a difference between two arms could be one between prompts."""

    class Spy(SimulatedEngine):
        def __init__(self, spec: ArmSpec) -> None:
            super().__init__(spec.launch)
            self.timed: list[tuple[int, ...]] = []

        def add_request(self, request_id: str, prompt_token_ids: Any, **options: Any) -> None:
            if request_id.startswith("time-"):
                self.timed.append(tuple(prompt_token_ids))
            super().add_request(request_id, prompt_token_ids, **options)

    first = []
    for name in ("baseline", "drafter:ngram"):
        spec = spec_of(name, batch_sizes=[4], max_draft_tokens=1, repeats=3)
        engine = Spy(spec)
        run_arm(spec, engine, lambda *_: None)
        first.append({prompt[:4] for prompt in engine.timed})
    assert first[0] == first[1]


def test_what_an_earlier_attempt_measured_is_not_measured_again() -> None:
    spec = spec_of("drafter:ngram")
    whole = run(spec)
    done_repeats = places(whole, "repeat", "context_length", "batch_size", "draft_tokens", "repeat")[:20]
    done_prompts = places(whole, "generation", "context_length", "batch_size", "draft_tokens", "prompt")[:17]
    rest = run(ArmSpec.from_json(json.loads(json.dumps(asdict(spec) | locals_of(done_repeats, done_prompts)))))
    again = places(rest, "repeat", "context_length", "batch_size", "draft_tokens", "repeat")
    assert not set(again) & set(done_repeats)
    assert len(again) + len(done_repeats) == 36
    continued = places(rest, "generation", "context_length", "batch_size", "draft_tokens", "prompt")
    assert not set(continued) & set(done_prompts)
    assert len(continued) + len(done_prompts) == 36


def locals_of(done_repeats: list[tuple[int, ...]], done_prompts: list[tuple[int, ...]]) -> dict[str, Any]:
    return {"done_repeats": done_repeats, "done_prompts": done_prompts}


def test_a_spent_budget_ends_the_arm_after_three_whole_rounds() -> None:
    request = probe_request(repeats=7)
    spec = arm_spec(request, probe_arms(request)[0], prompts=PROMPTS, repeats=[], generations=[], seconds=0)
    messages = run(spec)
    assert max(places(messages, "repeat", "repeat")) == (2,)
    assert len(places(messages, "repeat", "repeat")) == 9
    assert any(kind == "log" and "time is up after 3 of 7" in fields["line"] for kind, fields in messages)


def test_noisy_cells_are_measured_again_at_most_twice_and_quiet_ones_never() -> None:
    quiet = places(run(spec_of("drafter:ngram")), "repeat", "repeat")
    assert set(quiet) == {(0,), (1,), (2,)}
    loud = {"model": "a-model", "engine_args": {"noise": 0.9}}
    repeats = places(run(spec_of("drafter:ngram", target=loud)), "repeat", "repeat", "batch_size", "draft_tokens")
    extra = [cell for cell in repeats if cell[0] > 2]
    assert {cell[0] for cell in extra} == {3, 4}
    assert {cell[1:] for cell in extra if cell[0] == 4} <= {cell[1:] for cell in repeats}
    assert len(extra) == len(set(extra)) > 6


def test_different_shares_of_drafts_are_not_taken_for_noise() -> None:
    target = {"model": "a-model", "engine_args": {"noise": 0.001, "coverage": 0.5, "verify_ms": 10}}
    messages = run(spec_of("drafter:ngram", target=target))
    assert max(places(messages, "repeat", "repeat")) == (2,)
    shares = {fields["drafted_tokens"] for kind, fields in messages if kind == "repeat" and fields["batch_size"] == 1}
    assert len(shares) > 4


@pytest.mark.parametrize("context_length", [16, 300])
def test_prompts_are_brought_to_the_context_length_that_was_asked_for(context_length: int) -> None:
    workload = probe_request()["workload"] | {"context_lengths": [context_length]}
    messages = run(spec_of("baseline", workload=workload))
    assert set(places(messages, "generation", "context_length", "prompt_tokens")) == {(context_length, context_length)}


def test_a_prompt_too_long_for_the_model_is_named_with_its_length() -> None:
    workload = probe_request()["workload"] | {"output_tokens": 4096}
    with pytest.raises(EngineError, match=r"prompt 11 has 29 tokens: with 4096 output tokens"):
        run(spec_of("baseline", workload=workload))


def test_an_empty_prompt_is_named() -> None:
    spec = spec_of("baseline")
    spec.prompts[3]["prompt"] = ""
    with pytest.raises(EngineError, match="prompt 3 has no tokens"):
        run(spec)


def test_options_that_the_simulated_engine_lacks_are_refused_by_name(simulated: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match="no option 'speed'"):
        simulated(speed=3)
