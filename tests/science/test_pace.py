import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import MachinePace, fit_pace

Repeats = list[tuple[np.ndarray, np.ndarray]]


def cell(
    rng: np.random.Generator, step_ms: float, *, felt: float, repeats: int = 5, slow_share: float = 0.5
) -> Repeats:
    """Repeats of 24 steps on a machine that is 1.7 times slower in some, of which a step feels `felt`."""
    made = []
    for _ in range(repeats):
        pace = 0.2 * np.where(rng.random() < slow_share, 1.7, 1.0) * rng.lognormal(0, 0.03, 24)
        made.append((step_ms * (pace / 0.2) ** felt * rng.lognormal(0, 0.02, 24), pace))
    return made


@pytest.mark.parametrize("felt", [0.0, 0.5, 0.9, 1.0])
def test_how_much_a_step_feels_the_pace_is_found_from_the_repeats(felt: float) -> None:
    rng = np.random.default_rng(3)
    cells = [cell(rng, step_ms, felt=felt) for step_ms in (5.0, 6.0, 8.0, 12.0, 20.0) for _ in range(4)]
    pace = fit_pace(cells)
    assert pace is not None
    assert pace.exponent == pytest.approx(felt, abs=0.05)
    assert pace.best_ms == pytest.approx(0.2, rel=0.06)


def test_two_launches_at_different_paces_agree_at_the_best_one() -> None:
    rng = np.random.default_rng(4)
    early = [cell(rng, step_ms, felt=0.9, slow_share=0.9) for step_ms in (5.0, 6.0, 7.0, 8.0)]
    late = [cell(rng, step_ms, felt=0.9, slow_share=0.1) for step_ms in (5.0, 6.0, 7.0, 8.0)]
    pace = fit_pace([*early, *late])
    assert pace is not None
    for left, right in zip(early, late, strict=True):
        raw = [np.mean([times.mean() for times, _ in launch]) for launch in (left, right)]
        scaled = [np.mean([pace.at_best(*repeat).mean() for repeat in launch]) for launch in (left, right)]
        assert abs(np.log(scaled[0] / scaled[1])) < 0.04
        assert abs(np.log(raw[0] / raw[1])) > 0.1


def test_a_steady_machine_changes_nothing_by_much() -> None:
    rng = np.random.default_rng(5)
    pace = fit_pace([cell(rng, 6.0, felt=1.0, slow_share=0.0) for _ in range(6)])
    assert pace is not None
    assert pace.typical_ratio == pytest.approx(1.0, abs=0.06)
    assert pace.at_best([6.0] * 24, [pace.best_ms] * 24).tolist() == [6.0] * 24


def test_too_few_repeats_to_tell_are_taken_to_feel_the_pace_in_full() -> None:
    rng = np.random.default_rng(6)
    pace = fit_pace([cell(rng, 6.0, felt=0.2, repeats=3)])
    assert pace is not None
    assert pace.exponent == 1.0


def test_without_readings_there_is_no_pace_and_steps_without_one_stay_as_they_are() -> None:
    assert fit_pace([]) is None
    assert fit_pace([[([5.0, 6.0], [])]]) is None
    assert MachinePace(0.2, 1.0, 1.0).at_best([5.0, 6.0], []).tolist() == [5.0, 6.0]


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(0, 1.25))
def test_steps_at_the_same_pace_keep_their_ratio(best_ms: float, pace_ms: float, exponent: float) -> None:
    scaled = MachinePace(best_ms, exponent, 1.0).at_best([3.0, 6.0], [pace_ms, pace_ms])
    assert scaled[1] / scaled[0] == pytest.approx(2.0)


def test_a_pace_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        fit_pace([[([5.0, 6.0], [0.2, 0.0])]])
    with pytest.raises(ValueError, match="same length"):
        MachinePace(0.2, 1.0, 1.0).at_best([5.0, 6.0], [0.2])
