"""Timing and acceptance, held against what the simulated engine was told to do."""

from collections.abc import Callable

import pytest

from workers.probe.engine import EngineError, RequestOutput, Step
from workers.probe.measure import Workload, continue_prompts, time_cell
from workers.probe.pace import Pace
from workers.probe.simulate import SimulatedEngine

Load = Callable[..., SimulatedEngine]

WORKLOAD = Workload([[i + 1, i + 2, i + 3] for i in range(10)], output_tokens=40, temperature=0.0)


class RecordingEngine:
    """The simulated engine, with every step it ran."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self.description = engine.description
        self.encode, self.set_draft_tokens = engine.encode, engine.set_draft_tokens
        self.add_request, self.abort_all = engine.add_request, engine.abort_all
        self.steps: list[Step] = []

    def step(self) -> Step:
        self.steps.append(self._engine.step())
        return self.steps[-1]


def test_only_steps_with_the_whole_batch_decoding_are_counted(simulated: Load) -> None:
    engine = RecordingEngine(simulated(max_draft_tokens=0))
    timing = time_cell(engine, WORKLOAD, batch_size=4, draft_tokens=0, steps=100)
    clean = [step for step in engine.steps if step.decoding == 4 and not step.prefilling]
    assert len(engine.steps) > len(clean) == timing.steps == 100  # 40 tokens a request: prefills came between
    assert timing.seconds == pytest.approx(sum(step.seconds for step in clean))
    assert timing.emitted_tokens == timing.request_steps == 400


def test_a_finished_request_is_replaced_so_that_the_batch_stays_full(simulated: Load) -> None:
    engine = RecordingEngine(simulated())
    time_cell(engine, WORKLOAD, batch_size=3, draft_tokens=2, steps=60)
    assert all(step.decoding + step.prefilling == 3 for step in engine.steps)


def test_the_time_of_a_step_is_the_one_the_engine_was_given(simulated: Load) -> None:
    engine = simulated(decode_ms=8.0, verify_ms=2.0, noise=0.0)
    timing = time_cell(engine, WORKLOAD, batch_size=2, draft_tokens=3, steps=20)
    assert timing.step_ms == [14.0] * 20
    assert timing.step_drafted_tokens == [6] * 20
    assert timing.drafted_steps == timing.request_steps == 40


def test_speculation_off_drafts_nothing(simulated: Load) -> None:
    timing = time_cell(simulated(), WORKLOAD, batch_size=2, draft_tokens=0, steps=20)
    assert (timing.drafted_tokens, timing.drafted_steps, sum(timing.accepted_per_position)) == (0, 0, 0)


def test_a_repeat_leaves_no_request_behind(simulated: Load) -> None:
    engine = simulated()
    time_cell(engine, WORKLOAD, batch_size=4, draft_tokens=1, steps=5)
    assert engine.step().decoding == 0


def test_requests_too_short_to_fill_a_batch_are_an_error_that_says_what_to_do(simulated: Load) -> None:
    short = Workload(WORKLOAD.prompts, output_tokens=1, temperature=0.0)
    with pytest.raises(EngineError, match=r"raise output_tokens \(1\), lower batch size 2, or"):
        time_cell(simulated(), short, batch_size=2, draft_tokens=0, steps=4)


def test_outputs_are_the_same_at_every_batch_size_and_draft_length(simulated: Load) -> None:
    def outputs(batch_size: int, draft_tokens: int) -> dict[int, list[int]]:
        done = continue_prompts(
            simulated(), WORKLOAD, batch_size=batch_size, draft_tokens=draft_tokens, prompts=range(10)
        )
        return {continuation.prompt: continuation.token_ids for continuation in done}

    assert outputs(1, 0) == outputs(8, 0) == outputs(3, 1) == outputs(8, 3)


def test_acceptance_is_what_the_engine_was_given_and_leaves_out_the_prefill(simulated: Load) -> None:
    many = Workload([[i, i + 1] for i in range(400)], output_tokens=61, temperature=0.0)
    done = list(
        continue_prompts(
            simulated(acceptance=0.6),
            many,
            batch_size=8,
            draft_tokens=2,
            prompts=range(len(many.prompts)),
        )
    )
    assert all(len(c.token_ids) == c.emitted_tokens + 1 for c in done)
    acceptance_length = sum(c.emitted_tokens for c in done) / sum(c.request_steps for c in done)
    # The last step of a request may be cut off by its length, which costs a little.
    assert acceptance_length == pytest.approx((1 - 0.6**3) / 0.4, rel=0.02)
    steps = sum(c.drafted_steps for c in done)
    positions = [sum(sum(c.accepted_per_position[i : i + 1]) for c in done) / steps for i in range(2)]
    assert positions == pytest.approx([0.6, 0.36], abs=0.01)


def test_steps_without_a_draft_count_as_request_steps(simulated: Load) -> None:
    done = list(
        continue_prompts(
            simulated(coverage=0.5),
            WORKLOAD,
            batch_size=2,
            draft_tokens=3,
            prompts=range(len(WORKLOAD.prompts)),
        )
    )
    request_steps = sum(c.request_steps for c in done)
    assert 0.35 < sum(c.drafted_steps for c in done) / request_steps < 0.65


def test_text_ends_at_the_end_token_and_tokens_after_it_are_not_counted() -> None:
    class EndsInsideADraft:
        """An engine whose second step has three accepted drafts, of which the end token cuts off all but one."""

        def __init__(self) -> None:
            self._steps = iter(
                [
                    Step(0.01, 1, 0, 0, 0, (), (RequestOutput("continue-0", (5,), None),)),
                    Step(0.01, 0, 1, 1, 3, (1, 1, 1), (RequestOutput("continue-0", (6, 0), "stop", (3,), (3,)),)),
                ]
            )
            self.description = None

        def set_draft_tokens(self, draft_tokens: int) -> None:
            pass

        def add_request(self, *_: object, **__: object) -> None:
            pass

        def step(self) -> Step:
            return next(self._steps)

    (done,) = continue_prompts(EndsInsideADraft(), WORKLOAD, batch_size=1, draft_tokens=3, prompts=[0])  # type: ignore[arg-type]
    assert (done.token_ids, done.emitted_tokens, done.request_steps, done.finish_reason) == ([5, 6, 0], 2, 1, "stop")


def test_the_machines_pace_is_read_beside_every_clean_step_if_asked_for(simulated: Load) -> None:
    watched = time_cell(simulated(), WORKLOAD, batch_size=4, draft_tokens=1, steps=50, pace=Pace())
    assert len(watched.step_pace_ms) == watched.steps == 50
    assert min(watched.step_pace_ms) > 0
    assert time_cell(simulated(), WORKLOAD, batch_size=4, draft_tokens=1, steps=50).step_pace_ms == []
