"""One look for many boxes, of which one has no table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance import stores


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_box_without_a_table_hides_no_pending_row_of_the_others(name: str, request: pytest.FixtureRequest) -> None:
    with stores.open_harness(name, request) as harness:
        idle, busy = harness.make_box(), harness.make_box()
        harness.insert(busy)
        missing = replace(idle, name="missing_outbox_item", table="no_such_table")
        assert harness.store.pending([missing, idle, busy]) == {missing.name, busy.name}
