"""What an error of a database means: which database, what is wrong with it, and what to do. Hides its password."""

import logging
import re
import sqlite3

import psycopg
from fastapi import FastAPI, Request, Response
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service.database import LOST_FILE, engine_url
from service.errors import DatabaseUnavailableError
from service.problems import answer_of
from service.settings import Settings

RETRY_AFTER_SECONDS = 10

RESTORE = "restore the file from a backup, or move it away to begin with an empty one"
SQLITE_TROUBLES = {
    "SQLITE_FULL": ("the disk of {name} is full", "make room on it"),
    "SQLITE_CANTOPEN": (
        "{name} cannot be opened",
        "check that it is a file in a folder that this user may write to, and BREAKEVEN_HOME",
    ),
    LOST_FILE: (
        "{name} was deleted, moved or replaced while it was in use",
        "put it back, or restart the service and its workers to begin with what is there now",
    ),
    "SQLITE_READONLY": (
        "{name} may only be read",
        "let this user write to the file and its folder, or set BREAKEVEN_HOME to another",
    ),
    "SQLITE_IOERR": ("{name} cannot be read or written", "check its disk and the system's log"),
    "SQLITE_NOTADB": ("{name} is no SQLite database", RESTORE),
    "SQLITE_CORRUPT": ("{name} is damaged", RESTORE),
}
LOCKED = (
    "another program has held the write lock of {name} for more than {seconds} s",
    "end it, or wait until it is done",
)
POSTGRESQL_TROUBLES = {
    "53100": ("the disk of {name} is full", "make room on it"),
    "53300": ("{name} takes no more connections", "close some, or raise its max_connections"),
    "55P03": (
        "another program has held a lock of {name} for more than {seconds} s",
        "end it, or wait until it is done",
    ),
    "57P03": ("{name} is starting or stopping", "wait until it is ready"),
    "25006": ("{name} may only be read", "set BREAKEVEN_DATABASE_URL to the primary server"),
}
AWAY = ("{name} cannot be reached", "check that it runs, and BREAKEVEN_DATABASE_URL")


logger = logging.getLogger("uvicorn.error")


def install(app: FastAPI) -> None:
    """Answer what a database cannot do at the moment with 503. What was under way has been rolled back by then."""

    async def unavailable(request: Request, error: Exception) -> Response:
        message = told(error, request.app.state.service.settings)
        if message is None:
            raise error
        logger.warning("%s %s: %s", request.method, request.url.path, message)
        return answer_of(request, DatabaseUnavailableError(message, RETRY_AFTER_SECONDS))

    # SQLite's own come from what is set on a new connection.
    for kind in (SQLAlchemyError, sqlite3.Error):
        app.add_exception_handler(kind, unavailable)


def told(error: Exception, settings: Settings) -> str | None:
    """The error of a database, in one line; None if it is about a statement rather than about the database."""
    url = engine_url(settings.database_url)
    trouble: tuple[str, str] | None
    if isinstance(error, PoolTimeoutError):
        return _line(("all connections to {name} are in use", "send fewer requests at once"), url, settings)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        # Extended codes begin with the name of what they extend, as SQLITE_IOERR_WRITE does.
        code = re.match("SQLITE_[A-Z]+", getattr(cause, "sqlite_errorname", "")) or [""]
        trouble = LOCKED if code[0] in ("SQLITE_BUSY", "SQLITE_LOCKED") else SQLITE_TROUBLES.get(code[0])
        return _line(trouble, url, settings) if trouble else None
    if isinstance(cause, psycopg.Error):
        trouble = POSTGRESQL_TROUBLES.get(cause.sqlstate or "")
        if trouble is None and isinstance(cause, psycopg.OperationalError):
            trouble = (f"{AWAY[0]} ({' '.join(str(cause).split())})", AWAY[1])
        return _line(trouble, url, settings) if trouble else None
    return None


def _line(trouble: tuple[str, str], url: URL, settings: Settings) -> str:
    name = str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
    wrong, advice = trouble
    # What PostgreSQL says may hold braces of its own.
    told = wrong.replace("{name}", name).replace("{seconds}", f"{settings.busy_timeout_seconds:g}")
    return f"{told}: {advice}"
