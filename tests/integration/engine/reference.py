"""Tables as a Rails application makes them by the README of sbmt-outbox, and rows as it writes them: all by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from tests.integration.engine.rig import Rig

# What ActiveRecord makes of the migration on PostgreSQL: bigserial, timestamp(6) without time zone, jsonb.
POSTGRESQL = """
CREATE TABLE order_outbox_items (
  id bigserial PRIMARY KEY,
  uuid uuid NOT NULL,
  event_name character varying NOT NULL,
  event_key character varying NOT NULL,
  bucket integer NOT NULL,
  status integer DEFAULT 0 NOT NULL,
  options jsonb,
  payload bytea NOT NULL,
  errors_count integer DEFAULT 0 NOT NULL,
  error_log text,
  processed_at timestamp(6) without time zone,
  created_at timestamp(6) without time zone NOT NULL,
  updated_at timestamp(6) without time zone NOT NULL
);
CREATE UNIQUE INDEX index_order_outbox_items_on_uuid ON order_outbox_items (uuid);
CREATE INDEX index_order_outbox_items_on_status_and_id_and_bucket
  ON order_outbox_items (status, id, bucket) INCLUDE (errors_count);
CREATE INDEX index_order_outbox_items_on_event_key_and_id ON order_outbox_items (event_key, id);
CREATE INDEX index_order_outbox_items_on_created_at ON order_outbox_items (created_at);
"""
# The same on MySQL: no zones, no defaults for moments, no type for a uuid, a collation that knows no case.
MYSQL = """
CREATE TABLE order_outbox_items (
  id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
  uuid varchar(36) NOT NULL,
  event_name varchar(255) NOT NULL,
  event_key varchar(255) NOT NULL,
  bucket int NOT NULL,
  status int NOT NULL DEFAULT 0,
  options json,
  payload mediumblob NOT NULL,
  errors_count int NOT NULL DEFAULT 0,
  error_log text,
  processed_at datetime(6),
  created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL,
  UNIQUE KEY index_order_outbox_items_on_uuid (uuid),
  KEY index_order_outbox_items_on_status_and_id_and_bucket (status, id, bucket),
  KEY index_order_outbox_items_on_event_key_and_id (event_key, id),
  KEY index_order_outbox_items_on_created_at (created_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
"""
VARIANTS = {
    "full": {},
    "event_key bigint": {
        "event_key character varying": "event_key bigint",
        "event_key varchar(255)": "event_key bigint",
    },
    "uuid otherwise": {"uuid uuid": "uuid character varying", "uuid varchar(36)": "uuid char(36) CHARACTER SET ascii"},
    "lean": {
        "  event_name character varying NOT NULL,\n": "",
        "  event_name varchar(255) NOT NULL,\n": "",
        "  options jsonb,\n": "",
        "  options json,\n": "",
        "  error_log text,\n": "",
        "  payload": "  proto_payload",
    },
}
"""How tables differ from that of today's README: by what is written otherwise in it."""


class ReferenceTable:
    """The rig's one box over such a table."""

    def __init__(self, rig: Rig, variant: str) -> None:
        self.rig = rig
        self.lean = variant == "lean"
        self.numeric = variant == "event_key bigint"
        self.written_at = (datetime.now(UTC) - timedelta(hours=1)).replace(microsecond=123456, tzinfo=None)
        """``created_at`` of all rows: UTC, as ActiveRecord stores it."""
        ddl = POSTGRESQL if rig.engine.dialect.name == "postgresql" else MYSQL
        for theirs, other in VARIANTS[variant].items():
            ddl = ddl.replace(theirs, other)
        rig.execute(ddl)

    @property
    def named(self) -> dict[str, Any]:
        """What an item needs beside key and payload to be written into this table."""
        return {} if self.lean else {"event_name": "created"}

    def write(self, *keys: int, payload: bytes = b"hi", **columns: Any) -> list[int]:
        """Committed rows, one per key, as a Ruby application writes them: it computes the bucket and fills in the rest."""
        return [self._write_one(key, payload, columns) for key in keys]

    def _write_one(self, key: int, payload: bytes, columns: dict[str, Any]) -> int:
        common = {"uuid": str(uuid4()), "event_key": key if self.numeric else str(key), "bucket": key % 4, "status": 0}
        moments = {"created_at": self.written_at, "updated_at": self.written_at}
        more: dict[str, Any] = {"proto_payload": payload}
        if not self.lean:
            more = {"payload": payload, "event_name": "created", "options": '{"key": "7", "headers": {"x": "y"}}'}
        return self.rig.put({**common, **moments, **more, **columns})
