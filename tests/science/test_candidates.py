import numpy as np
import pytest

from service.science import estimate

from .simulated_probe import Noise, World


def test_a_single_prompt_leaves_the_interval_unknown() -> None:
    (result,) = estimate([World(prompts=1, batch_sizes=(1,)).measure(0)])
    candidate = result.candidates[1][0]
    assert candidate.speedup is not None
    assert candidate.speedup_low is None


def test_the_same_seed_gives_the_same_interval_whatever_else_was_measured() -> None:
    small, large = World(batch_sizes=(2,)).measure(3), World(batch_sizes=(2,)).measure(3)
    more = World(batch_sizes=(2,)).measure(4).drafters["ngram"]
    both = type(large)(0, large.baseline, large.control, {**large.drafters, "suffix": more})
    (alone,), (beside,) = estimate([small]), estimate([both])
    assert alone.candidates[2][0] == next(each for each in beside.candidates[2] if each.drafter == "ngram")


def test_fewer_than_2000_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="1999"):
        estimate([], draws=1999)


@pytest.mark.parametrize(
    "world",
    [
        World(batch_sizes=(1,), steps=25),
        World(batch_sizes=(1,), steps=25, noise=Noise(launch=0.05)),
        World(batch_sizes=(1, 4), steps=25, noise=Noise(launch=0.02, cell=0.03, repeat=0.02)),
    ],
    ids=["quiet", "launches drift by 5 %", "everything moves"],
)
def test_an_interval_of_95_per_cent_holds_the_truth_in_90_to_99(world: World) -> None:
    truth = world.true_speedup()
    held = []
    for seed in range(300):
        (result,) = estimate([world.measure(seed)], seed=seed, draws=2000)
        # One cell per probe: the cells of a probe share prompts and launches, so they are not separate trials.
        candidate = result.candidates[1][0]
        assert candidate.speedup_low is not None
        assert candidate.speedup_high is not None
        held.append(candidate.speedup_low <= truth <= candidate.speedup_high)
    assert 0.90 <= np.mean(held) <= 0.99
