import numpy as np

from service.science.resampling import acceptance_draws, resampled_counts

from .simulated_probe import World


def test_a_drafter_that_never_drafts_has_no_error_from_prompts() -> None:
    acceptance = next(iter(World(acceptance=0.5).measure(0).drafters["ngram"].acceptance.values()))
    silent = type(acceptance)(
        acceptance.request_steps, acceptance.request_steps, *[np.zeros(14)] * 2, np.zeros((14, 3))
    )
    errors = acceptance_draws(silent, resampled_counts(14, 2000, 0))
    assert errors is not None
    np.testing.assert_allclose(errors, 0.0, atol=1e-9)
