"""Which finished probe answers a question about a model on some hardware, and which come nearest if none does."""

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator
from sqlmodel import Session, col, select

from service.errors import NoEvidenceError
from service.models import Probe, ProbeStatus, now
from service.schemas import HardwareLabel, Request, Text

MOST_NEAREST = 5
MOST_CONSIDERED = 500

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", value.strip())
    if match is None:
        raise ValueError(f"{value!r} is no age: write a number and one of s, m, h, d, w, such as 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


Age = Annotated[timedelta, BeforeValidator(_age, json_schema_input_type=str)]


class Question(Request):
    """What the advice is wanted for. What is left out may be anything; `max_age` is such as 30d."""

    model: Text
    hardware: HardwareLabel
    revision: Text | None = None
    dtype: Text | None = None
    quantization: Text | None = None
    tensor_parallel: int | None = None
    engine_version: Text | None = None
    prompts: Text | None = None
    context_length: int | None = None
    temperature: float | None = None
    max_age: Age | None = None


def find_evidence(session: Session, question: Question) -> Probe:
    """The newest succeeded probe that matches; else NoEvidenceError, with the nearest of the same model."""
    measured = col(Probe.request)["engine"].as_string() != "simulated"
    statement = select(Probe).where(Probe.model == question.model, Probe.status == ProbeStatus.SUCCEEDED, measured)
    newest_first = statement.order_by(col(Probe.created_at).desc(), col(Probe.id).desc())
    here = newest_first.where(Probe.hardware == question.hardware)
    # Closed even if not read to its end: PostgreSQL keeps the rest of it open.
    with session.exec(here.execution_options(yield_per=50)) as probes:
        for probe in probes:
            if not differences(probe, question):
                return probe
    others = session.exec(newest_first.limit(MOST_CONSIDERED)).all()
    nearest = sorted(others, key=lambda probe: len(differences(probe, question)))[:MOST_NEAREST]
    raise NoEvidenceError(question.model, question.hardware, [_offer(probe, question) for probe in nearest])


def differences(probe: Probe, question: Question) -> list[str]:
    """The names of the question's fields that this probe does not answer."""
    facts = _facts(probe)
    wanted = question.model_dump(exclude={"max_age"}, exclude_none=True)
    missed = [name for name, value in wanted.items() if value not in facts[name]]
    if question.max_age is not None and _age_of(probe) > question.max_age:
        missed.append("max_age")
    return missed


def _facts(probe: Probe) -> dict[str, list[Any]]:
    """Of each field of a question, the values that this probe stands for: as asked, and as the worker resolved it."""
    target, workload = probe.request["target"], probe.request["workload"]
    resolved = probe.resolved or {}
    return {
        "model": [probe.model],
        "hardware": [probe.hardware],
        "revision": [target["revision"], resolved.get("revision")],
        "dtype": [target["dtype"], resolved.get("dtype")],
        "quantization": [target["quantization"], resolved.get("quantization")],
        "tensor_parallel": [target["tensor_parallel"]],
        "engine_version": [resolved.get("engine", {}).get("version")],
        "prompts": [workload["prompts"], workload["prompts_sha256"]],
        "context_length": workload["context_lengths"] or [],
        "temperature": [workload["temperature"]],
    }


def _age_of(probe: Probe) -> timedelta:
    return now() - (probe.finished_at or probe.created_at)


def _offer(probe: Probe, question: Question) -> dict[str, Any]:
    return {
        "probe_id": probe.id,
        "model": probe.model,
        "hardware": probe.hardware,
        "engine": (probe.resolved or {}).get("engine"),
        "created_at": probe.created_at,
        "differs": differences(probe, question),
    }
