from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.science import (
    Acceptance,
    Candidate,
    DrafterMeasurements,
    Measurements,
    TimedRepeat,
    Verdict,
    judge,
    rank,
    recommend,
)

from .simulated_probe import Noise, World


def repeats(step_ms: float, drafted: int = 0) -> list[TimedRepeat]:
    return [TimedRepeat(step_ms * np.array([0.999, 1.0, 1.001]) * level, [drafted] * 3) for level in (0.999, 1, 1.001)]


def accepts(per_step: float, draft_tokens: int, prompts: int = 16) -> Acceptance:
    accepted = per_step * 100 + np.arange(prompts) % 3
    shares = np.linspace(1.5, 0.5, draft_tokens) / draft_tokens
    return Acceptance(
        100 + accepted, [100] * prompts, [100] * prompts, [100 * draft_tokens] * prompts, np.outer(accepted, shares)
    )


def probe(
    step_ms: dict[tuple[int, int], float], lengths: dict[int, float], sizes: tuple[int, ...] = (1, 4)
) -> Measurements:
    cells = {(size, tokens): repeats(ms, tokens * size) for (size, tokens), ms in step_ms.items()}
    acceptance = {tokens: accepts(length - 1, tokens) for tokens, length in lengths.items()}
    return Measurements(
        context_length=1024,
        baseline={size: repeats(10.0) for size in sizes},
        control={size: repeats(10.02) for size in sizes},
        drafters={"ngram": DrafterMeasurements(acceptance, cells)},
    )


PAYS_AT_ONE = probe({(1, 0): 10.1, (1, 3): 13.0, (4, 0): 10.2, (4, 3): 30.0}, {3: 2.0})


def test_a_gain_is_enabled_and_a_loss_disabled() -> None:
    advice = recommend([PAYS_AT_ONE])
    one, four = advice.rows
    assert (one.verdict, one.drafter, one.draft_tokens) == (Verdict.ENABLE, "ngram", 3)
    assert one.speedup == pytest.approx(2.01 * 10.01 / 13.0, rel=0.01)
    assert one.speedup_low is not None
    assert one.speedup_low > 1.02
    assert "ngram with 3 draft tokens emits 2.01 tokens per step at 1.30x the step time: 1.55x faster" in one.reason
    assert (four.verdict, four.drafter, four.draft_tokens, four.speedup, four.step_ms) == (
        Verdict.DISABLE,
        None,
        0,
        None,
        None,
    )
    assert four.decode_step_ms == pytest.approx(10.01)
    assert "3.00 would break even" in four.reason
    assert four.candidates[0].speedup == pytest.approx(0.67, abs=0.01)


def test_the_launch_is_worth_its_gain_where_on_and_its_overhead_where_off() -> None:
    advice = recommend([PAYS_AT_ONE])
    launch = advice.launch
    assert (launch.speculation, launch.drafter, launch.max_draft_tokens) == (True, "ngram", 3)
    on = advice.rows[0].speedup
    assert on is not None
    assert launch.value == pytest.approx(2 / (1 / on + 10.2 / 10.01), rel=0.001)
    assert advice.schedules[1024].ranges == ((1, 1, 3), (2, 512, 0))
    assert any("batch size 2 to 3" in warning for warning in advice.warnings)


def test_a_profile_of_large_batches_advises_no_launch() -> None:
    launch = recommend([PAYS_AT_ONE], profile={1: 0.01, 4: 0.99}).launch
    assert (launch.speculation, launch.drafter, launch.max_draft_tokens, launch.value) == (False, None, 0, 1.0)


def test_a_launch_whose_off_cells_are_missing_is_not_advised() -> None:
    advice = recommend([probe({(1, 3): 13.0, (4, 3): 30.0}, {3: 2.0})])
    assert not advice.launch.speculation
    assert any("its step time while off is not measured at batch size 4" in warning for warning in advice.warnings)


