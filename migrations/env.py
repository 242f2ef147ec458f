"""How Alembic runs here: on the connection that `service.database` hands over, and on our own tables only."""

from typing import Any

from alembic import context
from sqlalchemy import text
from sqlmodel import SQLModel

from service import models  # noqa: F401  (importing it declares the tables)


def is_ours(_object: Any, name: str | None, kind: str, _reflected: bool, _compare_to: Any) -> bool:
    """The queue keeps its tables in the same SQLite file; they are none of our business."""
    return kind != "table" or name in SQLModel.metadata.tables


connection = context.config.attributes["connection"]
on_sqlite = connection.dialect.name == "sqlite"
# SQLite's driver opens no transaction for DDL: take the write lock here, so that a release either arrives whole or
# not at all, and of two programs that start together one waits. PostgreSQL waits on a lock of that purpose.
connection.execute(text("BEGIN IMMEDIATE" if on_sqlite else "SELECT pg_advisory_xact_lock(68270118)"))
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    include_object=is_ours,
    render_as_batch=on_sqlite,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
