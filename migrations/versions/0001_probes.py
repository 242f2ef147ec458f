"""Probes, their measurements, their events, and the workers that measure."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "prompt_set",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prompts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "probe",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("prompts_sha256", sa.String(), sa.ForeignKey("prompt_set.sha256"), nullable=False),
        sa.Column("resolved", sa.JSON(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
    )
    for column in ("created_at", "fingerprint", "hardware", "model", "status"):
        op.create_index(f"ix_probe_{column}", "probe", [column])
    live = sa.text("status IN ('queued', 'running')")
    op.create_index(
        "probe_live_fingerprint", "probe", ["fingerprint"], unique=True, sqlite_where=live, postgresql_where=live
    )
    op.create_table(
        "launch",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("probe_id", sa.String(), sa.ForeignKey("probe.id"), nullable=False, index=True),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("import_seconds", sa.Float(), nullable=False),
        sa.Column("load_seconds", sa.Float(), nullable=False),
        sa.Column("engine", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "repeat",
        sa.Column("probe_id", sa.String(), sa.ForeignKey("probe.id"), primary_key=True),
        sa.Column("arm", sa.String(), primary_key=True),
        sa.Column("context_length", sa.Integer(), primary_key=True),
        sa.Column("batch_size", sa.Integer(), primary_key=True),
        sa.Column("draft_tokens", sa.Integer(), primary_key=True),
        sa.Column("repeat", sa.Integer(), primary_key=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("emitted_tokens", sa.Integer(), nullable=False),
        sa.Column("request_steps", sa.Integer(), nullable=False),
        sa.Column("drafted_steps", sa.Integer(), nullable=False),
        sa.Column("drafted_tokens", sa.Integer(), nullable=False),
        sa.Column("step_ms", sa.JSON(), nullable=False),
        sa.Column("step_drafted_tokens", sa.JSON(), nullable=False),
        sa.Column("step_pace_ms", sa.JSON(), nullable=False),
        sa.Column("accepted_per_position", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "generation",
        sa.Column("probe_id", sa.String(), sa.ForeignKey("probe.id"), primary_key=True),
        sa.Column("arm", sa.String(), primary_key=True),
        sa.Column("context_length", sa.Integer(), primary_key=True),
        sa.Column("batch_size", sa.Integer(), primary_key=True),
        sa.Column("draft_tokens", sa.Integer(), primary_key=True),
        sa.Column("prompt", sa.Integer(), primary_key=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("token_ids", sa.JSON(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=False),
        sa.Column("emitted_tokens", sa.Integer(), nullable=False),
        sa.Column("request_steps", sa.Integer(), nullable=False),
        sa.Column("drafted_steps", sa.Integer(), nullable=False),
        sa.Column("drafted_tokens", sa.Integer(), nullable=False),
        sa.Column("accepted_per_position", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("probe_id", sa.String(), sa.ForeignKey("probe.id"), nullable=False, index=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("hardware", sa.String(), nullable=False, index=True),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    for table in ("worker", "event", "generation", "repeat", "launch", "probe", "prompt_set"):
        op.drop_table(table)