def test_what_is_missing_is_named_and_never_guessed() -> None:
    complete = PAYS_AT_ONE.drafters["ngram"]
    nothing = recommend([Measurements(0)], batch_sizes=[1, 2])
    assert [row.verdict for row in nothing.rows] == [Verdict.INCONCLUSIVE] * 2
    assert "baseline arm" in nothing.rows[0].reason
    no_drafter = recommend([replace(PAYS_AT_ONE, drafters={})]).rows[0]
    assert "no drafter has been timed" in no_drafter.reason
    no_acceptance = recommend([replace(PAYS_AT_ONE, drafters={"ngram": replace(complete, acceptance={})})]).rows[0]
    assert no_acceptance.verdict is Verdict.INCONCLUSIVE
    assert no_acceptance.candidates == (Candidate("ngram", 3),)
    no_baseline = recommend([replace(PAYS_AT_ONE, baseline={}, control={})]).rows[0]
    assert no_baseline.candidates[0].step_ms is not None
    assert no_baseline.candidates[0].speedup is None


def test_without_control_there_is_no_noise_floor_and_a_warning() -> None:
    advice = recommend([replace(PAYS_AT_ONE, control={})])
    assert (advice.noise_floor, advice.margin) == (None, 0.02)
    assert "measured without control" in advice.warnings[0]


def test_an_open_question_says_what_to_measure_next() -> None:
    few = World(prompts=6, overhead_ms=2.5, batch_sizes=(1,), noise=Noise(step=0.01, repeat=0.001)).measure(1)
    row = recommend([few]).rows[0]
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "measure more prompts" in row.reason
    drifting = World(prompts=400, overhead_ms=3.5, batch_sizes=(1,), noise=Noise(launch=0.05)).measure(1)
    assert "quieter machine" in recommend([drifting]).rows[0].reason


def test_context_lengths_have_rows_and_schedules_of_their_own() -> None:
    longer = replace(PAYS_AT_ONE, context_length=8192)
    advice = recommend([longer, PAYS_AT_ONE])
    assert [(row.context_length, row.batch_size) for row in advice.rows] == [(1024, 1), (1024, 4), (8192, 1), (8192, 4)]
    assert set(advice.schedules) == {1024, 8192}


def candidate(speedup: float, tokens: int, half_width: float = 0.01, drafter: str = "ngram") -> Candidate:
    return Candidate(drafter, tokens, speedup, speedup * (1 - half_width), speedup * (1 + half_width))


def test_ties_go_to_the_smaller_number_of_draft_tokens() -> None:
    assert [each.draft_tokens for each in rank([candidate(1.405, 5), candidate(1.40, 3), candidate(1.2, 1)])] == [
        3,
        5,
        1,
    ]
    assert [each.draft_tokens for each in rank([candidate(1.42, 5), candidate(1.40, 3)])] == [5, 3]


def test_a_proven_gain_is_taken_before_a_larger_one_that_is_not() -> None:
    judgement = judge([candidate(1.5, 5, half_width=0.4), candidate(1.3, 2)], 1.02)
    assert judgement.verdict is Verdict.ENABLE
    assert judgement.candidate is not None
    assert judgement.candidate.draft_tokens == 2


def test_a_candidate_without_an_interval_keeps_the_question_open() -> None:
    assert judge([candidate(0.8, 1), Candidate("ngram", 2)], 1.02).verdict is Verdict.INCONCLUSIVE
    assert judge([candidate(0.8, 1)], 1.02).verdict is Verdict.DISABLE
    assert judge([], 1.02).verdict is Verdict.INCONCLUSIVE


@given(st.lists(st.tuples(st.floats(0.5, 2), st.integers(1, 5), st.floats(0, 0.5)), max_size=6))
def test_verdicts_follow_the_intervals(shapes: list[tuple[float, int, float]]) -> None:
    candidates = [candidate(*shape) for shape in shapes]
    verdict = judge(candidates, 1.02).verdict
    lows = [each.speedup_low or 0.0 for each in candidates]
    highs = [each.speedup_high or 0.0 for each in candidates]
    assert (verdict is Verdict.ENABLE) == any(low > 1.02 for low in lows)
    assert (verdict is Verdict.DISABLE) == (bool(candidates) and all(high <= 1.02 for high in highs))
    assert sorted(map(repr, rank(candidates))) == sorted(map(repr, candidates))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"profile": {2: 1.0}}, r"\[2\]"),
        ({"profile": {1: -1.0}}, "-1.0"),
        ({"smallest_margin": -0.1}, "-0.1"),
        ({"draws": 100}, "100"),
    ],
)
def test_bad_input_is_named(options, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        recommend([PAYS_AT_ONE], **options)


def test_a_context_length_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="1024"):
        recommend([PAYS_AT_ONE, PAYS_AT_ONE])
