"""Random policies and rows: every store answers as the specification does, written down as naively as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from boxengine.domain.box import Backoff, Box, StrictOrder
from boxengine.domain.item import Status
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables

BUCKETS = range(3)
EXAMPLES_IN_MEMORY, EXAMPLES_IN_A_DATABASE = 300, 60
"""How many random tables are tried; those of a database take longer to make."""


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


class Sample(NamedTuple):
    """One random row; moments as seconds before now, far enough from any due time that a slow test changes nothing."""

    key: str
    bucket: int
    status: int
    errors: int
    tried_ago: float | None
    available_ago: float | None


PAUSES = st.sampled_from([None, Backoff(minimal=timedelta(seconds=1000), maximal=timedelta(seconds=5000))])
POLICIES = st.fixed_dictionaries({"strict_order": st.sampled_from(StrictOrder), "backoff": PAUSES})
ROWS = st.lists(
    st.builds(
        Sample,
        key=st.sampled_from("ab"),
        bucket=st.sampled_from(BUCKETS),
        status=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 3]),
        errors=st.integers(0, 4),
        tried_ago=st.sampled_from([None, None, None, 500.0, 1500.0, 3000.0, 4500.0, 9000.0]),
        available_ago=st.sampled_from([None, None, None, None, 500.0, -5000.0]),
    ),
    min_size=10,
    max_size=20,
)
LIMITS = st.sampled_from([1, 2, 3, 6, 7, 12, 90])
AFTER = st.sampled_from([0, 0, 3, 6])
"""How many rows stand before the place where a claim reads on."""


# ── the specification ────────────────────────────────────────────────────────────────────────────────


def waits(box: Box, row: Mapping[str, Any], now: datetime) -> bool:
    """Whether a pending row is within its pause, or before its time."""
    if row["available_at"] is not None and row["available_at"] > now:
        return True
    if box.backoff is None or row["processed_at"] is None or row["errors_count"] == 0:
        return False
    doubled = timedelta(seconds=1000 * 2 ** (row["errors_count"] - 1))
    return bool(row["processed_at"] + min(doubled, timedelta(seconds=5000)) > now)


def holds_back(box: Box, earlier: Mapping[str, Any], later: Mapping[str, Any], now: datetime) -> bool:
    if earlier["id"] >= later["id"] or earlier["bucket"] != later["bucket"]:
        return False
    waiting = earlier["status"] == Status.PENDING and waits(box, earlier, now)
    match box.strict_order:
        case StrictOrder.NONE:
            return False
        case StrictOrder.BUCKET:
            return waiting
        case StrictOrder.KEY:
            return earlier["event_key"] == later["event_key"] and (waiting or earlier["status"] == Status.FAILED)


def due(box: Box, rows: Sequence[Mapping[str, Any]], now: datetime) -> list[Mapping[str, Any]]:
    return [
        row
        for row in rows
        if row["status"] == Status.PENDING
        and not waits(box, row, now)
        and not any(holds_back(box, earlier, row, now) for earlier in rows)
    ]


def first_of_each(
    rows: Sequence[Mapping[str, Any]], buckets: Sequence[int], limit: int
) -> tuple[list[int], frozenset[int]]:
    """The ids that a limit leaves, and the buckets that did not use up their share."""
    share = max(1, limit // len(buckets))
    of = {bucket: [row["id"] for row in rows if row["bucket"] == bucket][:share] for bucket in buckets}
    return sorted(chain.from_iterable(of.values())), frozenset(bucket for bucket in buckets if len(of[bucket]) < share)


# ── the stores ───────────────────────────────────────────────────────────────────────────────────────


def fill(harness: Harness, box: Box, samples: Sequence[Sample]) -> list[Mapping[str, Any]]:
    now = harness.now()

    def moment(seconds_ago: float | None) -> datetime | None:
        return None if seconds_ago is None else now - timedelta(seconds=seconds_ago)

    for sample in samples:
        harness.insert(
            box,
            event_key=sample.key,
            bucket=sample.bucket,
            status=sample.status,
            errors_count=sample.errors,
            processed_at=moment(sample.tried_ago),
            available_at=moment(sample.available_ago),
            created_at=now,
            updated_at=now,
        )
    return harness.rows(box)


@of_tables
def test_polls_and_claims_find_what_the_specification_says(harness: Harness) -> None:
    in_memory = isinstance(harness, stores.MemoryHarness)

    @settings(
        max_examples=EXAMPLES_IN_MEMORY if in_memory else EXAMPLES_IN_A_DATABASE,
        deadline=None,
        database=None,
        derandomize=True,
        # Shrinking makes a table for each of hundreds of tries; memory, held to the same, shrinks in no time.
        phases=list(Phase) if in_memory else [Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(policy=POLICIES, samples=ROWS, limit=LIMITS, after=AFTER)
    def compare(policy: dict[str, Any], samples: list[Sample], limit: int, after: int) -> None:
        box = harness.make_box(max_retries=5, bucket_size=len(BUCKETS), **policy)
        rows = fill(harness, box, samples)
        now = harness.now()
        found = due(box, rows, now)
        fresh = [row for row in found if row["errors_count"] == 0]

        assert harness.store.outlook(box, BUCKETS).due == sorted({row["bucket"] for row in found})
        for poll, expected in ((harness.store.poll, found), (harness.store.poll_regular, fresh)):
            polled = poll(box, BUCKETS, limit)
            assert [row.id for row in polled] == first_of_each(expected, BUCKETS, limit)[0]

        position = rows[min(after, len(rows)) - 1]["id"] if after and rows else None
        beyond = [row for row in found if position is None or row["id"] > position]
        ids, exhausted = first_of_each(beyond, BUCKETS, limit)
        with harness.store.claims(box).open(dict.fromkeys(BUCKETS, position), limit) as claim:
            claimed = [item.id for item in claim.items]
            assert claimed == sorted(claimed)
            assert set(claimed) <= set(ids)
            assert len(claimed) == min(limit, len(ids))
            assert claim.exhausted == exhausted

    compare()
