"""The timed repeats of a probe, added up by cell."""

import csv
import io
from collections.abc import Iterable
from itertools import groupby
from statistics import median

from sqlmodel import Session, col, select

from service.documents import CellDocument
from service.models import Repeat


def cells_of(session: Session, probe_id: str) -> list[CellDocument]:
    """Every cell with at least one timed step, by arm, context length, batch size and draft tokens."""
    key = (Repeat.arm, Repeat.context_length, Repeat.batch_size, Repeat.draft_tokens)
    statement = (
        select(Repeat).where(Repeat.probe_id == probe_id, Repeat.steps > 0).order_by(*(col(each) for each in key))
    )
    grouped = groupby(session.exec(statement), lambda r: (r.arm, r.context_length, r.batch_size, r.draft_tokens))
    return [_cell(list(repeats)) for _, repeats in grouped]


def to_csv(cells: Iterable[CellDocument]) -> str:
    """A header and a line per cell; what is null is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(CellDocument.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.model_dump() for cell in cells)
    return text.getvalue()


def _cell(repeats: list[Repeat]) -> CellDocument:
    first = repeats[0]
    step_ms = [1000 * repeat.seconds / repeat.steps for repeat in repeats]
    seconds = sum(repeat.seconds for repeat in repeats)
    emitted_tokens = sum(repeat.emitted_tokens for repeat in repeats)
    return CellDocument(
        arm=first.arm,
        context_length=first.context_length or None,
        batch_size=first.batch_size,
        draft_tokens=first.draft_tokens,
        repeats=len(repeats),
        seconds=seconds,
        steps=sum(repeat.steps for repeat in repeats),
        step_ms=median(step_ms),
        step_ms_low=min(step_ms),
        step_ms_high=max(step_ms),
        emitted_tokens=emitted_tokens,
        request_steps=sum(repeat.request_steps for repeat in repeats),
        drafted_steps=sum(repeat.drafted_steps for repeat in repeats),
        drafted_tokens=sum(repeat.drafted_tokens for repeat in repeats),
        tokens_per_second=emitted_tokens / seconds,
    )
