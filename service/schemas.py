"""What is sent to the service: requests, which forbid what they do not know, and the plan that one is stored as."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from service.json_faults import first_fault

LARGEST_BODY_BYTES = 1_000_000
LARGEST_BATCH_SIZE = 1024
MOST_DRAFT_TOKENS = 32
LONGEST_CONTEXT = 4_194_304
ARMS = ("baseline", "drafters", "verification", "routing", "schedule")
MEASURED_ARMS = ("baseline", "drafters")

TEXT_PATTERN = r"^[^\x00-\x1f\x7f]+$"
HARDWARE_LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
DRAFTER_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _no_text_for_a_number(value: Any) -> Any:
    """JSON has numbers: a text or a truth value in the place of one is a mistake, though Python could convert it."""
    if isinstance(value, str | bool):
        raise ValueError(f"{json.dumps(value)[:60]} is no number: give one, without quotes")
    return value


def _without_faults(document: Any) -> Any:
    if fault := first_fault(document):
        raise PydanticCustomError("json_fault", "{reason}", {"reason": fault.reason, "fault": fault})
    return document


Number = BeforeValidator(_no_text_for_a_number)
Text = Annotated[str, Field(min_length=1, max_length=512, pattern=TEXT_PATTERN)]
HardwareLabel = Annotated[str, Field(max_length=100, pattern=HARDWARE_LABEL_PATTERN)]
DrafterName = Annotated[str, Field(max_length=100, pattern=DRAFTER_NAME_PATTERN)]
BatchSize = Annotated[int, Number, Field(ge=1, le=LARGEST_BATCH_SIZE)]
ContextLength = Annotated[int, Number, Field(ge=1, le=LONGEST_CONTEXT)]


def _ascending(values: list[int], noun: str) -> list[int]:
    repeated = sorted(value for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise ValueError(f"{noun} {repeated[0]} is given more than once: name each once")
    return sorted(values)


class Request(BaseModel):
    """Something sent to the service; a field that it does not know is a mistake, not an extension."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Message(Request):
    """One message of a chat, in OpenAI's form; what a chat template may read besides stays as it came."""

    model_config = ConfigDict(extra="allow")

    role: str = Field(min_length=1)
    content: str | None = None


class Prompt(Request):
    """A prompt: plain text, or a chat that the model's own template turns into text."""

    prompt: str | None = Field(default=None, min_length=1)
    messages: list[Message] | None = Field(default=None, min_length=1)

    _can_be_kept = model_validator(mode="before")(_without_faults)

    @model_validator(mode="after")
    def _either(self) -> "Prompt":
        if (self.prompt is None) == (self.messages is None):
            has = "neither" if self.prompt is None else "both"
            raise ValueError(f'a prompt has either "prompt" or "messages", and this one has {has}: give one of them')
        return self


class Target(Request):
    """The served model."""

    model: Text
    revision: Text | None = None
    dtype: Text = "auto"
    quantization: Text | None = None
    tensor_parallel: Annotated[int, Number] = Field(default=1, ge=1, le=1024)
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Handed to the engine as they are, by the engine's own names."""


class Drafter(Request):
    """What proposes draft tokens. Options are the engine's own, such as `prompt_lookup_max` of `ngram`."""

    method: DrafterName
    model: Text | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    name: DrafterName | None = Field(default=None, description="Unique in its probe; the method, numbered, if absent.")


class NamedDrafter(Drafter):
    """A drafter of a stored probe, where each has its name."""

    name: DrafterName


def named(drafters: Sequence[Drafter]) -> list[Drafter]:
    """The drafters with their names: as given, else the method, numbered from its second use on (`ngram-2`)."""
    taken = [drafter.name for drafter in drafters if drafter.name]
    for name, times in Counter(taken).items():
        if times > 1:
            raise ValueError(f"{times} drafters are named {name!r}: give each a name of its own")
    result = []
    for drafter in drafters:
        name, number = drafter.name or drafter.method, 2
        while not drafter.name and name in taken:
            name, number = f"{drafter.method}-{number}", number + 1
        if not drafter.name:
            taken.append(name)
        result.append(drafter.model_copy(update={"name": name}))
    return result


