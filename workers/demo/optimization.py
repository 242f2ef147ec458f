"""How a demo model is optimized within a time budget; knows nothing of what the loss means."""

import logging
import math
import time
from collections.abc import Callable, Iterator

import torch
from transformers import PreTrainedModel

REPORT_EVERY_STEPS = 100

logger = logging.getLogger("workers.demo")


class Schedule:
    """A learning rate over a time budget: linear warm-up, then a cosine down to a twentieth of the peak."""

    WARMUP_SHARE = 0.02
    FLOOR_SHARE = 0.05

    def __init__(self, peak: float, minutes: float) -> None:
        self.peak = peak
        self.minutes = minutes
        self._start = time.monotonic()

    @property
    def spent_minutes(self) -> float:
        return (time.monotonic() - self._start) / 60

    @property
    def is_over(self) -> bool:
        return self.spent_minutes >= self.minutes

    def learning_rate(self) -> float:
        spent = min(self.spent_minutes / self.minutes, 1.0)
        if spent < self.WARMUP_SHARE:
            share = spent / self.WARMUP_SHARE
        else:
            share = 0.5 * (1 + math.cos(math.pi * (spent - self.WARMUP_SHARE) / (1 - self.WARMUP_SHARE)))
        return self.peak * (self.FLOOR_SHARE + (1 - self.FLOOR_SHARE) * share)


def optimizer_of(model: PreTrainedModel, learning_rate: float) -> torch.optim.AdamW:
    """AdamW that lets matrices decay and leaves the gains of the norms alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    gains = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def optimize(
    model: PreTrainedModel,
    losses: Iterator[tuple[torch.Tensor, float]],
    schedule: Schedule,
    checkpoint: Callable[[], None],
    checkpoint_minutes: float,
) -> None:
    """Step until the time is spent; ``losses`` yields the loss to descend and the figure in nats to report."""
    optimizer = optimizer_of(model, schedule.peak)
    figures: list[float] = []
    next_checkpoint = checkpoint_minutes
    while not schedule.is_over:
        rate = schedule.learning_rate()
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, figure = next(losses)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        figures.append(figure)
        if len(figures) % REPORT_EVERY_STEPS == 0:
            mean = sum(figures[-REPORT_EVERY_STEPS:]) / REPORT_EVERY_STEPS
            logger.info("step %d, %.1f min, rate %.2e, loss %.4f", len(figures), schedule.spent_minutes, rate, mean)
        if schedule.spent_minutes >= next_checkpoint:
            checkpoint()
            next_checkpoint += checkpoint_minutes
    checkpoint()
    logger.info("finished after %d steps", len(figures))
