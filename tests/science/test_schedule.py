from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import covering_schedule

measured = st.dictionaries(st.integers(1, 700), st.integers(0, 3), max_size=8)


def draft_tokens_at(ranges: tuple[tuple[int, int, int], ...], batch_size: int) -> int:
    (tokens,) = [tokens for low, high, tokens in ranges if low <= batch_size <= high]
    return tokens


@given(measured)
def test_ranges_cover_every_batch_size_once_and_are_merged(sizes: dict[int, int]) -> None:
    ranges = covering_schedule(sizes).ranges
    assert ranges[0][0] == 1
    assert ranges[-1][1] == max([512, *sizes])
    for (_, high, tokens), (low, _, following) in pairwise(ranges):
        assert low == high + 1
        assert tokens != following
    assert all(low <= high for low, high, _ in ranges)


@given(measured)
def test_measured_sizes_keep_their_own_and_gaps_are_on_only_between_equals(sizes: dict[int, int]) -> None:
    ranges = covering_schedule(sizes).ranges
    for batch_size in range(1, 701):
        if batch_size > ranges[-1][1]:
            break
        below = max((size for size in sizes if size <= batch_size), default=None)
        above = min((size for size in sizes if size >= batch_size), default=None)
        agree = below is not None and above is not None and sizes[below] == sizes[above]
        assert draft_tokens_at(ranges, batch_size) == (sizes[below] if agree and below is not None else 0)


def test_neighbours_that_disagree_leave_the_gap_off_with_a_warning() -> None:
    result = covering_schedule({1: 3, 2: 3, 4: 3, 8: 0, 16: 5})
    assert result.ranges == ((1, 4, 3), (5, 15, 0), (16, 16, 5), (17, 512, 0))
    assert [warning.split(":")[0] for warning in result.warnings] == [
        "speculation is off at batch size 5 to 7",
        "speculation is off at batch size 9 to 15",
    ]


def test_below_the_smallest_measured_size_it_is_off_with_a_warning() -> None:
    result = covering_schedule({4: 2})
    assert result.ranges == ((1, 3, 0), (4, 4, 2), (5, 512, 0))
    assert "below batch size 4" in result.warnings[0]


def test_a_schedule_that_is_off_everywhere_is_one_range() -> None:
    assert covering_schedule({1: 0, 2: 0, 64: 0}).ranges == ((1, 512, 0),)
    assert covering_schedule({}).warnings == ()


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="batch size 0"):
        covering_schedule({0: 1})
    with pytest.raises(ValueError, match="-1 draft tokens"):
        covering_schedule({1: -1})
