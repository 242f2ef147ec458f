"""What an arm's child is told to measure. Travels as JSON, and imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.probe.engine import LaunchSpec

MINIMUM_REPEATS = 3

Cell = tuple[int, int, int]
"""(context length, batch size, draft tokens); a context length of 0 stands for prompts as they came."""


@dataclass(frozen=True)
class ArmSpec:
    """What to measure in one launch.

    Fields:
        cells: to be timed, `repeats` times each, `steps` clean steps a repeat.
        continuations: (context length, batch size, draft tokens) at which every prompt is continued to its end.
        watch_pace: whether the engine's cores are shared with other programs, so that their pace is part of a timing.
        done_repeats: cells with the repeat's number, done_prompts: continuations with the prompt's index: rows that
            an earlier attempt left.
        seconds: for the load and all that is measured; once they have passed no further round of repeats starts, if
            every cell has MINIMUM_REPEATS.
        launches_to_come: the probe's launches after this one, of which a mistake is told before anything is measured.
        apart: whether the engine shares nothing with other launches, not even the import of its code.
    """

    arm: str
    engine: str
    launch: LaunchSpec
    prompts: list[dict[str, Any]]
    output_tokens: int
    temperature: float
    cells: list[Cell]
    repeats: int
    steps: int
    seconds: float
    watch_pace: bool
    launches_to_come: list[LaunchSpec] = field(default_factory=list)
    apart: bool = False
    continuations: list[Cell] = field(default_factory=list)
    done_repeats: list[tuple[int, int, int, int]] = field(default_factory=list)
    done_prompts: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether nothing is left to measure."""
        repeats = {(*cell, repeat) for cell in self.cells for repeat in range(self.repeats)}
        prompts = {(*place, index) for place in self.continuations for index in range(len(self.prompts))}
        return repeats <= set(self.done_repeats) and prompts <= set(self.done_prompts)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ArmSpec":
        """Of `dataclasses.asdict` that went through JSON."""
        rows = ("cells", "continuations", "done_repeats", "done_prompts")
        launch, *to_come = (
            LaunchSpec(**{**each, "draft_tokens": tuple(each["draft_tokens"])})
            for each in (data["launch"], *data["launches_to_come"])
        )
        cells = {name: [tuple(row) for row in data[name]] for name in rows}
        return cls(**{**data, "launch": launch, "launches_to_come": to_come, **cells})
