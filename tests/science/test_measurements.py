import pytest

from service.science import Acceptance, DrafterMeasurements, Measurements


def test_acceptance_keeps_the_two_lengths_apart() -> None:
    acceptance = Acceptance([14, 6], [10, 6], [4, 0], [8, 0], [[3, 1], [0, 0]])
    assert acceptance.acceptance_length == 20 / 16
    assert acceptance.acceptance_length_per_draft == 2.0
    assert acceptance.draft_coverage == 0.25
    assert acceptance.drafted_tokens_per_request_step == 0.5


def test_a_drafter_that_never_drafted_has_no_length_per_draft() -> None:
    assert Acceptance([5], [5], [0], [0], [[0]]).acceptance_length_per_draft is None


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Acceptance([5], [5, 6], [0], [0], [[0]]), "request_steps"),
        (lambda: Acceptance([5], [5], [6], [6], [[0]]), "6 of 5 steps"),
        (lambda: Acceptance([0], [0], [0], [0], [[0]]), "request_steps"),
        (lambda: Acceptance([5], [5], [0], [0], [0]), "accepted_per_position"),
        (lambda: Acceptance([-5], [5], [0], [0], [[0]]), "emitted_tokens"),
        (lambda: DrafterMeasurements({0: Acceptance([5], [5], [0], [0], [[0]])}), "got 0"),
        (lambda: DrafterMeasurements({}, {(0, 1): []}), "batch size 0"),
        (lambda: Measurements(0, baseline={0: []}), "got 0"),
    ],
)
def test_bad_input_is_named(call, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()
