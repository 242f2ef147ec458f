"""Advice, of one probe or of the newest that matches."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.advice import advise
from service.documents import AdviceDocument
from service.evidence import Question, find_evidence
from service.probes import get_probe
from service.routes.dependencies import WRONG_PARAMETER, Transaction, problems

router = APIRouter(prefix="/v1", tags=["advice"], responses=WRONG_PARAMETER)


@router.get("/probes/{probe_id}/advice", responses=problems(_404="no probe has this id"))
def read_of_probe(probe_id: str, session: Transaction) -> AdviceDocument:
    """The advice of a probe; `complete` is false while it runs, and if it did not succeed."""
    return advise(session, get_probe(session, probe_id))


@router.get("/advice", responses=problems(_404="nothing matches; `nearest` offers what comes closest"))
def read_newest(question: Annotated[Question, Query()], session: Transaction) -> AdviceDocument:
    """The advice of the newest succeeded probe that matches all that is asked."""
    return advise(session, find_evidence(session, question))
