from hypothesis import given
from hypothesis import strategies as st

from service.science import Divergence, compare_outputs, first_difference

token_ids = st.lists(st.integers(0, 2), max_size=6)


@given(token_ids, token_ids)
def test_the_first_difference_is_where_the_common_beginning_ends(left: list[int], right: list[int]) -> None:
    position = first_difference(left, right)
    if position is None:
        assert left == right
    else:
        assert left[:position] == right[:position]
        assert left[position : position + 1] != right[position : position + 1]


def test_a_drafter_that_says_the_same_passes() -> None:
    result = compare_outputs({0: [1, 2], 1: [3]}, {0: [1, 2], 1: [3]}, {"ngram": {1: {0: [1, 2], 1: [3]}}})
    assert (result.compared, result.diverged, result.diverged_baseline, result.failed) == (2, 0, 0, False)
    assert result.warnings == ()


def test_as_many_flips_as_the_baseline_shows_are_no_failure() -> None:
    baseline = {0: [1, 2], 1: [3]}
    result = compare_outputs(baseline, {0: [1, 9], 1: [3]}, {"ngram": {2: {0: [1, 2], 1: [4]}}})
    assert (result.diverged, result.diverged_baseline, result.failed, result.warnings) == (1, 1, False, ())


def test_prompts_are_counted_once_over_all_draft_tokens() -> None:
    outputs = {1: {0: [1, 9], 1: [3]}, 2: {0: [9, 2], 1: [3]}}
    result = compare_outputs({0: [1, 2], 1: [3]}, {0: [1, 2], 1: [3]}, {"ngram": outputs})
    assert result.diverged == 1
    assert result.divergences == (Divergence("ngram", 1, 0, 1), Divergence("ngram", 2, 0, 0))


def test_an_excess_is_a_failure_that_names_drafter_prompt_and_position() -> None:
    result = compare_outputs({0: [1], 7: [3, 4, 5]}, {0: [1], 7: [3, 4, 5]}, {"ngram": {3: {0: [1], 7: [3, 4]}}})
    assert result.failed
    assert "ngram with 3 draft tokens" in result.warnings[0]
    assert "prompt 7 at position 2" in result.warnings[0]


def test_without_another_baseline_a_difference_is_told_but_not_judged() -> None:
    result = compare_outputs({0: [1]}, {}, {"ngram": {3: {0: [2]}}})
    assert (result.diverged, result.diverged_baseline, result.failed) == (1, None, False)
    assert "not decoded at another batch size" in result.warnings[0]


def test_only_prompts_on_both_sides_are_compared() -> None:
    assert compare_outputs({0: [1]}, {0: [1]}, {"ngram": {1: {0: [1], 5: [2]}}}).compared == 1
