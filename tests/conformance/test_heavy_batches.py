"""A claim holds no more bytes than it may; an item that is larger is claimed alone, and none overtakes another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from boxengine.domain.box import Retention
from boxengine.domain.outcome import Settlement
from tests.conformance import stores
from tests.conformance.stores import MAX_BATCH_BYTES, Harness

HALF, TOO_LARGE = MAX_BATCH_BYTES // 2 - 1000, MAX_BATCH_BYTES + 1


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


@pytest.mark.parametrize("plain", [False, True])
def test_claims_one_after_the_other_hold_all_in_order_and_never_too_much(harness: Harness, *, plain: bool) -> None:
    box = harness.make_box(retention=Retention(delivered=timedelta(0)))
    sizes = {}
    for number, size in enumerate([10, HALF, HALF, 600, HALF, TOO_LARGE, 20, HALF, 0]):
        payload = bytes([number]) * size
        sizes[harness.insert(box, bucket=number % 2, payload=payload)] = payload
    seen: list[int] = []
    for _ in sizes:
        claims = harness.store.plain_claims(box) if plain else harness.store.claims(box)
        with claims.open({0: None, 1: None}, 100) as claim:
            batch = {item.id: item.payload for item in claim.items}
            assert batch == {item_id: sizes[item_id] for item_id in batch}
            assert sum(map(len, batch.values())) <= MAX_BATCH_BYTES or len(batch) == 1
            left = {n % 2 for n, item_id in enumerate(sizes) if item_id not in {*batch, *seen}}
            assert not claim.exhausted & left
            claim.commit(Settlement(delivered=list(batch)))
            seen += batch
        if len(seen) == len(sizes):
            break
    assert sorted(seen) == list(sizes)
    for bucket in (0, 1):
        own = [item_id for n, item_id in enumerate(sizes) if n % 2 == bucket]
        assert [item_id for item_id in seen if item_id in own] == own
