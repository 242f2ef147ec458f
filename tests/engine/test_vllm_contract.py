"""What the project relies on inside vLLM. A test that fails here after an upgrade says what to look at."""

from typing import Any

import pytest

pytestmark = pytest.mark.engine

DRAFTED = ("1", "2", "3")


def test_the_schedule_is_a_plain_list_so_that_one_load_serves_every_k(facts: dict[str, Any]) -> None:
    assert facts["lookup"] == "<class 'list'>"
    drafted = {k: seen["most_drafted_in_a_step"] for k, seen in facts["by_draft_tokens"].items()}
    assert drafted == {"0": 0, "1": 1, "2": 2, "3": 3}


def test_draft_tokens_beyond_the_launch_are_refused(facts: dict[str, Any]) -> None:
    assert facts["above_the_maximum"] == "draft_tokens is 4, this launch has (0, 1, 2, 3)"


def test_greedy_outputs_are_the_same_with_and_without_speculation(facts: dict[str, Any]) -> None:
    texts = {k: seen["text"] for k, seen in facts["by_draft_tokens"].items()}
    assert texts["1"] == texts["2"] == texts["3"] == texts["0"]
    assert facts["token_of_a_reused_prompt"] == texts["0"]["0"]


def test_our_totals_equal_the_engines_own_counters(facts: dict[str, Any]) -> None:
    ours, theirs = facts["all_steps"], facts["counters"]
    assert ours["drafts"] == theirs["drafts"] > 100
    assert ours["draft_tokens"] == theirs["draft_tokens"]
    assert ours["accepted"] == theirs["positions"]
    assert sum(ours["accepted"]) == theirs["accepted_tokens"]


@pytest.mark.parametrize("draft_tokens", DRAFTED)
def test_what_requests_say_of_their_drafts_adds_up_to_what_steps_say(facts: dict[str, Any], draft_tokens: str) -> None:
    seen = facts["by_draft_tokens"][draft_tokens]
    requests, steps = seen["requests"], seen["steps"]
    assert sum(r["drafted_steps"] for r in requests) == steps["drafts"]
    assert sum(r["drafted_tokens"] for r in requests) == steps["draft_tokens"]
    accepted = [sum(sum(r["accepted_per_position"][i : i + 1]) for r in requests) for i in range(3)]
    assert accepted == steps["accepted"]


@pytest.mark.parametrize("draft_tokens", ["0", *DRAFTED])
def test_every_emitted_token_is_counted_once_and_the_prefills_not_at_all(
    facts: dict[str, Any], draft_tokens: str
) -> None:
    seen = facts["by_draft_tokens"][draft_tokens]
    assert sum(r["emitted_tokens"] + 1 for r in seen["requests"]) == seen["steps"]["emitted"]
    assert all(len(r["token_ids"]) == r["emitted_tokens"] + 1 <= 40 for r in seen["requests"])


@pytest.mark.parametrize("draft_tokens", DRAFTED)
def test_emitted_tokens_are_the_accepted_ones_and_one_more_a_step_less_what_a_stop_cut_off(
    facts: dict[str, Any], draft_tokens: str
) -> None:
    for request in facts["by_draft_tokens"][draft_tokens]["requests"]:
        cut_off = request["request_steps"] + sum(request["accepted_per_position"]) - request["emitted_tokens"]
        assert 0 <= cut_off <= int(draft_tokens)


def test_timing_counts_the_steps_in_which_the_whole_batch_decodes(facts: dict[str, Any]) -> None:
    timing = facts["timing"]
    clean = [seconds for prefilling, decoding, seconds in facts["timing_steps"] if (prefilling, decoding) == (0, 4)]
    assert timing["steps"] == 60 <= len(clean) < len(facts["timing_steps"])
    assert timing["seconds"] == pytest.approx(sum(clean[:60]))
    assert timing["request_steps"] == 240 < timing["emitted_tokens"]


def test_aborting_leaves_no_request_behind(facts: dict[str, Any]) -> None:
    assert facts["requests_left"] == 0


def test_the_launch_describes_itself(facts: dict[str, Any]) -> None:
    description = facts["description"]
    assert description["name"] == "vllm"
    assert description["max_context_tokens"] == 1024
    assert description["resolved"]["dtype"] == "float32"
    assert description["resolved"]["revision"].startswith("folder-")
    details = description["details"]
    assert (details["model_runner"], details["graph_mode"], details["attention_backends"]) == (
        "v1",
        "NONE",
        ["CPU_ATTN"],
    )
    assert details["kv_cache_blocks"] > 1000
