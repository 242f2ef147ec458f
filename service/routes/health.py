"""Whether the service lives, and whether it can do its work."""

import sqlite3

from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError

from service import __version__
from service.database import schema_is_current
from service.database_trouble import told
from service.documents import Health
from service.errors import NotReadyError
from service.routes.dependencies import TheService, problems

router = APIRouter(tags=["health"])


@router.get("/healthz")
def live() -> Health:
    """The process answers."""
    return Health(version=__version__)


@router.get("/readyz", responses=problems(_503="the database cannot be reached, or has another schema"))
def ready(service: TheService) -> Health:
    """The database can be reached and is at this release's schema."""
    try:
        current = schema_is_current(service.engine)
    except (SQLAlchemyError, sqlite3.Error) as error:
        trouble = told(error, service.settings) or f"the database cannot be asked: {error}"
        raise NotReadyError(f"{trouble}; check BREAKEVEN_DATABASE_URL and BREAKEVEN_HOME") from error
    if not current:
        raise NotReadyError(
            "the database is not at this release's schema: `breakeven serve` migrates it when it starts"
        )
    return Health(version=__version__)
