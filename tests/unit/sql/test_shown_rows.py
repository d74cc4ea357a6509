"""A row as people see it, whatever somebody has stored in it."""

from __future__ import annotations

import pytest

from boxengine.adapters.sql.looking.items import item_row


@pytest.mark.parametrize(
    "stored",
    ["infinity", "10000-01-01 05:29:59+05:30", "9999-12-31 23:00:00-05", "0001-01-01 00:00:00+05:30", "0001-12-31 BC"],
)
def test_a_moment_that_python_cannot_represent_in_utc_is_shown_as_the_database_writes_it(stored: str) -> None:
    row = item_row({"id": 1, "uuid": "018f2f6a-5c1e-7b2a-9d1f-2f6a5c1e7b2a", "event_key": "k", "available_at": stored})
    assert row.available_at == stored
