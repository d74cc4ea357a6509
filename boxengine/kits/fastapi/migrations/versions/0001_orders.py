"""Orders and their events, as `alembic revision --autogenerate` writes them."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "order_outbox_items",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("event_name", sa.String(length=255), nullable=True),
        sa.Column("event_key", sa.String(length=255), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("status", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("options", postgresql.JSONB(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("errors_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("error_log", sa.Text(), nullable=True),
        sa.Column("processed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("available_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dedup_key", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute(
        "CREATE INDEX ix_order_outbox_items_delayed ON order_outbox_items (available_at) WHERE status = 0 AND available_at IS NOT NULL"
    )
    op.execute("CREATE INDEX ix_order_outbox_items_failed ON order_outbox_items (status, id) WHERE status IN (1, 3)")
    op.execute("CREATE INDEX ix_order_outbox_items_pending ON order_outbox_items (bucket, id) WHERE status = 0")
    op.execute(
        "CREATE UNIQUE INDEX ux_order_outbox_items_dedup ON order_outbox_items (dedup_key) WHERE dedup_key IS NOT NULL"
    )
    op.execute(
        "ALTER TABLE order_outbox_items SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)"
    )
    op.execute("ALTER INDEX IF EXISTS order_outbox_items_pkey SET (fillfactor = 50)")
    op.execute(
        "CREATE INDEX IF NOT EXISTS ix_order_outbox_items_troubled ON order_outbox_items (bucket, event_key, id) WHERE status = 1 OR (status = 0 AND (errors_count > 0 OR available_at IS NOT NULL))"
    )


def downgrade() -> None:
    op.drop_table("orders")
    op.drop_table("order_outbox_items")
