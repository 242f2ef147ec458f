import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import (
    acceptance_length,
    acceptance_length_from_coverage,
    acceptance_length_from_rates,
    acceptance_length_per_draft,
    acceptance_rates,
    break_even_acceptance_length,
    chain_acceptance_length,
    draft_coverage,
    speedup,
    target_efficiency,
)

MTP_RATES = [0.757, 0.601, 0.498, 0.411, 0.354, 0.298, 0.261, 0.223]
steps_of_prompts = st.lists(
    st.integers(1, 50).flatmap(lambda steps: st.tuples(st.just(steps), st.integers(0, steps), st.integers(0, 5))),
    min_size=1,
    max_size=20,
)


@given(steps_of_prompts)
def test_acceptance_length_is_one_plus_coverage_times_the_gain_of_a_draft(prompts: list[tuple[int, int, int]]) -> None:
    steps, drafted, each = np.array(prompts).T
    accepted = drafted * each
    if not drafted.sum():
        return
    expected = acceptance_length_from_coverage(
        draft_coverage(drafted, steps), acceptance_length_per_draft(accepted, drafted)
    )
    assert acceptance_length(steps + accepted, steps) == pytest.approx(expected)


def test_acceptance_length_weighs_prompts_by_their_steps() -> None:
    assert acceptance_length([10, 90], [10, 30]) == 2.5
    assert acceptance_length(231, 100) == 2.31


def test_the_curve_of_a_published_head_beats_a_chain_with_its_first_rate() -> None:
    assert acceptance_length_from_rates(MTP_RATES) == pytest.approx(4.40, abs=0.005)
    assert chain_acceptance_length(0.757, 8) == pytest.approx(3.78, abs=0.005)


@given(st.floats(0, 1), st.integers(0, 12))
def test_a_chain_is_a_drafter_whose_rates_are_powers(acceptance: float, draft_tokens: int) -> None:
    rates = [acceptance**depth for depth in range(1, draft_tokens + 1)]
    assert chain_acceptance_length(acceptance, draft_tokens) == pytest.approx(acceptance_length_from_rates(rates))


def test_rates_are_per_draft_that_reached_the_position() -> None:
    np.testing.assert_allclose(acceptance_rates([6, 2, 0], [10, 8, 0]), [0.6, 0.25, np.nan])
    np.testing.assert_allclose(acceptance_rates([6, 2], 10), [0.6, 0.2])


def test_a_step_that_emits_its_break_even_length_gains_nothing() -> None:
    needed = break_even_acceptance_length(17.0, 27.85)
    assert needed == pytest.approx(1.638, abs=0.001)
    assert speedup(needed, 17.0, 27.85) == pytest.approx(1.0)
    assert speedup(2.31, 17.0, 27.85) == pytest.approx(1.41, abs=0.001)
    assert target_efficiency(17.0, 23.94) == pytest.approx(0.71, abs=0.001)


def test_speedups_come_in_arrays_too() -> None:
    np.testing.assert_allclose(speedup(np.array([2.0, 3.0]), np.array([1.0, 1.0]), np.array([2.0, 1.0])), [1.0, 3.0])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: acceptance_length([-1], [1]), "tokens"),
        (lambda: acceptance_length([1], [0]), "request_steps"),
        (lambda: acceptance_length([1, 2], [1]), "shape"),
        (lambda: acceptance_length([float("nan")], [1]), "nan"),
        (lambda: draft_coverage(3, 2), "1.5"),
        (lambda: acceptance_rates([3], [2]), "position 1"),
        (lambda: acceptance_length_from_rates([0.5, 0.6]), "increase"),
        (lambda: acceptance_length_from_coverage(1.2, 2.0), "1.2"),
        (lambda: chain_acceptance_length(1.5, 2), "1.5"),
        (lambda: speedup(2.0, 0.0, 1.0), "decode_ms"),
        (lambda: break_even_acceptance_length(1.0, float("inf")), "step_ms"),
    ],
)
def test_bad_input_is_named(call, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()
