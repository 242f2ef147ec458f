"""What the real engine does not do: each bad launch is told with what is wrong and what to do."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.engine.bad_launches import (
    BAD_LAUNCHES,
    BAD_PROMPTS,
    MODELS,
    REFUSED_BY_TEMPLATE,
    drafter,
    make_models,
)
from workers.environment import child_environment

pytestmark = pytest.mark.engine

DRAFT_MODEL = drafter("draft_model", "breakeven/demo-draft")
NGRAM = drafter("ngram", prompt_lookup_min=1)
CHAT = {"model": f"{MODELS}/chat", "engine_args": {"kv_cache_memory_bytes": 2**22}}
GOOD_LAUNCHES: dict[str, dict[str, Any]] = {
    **{f"draft_model K={k}": DRAFT_MODEL | {"draft_tokens": [k], "drive": [1, 4]} for k in (0, 1, 3)},
    "ngram K=0": NGRAM | {"draft_tokens": [0], "drive": [1, 4]},
    "ngram K=3": NGRAM | {"draft_tokens": [3], "drive": [1, 4], "prompts": [prompts for _, prompts, _ in BAD_PROMPTS]},
    "chat": {"target": CHAT, "prompts": [REFUSED_BY_TEMPLATE, REFUSED_BY_TEMPLATE[:1]]},
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of every launch, by its name."""
    place = tmp_path_factory.mktemp("models")
    make_models(place)
    launches = [{"name": name, **launch} for name, launch, _ in BAD_LAUNCHES]
    launches += [{"name": name, **launch} for name, launch in GOOD_LAUNCHES.items()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.launches"],
        input=json.dumps(launches).replace(MODELS, str(place)),
        env={name: value for name, value in child_environment("cpu").items() if name != "VLLM_CPU_KVCACHE_SPACE"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize(("name", "said"), [pytest.param(name, said, id=name) for name, _, said in BAD_LAUNCHES])
def test_a_bad_launch_is_told_with_what_is_wrong_and_what_to_do(
    outcomes: dict[str, dict[str, Any]], name: str, said: str
) -> None:
    error = outcomes[name].get("error", "it was launched")
    assert re.search(said, error), error
    assert len(error) < 700


@pytest.mark.parametrize(("index", "said"), [pytest.param(i, p[2], id=p[0]) for i, p in enumerate(BAD_PROMPTS)])
def test_a_bad_prompt_is_named(outcomes: dict[str, dict[str, Any]], index: int, said: str) -> None:
    assert re.search(said, outcomes["ngram K=3"]["prompts"][index])


def test_what_a_chat_template_says_of_messages_is_told(outcomes: dict[str, dict[str, Any]]) -> None:
    refused, taken = outcomes["chat"]["prompts"]
    assert taken is None
    assert refused == (
        "prompt 1 has `messages` that the model's chat template refuses (one message only): change them, or send "
        "`prompt` instead"
    )


def test_a_launch_for_one_k_drafts_it_in_every_step_at_every_batch_size(outcomes: dict[str, dict[str, Any]]) -> None:
    for k in (0, 1, 3):
        drafted = outcomes[f"draft_model K={k}"]["drafted"]
        assert {size: set(tokens) for size, tokens in drafted.items()} == {"1": {k}, "4": {4 * k}}
    for k in (0, 3):
        one, four = outcomes[f"ngram K={k}"]["drafted"].values()
        assert (max(one), max(four) <= 4 * k) == (k, True)


def test_a_launch_tells_its_experts(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["draft_model K=0"]["resolved"]["experts"] == {"num": 32, "per_token": 4}


def test_the_cache_has_the_size_that_was_asked_for_and_one_gib_if_none_was(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["chat"]["details"]["kv_cache_blocks"] == 16
    assert outcomes["ngram K=3"]["details"]["kv_cache_blocks"] == 4096
