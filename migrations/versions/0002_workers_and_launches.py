"""Who works on a probe, and which engine load each row was measured in."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("probe", sa.Column("worker", sa.String(), nullable=True))
    op.add_column("launch", sa.Column("worker", sa.String(), nullable=True))
    op.add_column("launch", sa.Column("draft_tokens", sa.JSON(), nullable=True))
    op.add_column("launch", sa.Column("warm_up_seconds", sa.Float(), nullable=True))
    for table in ("repeat", "generation"):
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("launch_id", sa.Integer(), nullable=True))
            batch.create_foreign_key(f"{table}_launch_id_fkey", "launch", ["launch_id"], ["id"])


def downgrade() -> None:
    for table in ("generation", "repeat"):
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"{table}_launch_id_fkey", type_="foreignkey")
            batch.drop_column("launch_id")
    for column in ("warm_up_seconds", "draft_tokens", "worker"):
        op.drop_column("launch", column)
    op.drop_column("probe", "worker")
