import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import TimedRepeat, cell_time


def repeat(step_ms: list[float], drafted: list[int] | None = None) -> TimedRepeat:
    return TimedRepeat(step_ms, drafted or [0] * len(step_ms))


def test_a_cell_is_the_median_of_the_means_of_its_repeats() -> None:
    time = cell_time([repeat([9.0, 11.0]), repeat([11.0, 13.0]), repeat([19.0, 21.0])], batch_size=1)
    assert time.repeats_ms == (10.0, 12.0, 20.0)
    assert (time.step_ms, time.mad_ms, time.noisy) == (12.0, 2.0, True)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=30), st.floats(0, 3), st.floats(0, 2))
def test_repeats_on_a_line_are_moved_to_the_workload_exactly(drafts: list[int], usual: float, token_ms: float) -> None:
    time = cell_time([repeat([10 + token_ms * n for n in drafts], drafts)] * 3, 1, usual)
    if len(set(drafts)) > 1 and token_ms > 0.01:
        assert time.step_ms == pytest.approx(10 + token_ms * usual)
        assert time.slope_ms == pytest.approx(token_ms)


def test_draft_tokens_count_per_request() -> None:
    time = cell_time([repeat([10.0, 12.0] * 10, [0, 8] * 10)], batch_size=4, workload_drafted_tokens=0.5)
    assert time.slope_ms == pytest.approx(1.0)
    assert time.step_ms == pytest.approx(10.5)


def test_a_few_interrupted_steps_hardly_move_the_mean() -> None:
    random = np.random.default_rng(0)
    clean = random.normal(10.0, 0.2, (3, 40))
    interrupted = clean.copy()
    interrupted[:, 7] *= 30
    usual, disturbed = (cell_time([repeat(list(row)) for row in steps], 1) for steps in (clean, interrupted))
    assert disturbed.step_ms == pytest.approx(usual.step_ms, rel=0.005)


def test_a_slow_mode_that_is_common_stays_in_the_mean() -> None:
    time = cell_time([repeat([10.0] * 16 + [20.0] * 4)] * 3, 1)
    assert time.step_ms == pytest.approx(12.0)


def test_steps_that_all_carry_the_same_draft_are_left_alone_and_said_to_be() -> None:
    time = cell_time([repeat([10.0, 11.0], [3, 3])], 1, workload_drafted_tokens=1.0)
    assert time.step_ms == pytest.approx(10.5)
    assert time.uncorrected_tokens == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: cell_time([], 1), "repeats"),
        (lambda: cell_time([repeat([1.0])], 0), "batch_size"),
        (lambda: cell_time([repeat([1.0])], 1, -1.0), "-1.0"),
        (lambda: TimedRepeat([1.0, 0.0], [0, 0]), "step_ms"),
        (lambda: TimedRepeat([1.0], [0, 0]), "2 step_drafted_tokens"),
        (lambda: TimedRepeat([], []), "step_ms"),
    ],
)
def test_bad_input_is_named(call, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()
