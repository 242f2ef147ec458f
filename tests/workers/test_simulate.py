"""The simulated engine's own options: what it refuses, and how it says so."""

import statistics
from typing import Any

import numpy as np
import pytest

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.simulate import SimulatedEngine


def load(**options: Any) -> SimulatedEngine:
    return SimulatedEngine(LaunchSpec({"model": "a-model", "engine_args": options}, None, (0,), 8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 3}, "no option 'speed'; it has acceptance, acceptance_spread, coverage, decode_ms"),
        ({"acceptance": "x"}, "option 'acceptance' is 'x': input should be a valid number"),
        ({"acceptance": None}, "option 'acceptance' is None: input should be a valid number"),
        ({"acceptance": True}, "option 'acceptance' is True: input should be a valid number"),
        ({"coverage": [1]}, r"option 'coverage' is \[1\]: input should be a valid number"),
        ({"decode_ms": -1}, "option 'decode_ms' is -1: input should be greater than or equal to 0.001"),
        ({"decode_ms": 1e308}, "option 'decode_ms' is 1e\\+308: input should be less than or equal to"),
        ({"decode_ms": {}}, "option 'decode_ms' is {}"),
        ({"decode_ms": {"one": 1}}, "option 'decode_ms' has 'one', which is no batch size"),
        ({"decode_ms": {"4": 1}}, "'decode_ms' ends at batch size 4, and 8 requests are to decode together"),
        ({"step_ms": {}}, "option 'step_ms' is {}"),
        ({"step_ms": {"1": [1, 2]}}, "'step_ms' ends at batch size 1, and 8 requests are to decode together"),
        ({"noise_freedom": 0}, "option 'noise_freedom' is 0: input should be greater than or equal to 1"),
        ({"noise": 1e10}, "option 'noise' is 10000000000.0: input should be less than or equal to 1"),
        ({"verify_ms": -100}, "option 'verify_ms' is -100: input should be greater than or equal to 0"),
        ({"load_seconds": -1}, "option 'load_seconds' is -1"),
        ({"seed": "abc"}, "option 'seed' is 'abc': input should be a valid integer"),
    ],
)
def test_an_option_that_it_cannot_follow_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=f"^the simulated engine.*{said}"):
        load(**options)


def test_a_message_without_content_has_no_text() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "a"},
        {"role": "user"},
    ]
    assert load().encode({"messages": messages}) == [11, 98, 11]


def seconds_of(steps: int, draft_tokens: int = 0, batch_size: int = 1, **options: Any) -> list[float]:
    """What so many decode steps claim to take."""
    engine = SimulatedEngine(LaunchSpec({"model": "a-model", "engine_args": options}, None, (0, 1, 2), 8))
    engine.set_draft_tokens(draft_tokens)
    for i in range(batch_size):
        engine.add_request(str(i), [1, i], max_tokens=10**6, ignore_end=True, temperature=0.0)
    engine.step()
    return [engine.step().seconds for _ in range(steps)]


def test_step_times_can_be_given_for_each_batch_size_and_number_of_draft_tokens() -> None:
    table = {"step_ms": {"2": [10, 12, 11], "8": [20, 25, 30]}, "noise": 0}
    assert [seconds_of(1, k, b, **table)[0] for b in (1, 2, 3) for k in (0, 1, 2)] == pytest.approx(
        [0.010, 0.012, 0.011, 0.010, 0.012, 0.011, 0.020, 0.025, 0.030]
    )
    # Half of the requests draft: half-way between the two times.
    assert statistics.fmean(seconds_of(4000, 1, 8, coverage=0.5, **table)) == pytest.approx(0.0225, rel=0.01)


def test_noise_has_the_standard_deviation_that_was_asked_for_and_tails_as_heavy() -> None:
    normal = np.log(seconds_of(20_000, noise=0.02))
    heavy = np.log(seconds_of(20_000, noise=0.02, noise_freedom=3))
    assert normal.std() == pytest.approx(0.02, rel=0.05)
    assert heavy.std() == pytest.approx(0.02, rel=0.15)
    assert np.mean(abs(normal - normal.mean()) > 0.08) < 0.001 < np.mean(abs(heavy - heavy.mean()) > 0.08)


def test_levels_drift_between_repeats_and_between_launches_and_not_within_a_repeat() -> None:
    engine = SimulatedEngine(
        LaunchSpec({"model": "a-model", "engine_args": {"repeat_drift": 0.05, "noise": 0}}, None, (0,), 1)
    )
    engine.add_request("0", [1], max_tokens=10**6, ignore_end=True, temperature=0.0)
    engine.step()
    levels = []
    for _ in range(2000):
        engine.set_draft_tokens(0)
        first, second = engine.step().seconds, engine.step().seconds
        assert first == second
        levels.append(first)
    assert np.log(levels).std() == pytest.approx(0.05, rel=0.1)
    launches = [seconds_of(1, launch_drift=0.05, noise=0, seed=seed)[0] for seed in range(2000)]
    assert np.log(launches).std() == pytest.approx(0.05, rel=0.1)


def test_prompts_differ_in_acceptance_as_far_as_asked() -> None:
    def accepted(spread: float) -> list[float]:
        options = {"acceptance": 0.5, "acceptance_spread": spread}
        engine = SimulatedEngine(LaunchSpec({"model": "a-model", "engine_args": options}, None, (1,), 300))
        engine.set_draft_tokens(1)
        for i in range(300):
            engine.add_request(str(i), [i], max_tokens=801, ignore_end=True, temperature=0.0)
        shares = {}
        while len(shares) < 300:
            for output in engine.step().outputs:
                if output.finish_reason:
                    shares[output.request_id] = statistics.fmean(output.accepted_per_step)
        return list(shares.values())

    assert statistics.stdev(accepted(0.1)) == pytest.approx(0.1, rel=0.2)
    assert statistics.stdev(accepted(0.0)) < 0.035
