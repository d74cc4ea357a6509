"""A consumer whose message is a row that an application has not committed: it does not wait without a limit."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.errors import StoreConflict
from tests.conformance import sql_stores


def test_a_consumer_waits_for_a_locked_row_no_longer_than_ten_seconds(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = sql_stores.postgresql(postgres_url)
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    box = harness.make_box()
    insert = sa.text(
        f"INSERT INTO {box.table} (id, uuid, bucket, event_key, payload) "
        "VALUES (7, '0190a000-0000-7000-8000-000000000001', 0, 'k', '{}')"
    )
    somebody = sa.create_engine(postgres_url)
    with somebody.connect() as connection:
        connection.execute(insert)
        with pytest.raises(StoreConflict), SqlInbox(harness.store).transaction(box) as transaction:  # type: ignore[arg-type] # it is one
            transaction.session.execute(insert)
    somebody.dispose()
    harness.close()
