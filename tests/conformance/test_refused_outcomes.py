"""Rows that take no outcome: their neighbours' are recorded, and what handlers wrote never outlives an outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


@of_tables
def test_a_row_that_refuses_its_outcome_fails_alone(harness: Harness) -> None:
    box = harness.make_box(max_retries=3)
    ids = [harness.insert(box, event_key=key) for key in ("a", "refuses", "b", "c")]
    harness.refuse(box, ids[1])
    with harness.store.claims(box).open({0: None}, 10) as claim:
        attempt = FailedAttempt(ids[2], Status.PENDING, 1, "timeout")
        unrecorded = claim.commit(Settlement(delivered=[ids[0], ids[1], ids[3]], failed=[attempt]))
    assert harness.statuses(box, *ids) == [Status.DELIVERED, Status.FAILED, Status.PENDING, Status.DELIVERED]
    assert unrecorded is not None
    assert (list(unrecorded.failed), dict(unrecorded.left), unrecorded.undone) == ([ids[1]], {}, False)
    row = harness.row(box, ids[1])
    assert row is not None
    assert (row["errors_count"], "could not be recorded" in row["error_log"]) == (0, True)


@of_tables
def test_a_row_that_takes_nothing_stays_as_it_is_and_is_named(harness: Harness) -> None:
    box = harness.make_box(max_retries=3)
    ids = [harness.insert(box, event_key=key) for key in ("a", "takes nothing", "b")]
    harness.refuse(box, ids[1], even_failed=True)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        unrecorded = claim.commit(Settlement(delivered=ids))
    assert harness.statuses(box, *ids) == [Status.DELIVERED, Status.PENDING, Status.DELIVERED]
    assert unrecorded is not None
    assert (dict(unrecorded.failed), list(unrecorded.left)) == ({}, [ids[1]])


@of_tables
@pytest.mark.parametrize("even_failed", [False, True])
def test_with_an_outcome_that_is_refused_nothing_of_the_handlers_is_committed(
    harness: Harness, *, even_failed: bool
) -> None:
    box = harness.make_box(max_retries=3)
    ids = [harness.insert(box, event_key=key) for key in ("a", "refuses", "b")]
    harness.refuse(box, ids[1], even_failed=even_failed)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        with claim.savepoint():
            harness.add_effect(claim.session, "of all three")
        unrecorded = claim.commit(Settlement(delivered=ids))
    assert harness.effects() == []
    second = Status.PENDING if even_failed else Status.FAILED
    assert harness.statuses(box, *ids) == [Status.PENDING, second, Status.PENDING]
    assert unrecorded is not None
    assert unrecorded.undone
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert not again.refused
