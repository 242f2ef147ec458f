"""A probe whose truth is known: a drafter that drafts in some steps, prompts that differ, launches that drift."""

from dataclasses import dataclass

import numpy as np

from service.science import Acceptance, DrafterMeasurements, Measurements, TimedRepeat


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log time: between launches (all cells alike, each cell), repeats and steps."""

    launch: float = 0.0
    cell: float = 0.0
    repeat: float = 0.01
    step: float = 0.03
    interrupted_share: float = 0.02


@dataclass(frozen=True)
class World:
    """One target and one drafter. A prompt drafts in a share of its steps; a draft adds `token_ms` per token."""

    decode_ms: float = 10.0
    overhead_ms: float = 1.0
    token_ms: float = 0.8
    draft_tokens: int = 3
    acceptance: float = 0.6
    prompts: int = 14
    steps: int = 40
    repeats: int = 3
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8)
    noise: Noise = Noise()

    def _prompt_counts(self, prompts: int, random: np.random.Generator) -> Acceptance:
        coverage = random.beta(2.0, 2.0, prompts)
        acceptance = np.clip(self.acceptance + random.normal(0, 0.1, prompts), 0.05, 0.95)
        request_steps = random.integers(30, 60, prompts)
        drafted_steps = random.binomial(request_steps, coverage)
        accepted = np.zeros((prompts, self.draft_tokens), dtype=np.int64)
        reached = drafted_steps
        for position in range(self.draft_tokens):
            reached = random.binomial(reached, acceptance)
            accepted[:, position] = reached
        return Acceptance(
            emitted_tokens=request_steps + accepted.sum(axis=1),
            request_steps=request_steps,
            drafted_steps=drafted_steps,
            drafted_tokens=drafted_steps * self.draft_tokens,
            accepted_per_position=accepted,
        )

    def true_speedup(self) -> float:
        many = self._prompt_counts(200_000, np.random.default_rng(0))
        step_ms = self.decode_ms + self.overhead_ms + self.token_ms * many.drafted_tokens_per_request_step
        return many.acceptance_length * self.decode_ms / step_ms

    def measure(self, seed: int, control: bool = True) -> Measurements:
        random = np.random.default_rng(seed)
        acceptance = self._prompt_counts(self.prompts, random)
        drafted_share = random.beta(2.0, 2.0, (self.repeats, 64))
        levels = {arm: random.normal(0, self.noise.launch) for arm in ("baseline", "control", "drafter")}

        def cell(arm: str, batch_size: int, mean_ms: float, drafts: bool) -> list[TimedRepeat]:
            level = levels[arm] + random.normal(0, self.noise.cell)
            repeats = []
            for repeat in range(self.repeats):
                shares = drafted_share[repeat, :batch_size]
                drafted = np.zeros(self.steps)
                if drafts:
                    drafted = random.binomial(1, shares, (self.steps, batch_size)).sum(axis=1) * self.draft_tokens
                usual = mean_ms + self.token_ms * drafted / batch_size
                log_noise = level + random.normal(0, self.noise.repeat) + random.normal(0, self.noise.step, self.steps)
                step_ms = usual * np.exp(log_noise)
                step_ms[random.random(self.steps) < self.noise.interrupted_share] *= 3.0
                repeats.append(TimedRepeat(step_ms, drafted))
            return repeats

        drafter = {
            (size, self.draft_tokens): cell("drafter", size, self.decode_ms + self.overhead_ms, True)
            for size in self.batch_sizes
        }
        return Measurements(
            context_length=0,
            baseline={size: cell("baseline", size, self.decode_ms, False) for size in self.batch_sizes},
            control={size: cell("control", size, self.decode_ms, False) for size in self.batch_sizes}
            if control
            else {},
            drafters={"ngram": DrafterMeasurements({self.draft_tokens: acceptance}, drafter)},
        )
