"""Tables that a Ruby application made by the README of sbmt-outbox, drained by a Python worker."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from boxengine.adapters.sql import schema
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.errors import InvalidItem
from tests.integration.engine.conftest import MakeRig
from tests.integration.engine.receivers import FailsFirst, Receiver

# What ActiveRecord makes of the migration in the README: bigserial, timestamp(6) without time zone, jsonb.
FULL = """
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
CREATE UNIQUE INDEX ON order_outbox_items (uuid);
CREATE INDEX ON order_outbox_items (status, id, bucket) INCLUDE (errors_count);
CREATE INDEX ON order_outbox_items (event_key, id);
CREATE INDEX ON order_outbox_items (created_at);
"""
LEAN = """
CREATE TABLE order_outbox_items (
  id bigserial PRIMARY KEY,
  uuid uuid NOT NULL,
  event_key character varying NOT NULL,
  bucket integer NOT NULL,
  status integer DEFAULT 0 NOT NULL,
  proto_payload bytea NOT NULL,
  errors_count integer DEFAULT 0 NOT NULL,
  processed_at timestamp(6) without time zone,
  created_at timestamp(6) without time zone NOT NULL,
  updated_at timestamp(6) without time zone NOT NULL
);
CREATE UNIQUE INDEX ON order_outbox_items (uuid);
CREATE INDEX ON order_outbox_items (status, id, bucket) INCLUDE (errors_count);
"""
AS_RUBY = "{names}, uuid, created_at, updated_at) VALUES ({values}, gen_random_uuid(), {moment}, {moment})"
MOMENT = "'2026-02-03 04:05:06.123456'"
RETRIES = {"max_retries": 3, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}


@pytest.fixture(params=["full", "uuid as text", "lean"])
def variant(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def table(variant: str) -> str:
    match variant:
        case "full":
            return FULL
        case "uuid as text":  # as in the README's first versions
            return FULL.replace("uuid uuid", "uuid character varying")
        case _:
            return LEAN


def row(variant: str, key: int, bucket: int) -> str:
    full = variant != "lean"
    names = "(event_key, bucket, " + ("event_name, options, payload" if full else "proto_payload")
    values = f"{key}, {bucket}, " + ("'created', '{\"key\": \"7\"}', '\\x6869'" if full else "'\\x6869'")
    return "INSERT INTO order_outbox_items " + AS_RUBY.format(names=names, values=values, moment=MOMENT)


def test_a_table_of_the_reference_is_drained_with_retries(make_rig: MakeRig, variant: str) -> None:
    rig, receiver = make_rig(tables=False, box=RETRIES), Receiver(FailsFirst(1, guilty=lambda item: item.id == 5))
    rig.carry(receiver)
    rig.execute(table(variant))
    for number in range(40):
        rig.execute(row(variant, key=number, bucket=number % 4).replace(":", "\\:"))
    rig.deliver(41)
    assert sorted(set(receiver.ids)) == list(range(1, 41))
    rows = rig.rows()
    assert {each.status for each in rows.values()} == {Status.DELIVERED}
    assert rows[5].errors_count == 1
    assert set(receiver.payloads) == {b"hi"}
    item = receiver.items[0]
    assert item.created_at == datetime(2026, 2, 3, 4, 5, 6, 123456, tzinfo=UTC)
    assert item.headers["Created-At"] == "2026-02-03T04:05:06.123456Z"
    assert item.options == ({} if variant == "lean" else {"key": "7"})
    assert all(isinstance(each.event_key, str) for each in receiver.items)


def test_moments_without_a_zone_are_written_in_utc_whatever_the_servers_zone(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    rig.carry(Receiver())
    rig.execute(table(variant))
    rig.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$"
    )
    rig.engine.dispose()
    rig.execute(row(variant, key=1, bucket=1).replace(":", "\\:"))
    rig.deliver(1)
    with rig.engine.connect() as connection:
        (skew,) = connection.execute(
            text("SELECT extract(epoch FROM (now() AT TIME ZONE 'UTC') - processed_at) FROM order_outbox_items")
        ).one()
    assert 0 <= skew < 600


def test_a_poison_row_of_a_table_without_error_log_fails_like_any_other(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    rig.carry(Receiver(lambda _item: Failure("no")))
    rig.execute(table(variant))
    rig.execute(row(variant, key=1, bucket=1).replace(":", "\\:"))
    rig.deliver(1)
    assert (rig.row(1).status, rig.row(1).errors_count) == (Status.FAILED, 1)


def test_an_overtaken_row_of_the_reference_is_discarded(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False, box=RETRIES)
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.id == 1)))
    rig.execute(table(variant))
    for _ in range(2):
        rig.execute(row(variant, key=1, bucket=1).replace(":", "\\:"))
    watcher = rig.deliver(3)
    assert (watcher.delivered, watcher.discarded) == ([2], [1])


def test_the_library_writes_into_a_table_of_the_reference(make_rig: MakeRig, variant: str) -> None:
    rig, receiver = make_rig(tables=False), Receiver()
    rig.carry(receiver)
    rig.execute(table(variant))
    named = {} if variant == "lean" else {"event_name": "created"}
    ids = rig.create(3, 6, **named)
    rig.deliver(2)
    assert sorted(receiver.ids) == ids
    assert [each.bucket for each in rig.rows().values()] == [3, 2]
    with rig.engine.begin() as connection, pytest.raises(InvalidItem, match="available_at"):
        rig.boxes.create_outbox_item(
            connection, "order_outbox_item", event_key=1, payload=b"", available_at=datetime.now(UTC), **named
        )


def test_the_check_names_each_missing_column_and_what_is_lost_with_it(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    rig.execute(table(variant))
    findings = schema.check(rig.engine, [rig.box()])
    assert {finding.severity for finding in findings} == {"warning"}
    said = " ".join(finding.message for finding in findings)
    missing = ["available_at", "dedup_key", *(["event_name", "options", "error_log"] if variant == "lean" else [])]
    assert all(f"no column {column}" in said for column in missing)


def test_db_create_adds_the_indexes_that_a_table_of_the_reference_lacks(make_rig: MakeRig, variant: str) -> None:
    rig = make_rig(tables=False)
    rig.carry(Receiver())
    rig.execute(table(variant))
    rig.create_tables()
    rig.create_tables()
    names = {
        each.indexname for each in rig.ask("SELECT indexname FROM pg_indexes WHERE tablename = 'order_outbox_items'")
    }
    assert {"ix_order_outbox_items_pending", "ix_order_outbox_items_key"} <= names
    rig.execute(row(variant, key=1, bucket=1).replace(":", "\\:"))
    rig.deliver(1)
    assert rig.statuses() == [Status.DELIVERED]
