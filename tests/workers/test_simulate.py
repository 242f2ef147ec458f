"""The simulated engine's own options: what it refuses, and how it says so."""

from typing import Any

import pytest

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.simulate import SimulatedEngine


def load(**options: Any) -> SimulatedEngine:
    return SimulatedEngine(LaunchSpec({"model": "a-model", "engine_args": options}, None, (0,), 8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 3}, "no option 'speed'; it has acceptance, coverage, decode_ms"),
        ({"acceptance": "x"}, "option 'acceptance' is 'x': input should be a valid number"),
        ({"acceptance": None}, "option 'acceptance' is None: input should be a valid number"),
        ({"acceptance": True}, "option 'acceptance' is True: input should be a valid number"),
        ({"coverage": [1]}, r"option 'coverage' is \[1\]: input should be a valid number"),
        ({"decode_ms": -1}, "option 'decode_ms' is -1: input should be greater than or equal to 0.001"),
        ({"decode_ms": 1e308}, "option 'decode_ms' is 1e\\+308: input should be less than or equal to"),
        ({"decode_ms": {}}, "option 'decode_ms' is {}"),
        ({"decode_ms": {"one": 1}}, "option 'decode_ms' has 'one', which is no batch size"),
        ({"decode_ms": {"4": 1}}, "'decode_ms' ends at batch size 4, and 8 requests are to decode together"),
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
