"""What the service answers with: one model per document, its names fixed."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict

from service.schemas import ProbePlan

Figure = Annotated[float, AfterValidator(lambda value: float(f"{value:.6g}"))]
"""A measured number, without the digits that no measurement supports."""


class Progress(BaseModel):
    """How far a probe is: the arm that was last heard of and the timed repeats of the whole probe."""

    arm: str | None = None
    repeats_done: int = 0
    repeats_total: int | None = None


class ProbeDocument(BaseModel):
    """A probe: what was asked, what the worker made of it, and where it stands."""

    id: str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    model: str
    hardware: str
    request: ProbePlan
    resolved: dict[str, Any] | None
    """Revision, engine, dtype and whatever else only the worker knows; null until its engine has loaded."""
    error: str | None
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    progress: Progress


class ProbeList(BaseModel):
    """One page of probes, newest first. `next_cursor` asks for the page after it; null on the last."""

    probes: list[ProbeDocument]
    next_cursor: str | None


class CellDocument(BaseModel):
    """One cell: what its timed repeats add up to. `step_ms` is the median of the repeats' mean step."""

    arm: str
    context_length: int | None
    """Null for prompts as they came."""
    batch_size: int
    draft_tokens: int
    repeats: int
    seconds: Figure
    steps: int
    step_ms: Figure
    step_ms_low: Figure
    step_ms_high: Figure
    """The fastest and the slowest repeat."""
    emitted_tokens: int
    request_steps: int
    drafted_steps: int
    drafted_tokens: int
    tokens_per_second: Figure


class CellList(BaseModel):
    """The cells of a probe, by arm, context length, batch size and draft tokens."""

    probe_id: str
    cells: list[CellDocument]


class Hardware(BaseModel):
    """One hardware label: who works on it and what waits for it."""

    label: str
    live_workers: int
    engines: list[str]
    queued: int
    running: list[str]
    """Ids of the probes that are being measured."""


class HardwareList(BaseModel):
    """Every label that has a live worker or a probe waiting."""

    hardware: list[Hardware]


class Health(BaseModel):
    """That the service answers."""

    status: Literal["ok"] = "ok"
    version: str


class Problem(BaseModel):
    """An error, as RFC 9457 has it. `errors` names each wrong value; `nearest` offers what comes closest."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, Any]] | None = None


class EngineName(BaseModel):
    """The engine that measured."""

    name: str
    version: str


class AdvisedWorkload(BaseModel):
    """What was generated while it was measured."""

    prompts: str
    prompts_sha256: str
    temperature: float
    output_tokens: int


class DivergenceDocument(BaseModel):
    """An output that differs from the baseline's, and the first position at which it does."""

    model_config = ConfigDict(from_attributes=True)

    drafter: str
    draft_tokens: int
    prompt: int
    position: int


class OutputsDocument(BaseModel):
    """Greedy outputs with speculation held against those without; `failed` if they differ more than chance does."""

    compared: int
    diverged: int
    diverged_baseline: int | None
    failed: bool = False
    divergences: list[DivergenceDocument] = []


class LaunchDocument(BaseModel):
    """The one launch that is advised: none, or one drafter with its largest K."""

    model_config = ConfigDict(from_attributes=True)

    speculation: bool
    drafter: str | None
    max_draft_tokens: int
    value: Figure | None = None
    """Its worth over all measured batch sizes; 1 is the launch without a drafter."""


class CandidateDocument(BaseModel):
    """One drafter with K draft tokens at one batch size."""

    model_config = ConfigDict(from_attributes=True)

    drafter: str
    draft_tokens: int
    speedup: Figure | None
    speedup_low: Figure | None
    speedup_high: Figure | None
    acceptance_length: Figure | None
    acceptance_length_per_draft: Figure | None
    draft_coverage: Figure | None
    break_even_acceptance_length: Figure | None
    step_ms: Figure | None
    noisy: bool = False
    """Whether its repeats scatter too much to be trusted."""


class BatchSizeAdvice(BaseModel):
    """The advice at one batch size and context length; null stands for what was not measured."""

    model_config = ConfigDict(from_attributes=True)

    batch_size: int
    context_length: int | None
    verdict: Literal["enable", "disable", "inconclusive"]
    drafter: str | None
    draft_tokens: int
    speedup: Figure | None
    speedup_low: Figure | None
    speedup_high: Figure | None
    acceptance_length: Figure | None
    acceptance_length_per_draft: Figure | None
    draft_coverage: Figure | None
    break_even_acceptance_length: Figure | None
    break_even_floor: Figure | None = None
    decode_step_ms: Figure | None
    step_ms: Figure | None
    verify_step_ms: Figure | None = None
    draft_step_ms: Figure | None = None
    unexplained_ms: Figure | None = None
    target_efficiency: Figure | None = None
    bytes_model_target_efficiency: dict[str, Figure] | None = None
    unique_experts: dict[str, Figure] | None = None
    reason: str
    candidates: list[CandidateDocument]


class ScheduleDocument(BaseModel):
    """The advised launch's draft tokens over all batch sizes: inclusive ranges [low, high, K]."""

    context_length: int | None
    ranges: list[tuple[int, int, int]]


class AdviceDocument(BaseModel):
    """Whether to speculate, with which drafter and how many draft tokens, at each batch size, and why."""

    probe_id: str
    complete: bool
    model: str
    revision: str | None
    hardware: str
    evidence: Literal["measured", "screened", "estimated", "simulated"]
    engine: EngineName | None
    created_at: AwareDatetime
    workload: AdvisedWorkload
    engine_loads: int
    measured_seconds: Figure
    noise_floor: Figure | None
    margin: Figure
    outputs: OutputsDocument | None
    """Null if outputs cannot be compared, as when they are sampled."""
    launch: LaunchDocument
    batch_sizes: list[BatchSizeAdvice]
    schedule: list[ScheduleDocument]
    warnings: list[str]
