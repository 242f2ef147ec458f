import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import launch_drift, margin_of, moderated_variances, noise_floor
from service.science.statistics import interval, median_variance_share


def test_the_noise_floor_is_the_95th_percentile_of_the_ratios_sizes() -> None:
    assert noise_floor(np.linspace(-0.1, 0.1, 201)) == pytest.approx(0.095, abs=0.001)
    assert noise_floor([]) is None


def test_the_margin_is_at_least_two_per_cent() -> None:
    assert margin_of(None) == 0.02
    assert margin_of(0.012) == 0.02
    assert margin_of(0.05) == 0.05
    assert margin_of(0.05, at_least=0.1) == 0.1


@pytest.mark.parametrize("repeats", range(1, 12))
def test_the_variance_of_a_median_is_that_of_simulated_medians(repeats: int) -> None:
    medians = np.median(np.random.default_rng(0).standard_normal((40_000, repeats)), axis=1)
    excess = median_variance_share(repeats) / np.var(medians)
    assert 0.95 < excess < (1.17 if repeats % 2 == 0 else 1.05)


@given(st.lists(st.floats(1e-6, 1e-2), min_size=2, max_size=12))
def test_moderated_variances_lie_between_their_own_and_the_common_one(variances: list[float]) -> None:
    moderated, freedom = moderated_variances(variances, [2] * len(variances))
    assert np.all(np.isfinite(moderated) & (moderated > 0))
    assert np.ptp(np.log(moderated)) <= np.ptp(np.log(variances)) + 1e-9
    assert np.all((freedom >= 2) & (freedom <= 2 * len(variances)))


def test_variances_that_differ_by_chance_alone_become_one() -> None:
    observed = 0.01**2 * np.random.default_rng(1).chisquare(2, 2000) / 2
    moderated, _ = moderated_variances(observed, np.full(2000, 2.0))
    np.testing.assert_allclose(np.sqrt(moderated), 0.01, rtol=0.3)


def test_a_cell_of_one_repeat_takes_the_variance_of_the_others() -> None:
    moderated, freedom = moderated_variances([1e-4, 1e-4, np.nan], [2, 2, 0])
    assert moderated[2] == pytest.approx(1e-4)
    assert freedom[2] == 4
    alone, none = moderated_variances([np.nan], [0])
    assert np.isnan(alone[0])
    assert none[0] == 0


def test_drift_common_to_a_launch_is_told_from_drift_of_cells() -> None:
    together, apart = launch_drift([0.06, 0.06, 0.06, 0.06]), launch_drift([0.06, -0.06, 0.06, -0.06])
    assert together.common_variance > 5 * together.cell_variance
    assert apart.cell_variance > 5 * apart.common_variance
    assert launch_drift([]).common_variance == pytest.approx(0.01**2)


def test_draws_that_are_not_finite_are_refused_and_never_become_an_interval() -> None:
    with pytest.raises(ValueError, match="finite"):
        interval(np.array([0.1, np.nan, 0.2]))