class Load(Request):
    """How a workload is run, whatever its prompts."""

    context_lengths: list[ContextLength] | None = Field(default=None, min_length=1, max_length=32)
    """Prompts are cut or filled up to each of these; null leaves them as they are."""
    output_tokens: Annotated[int, Number] = Field(default=128, ge=2, le=65536)
    temperature: Annotated[float, Number] = Field(default=0.0, ge=0.0, le=2.0)

    @field_validator("context_lengths")
    @classmethod
    def _contexts_ascend(cls, values: list[int] | None) -> list[int] | None:
        return None if values is None else _ascending(values, "context length")


def _name_or_list(value: Any) -> str:
    return "<name>" if isinstance(value, str) else "<list>"


class WorkloadRequest(Load):
    """What is generated: prompts by the name of a built-in set or as they are, and how they are run."""

    prompts: Annotated[
        Annotated[Text, Tag("<name>")] | Annotated[list[Prompt], Field(min_length=1, max_length=10_000), Tag("<list>")],
        Discriminator(_name_or_list),
    ]


class Workload(Load):
    """A stored workload: its prompts by name (`inline` if they were sent along) and by hash."""

    prompts: str
    prompts_sha256: str


class Plan(Request):
    """What a probe measures, whatever its drafters are called and wherever its prompts are."""

    target: Target
    hardware: HardwareLabel
    batch_sizes: list[BatchSize] = Field(min_length=1, max_length=64)
    max_draft_tokens: Annotated[int, Number] = Field(default=5, ge=1, le=MOST_DRAFT_TOKENS)
    arms: list[str] = Field(default=list(MEASURED_ARMS), min_length=1)
    repeats: Annotated[int, Number] = Field(default=5, ge=3, le=50)
    """Timed repeats of each cell; the control repeats less."""
    budget_seconds: Annotated[float, Number] = Field(default=1200, gt=0, le=4 * 3600)
    relaunch: bool = False
    """Launch the engine anew for each K, with a schedule that holds only that K, instead of loading it once for all of
    them: slow, and what the one load can be held against."""
    engine: Literal["vllm", "simulated"] = "vllm"
    """`simulated` makes its figures up, always the same: for trying the service out, never for a decision."""

    @field_validator("batch_sizes")
    @classmethod
    def _batch_sizes_ascend(cls, values: list[int]) -> list[int]:
        return _ascending(values, "batch size")

    @field_validator("arms")
    @classmethod
    def _arms_are_measured(cls, arms: list[str]) -> list[str]:
        measured = f"this release measures {', '.join(MEASURED_ARMS)}"
        for arm in arms:
            if arm not in ARMS:
                raise ValueError(f"there is no arm {arm!r}: {measured}")
            if arm not in MEASURED_ARMS:
                raise ValueError(f"the arm {arm!r} is planned but not measured yet: {measured}")
        missing = [arm for arm in MEASURED_ARMS if arm not in arms]
        if missing:
            raise ValueError(f"the arm {missing[0]!r} is missing: a speed-up needs both {' and '.join(MEASURED_ARMS)}")
        return list(MEASURED_ARMS)


class ProbeRequest(Plan):
    """Asks for a probe. One that is under way, or has succeeded, with the same plan is given back instead."""

    drafters: list[Drafter] = Field(min_length=1, max_length=16)
    workload: WorkloadRequest
    fresh: bool = False
    """Measure even if this has been measured before."""
    wait_for_worker: bool = False
    """Queue it even if no live worker works for its hardware."""

    _can_be_kept = model_validator(mode="before")(_without_faults)

    @field_validator("drafters")
    @classmethod
    def _drafters_are_named(cls, drafters: list[Drafter]) -> list[Drafter]:
        return named(drafters)


class ProbePlan(Plan):
    """A stored request, as a worker carries it out and as documents show it."""

    drafters: list[NamedDrafter]
    workload: Workload
