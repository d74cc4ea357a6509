"""Some rows of ``python -m tests.chaos.kafka``, small: that each injects its fault, and holds. ``make chaos-kafka`` plays all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.kafka.catalogue import play
from tests.chaos.kafka.judge import judge
from tests.chaos.kafka.plan import Plan
from tests.chaos.kafka.servers import Servers, running_servers
from tests.chaos.kafka.site import Committed
from tests.chaos.kafka.topic import Message
from tests.servers.kafka import prepare
from tests.servers.offer import How, Offer
from tests.servers.promised import promised_servers, require

SMALL = Plan(items=6_000, broker_kills=1, kills=1, away_at_start=2.0, away=5.0, delivery_timeout=3.0)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    missing = prepare(os.environ)
    if missing:
        require(Offer("kafka", How.ABSENT, missing), promised_servers(os.environ))
    with running_servers() as servers:
        yield servers


@pytest.mark.xdist_group("chaos-kafka")  # they share their servers
@pytest.mark.parametrize("name", ["broker-sigkill", "consumer-sigkill", "dead-letter-topic-down"])
def test_a_small_row_holds(name: str, servers: Servers, tmp_path: Path) -> None:
    row = play(name, servers, tmp_path / name, SMALL)
    assert row.broken == ()
    assert row.items == pytest.approx(SMALL.items, rel=0.01)


# ── the judge ────────────────────────────────────────────────────────────────────────────────────────

ITEMS = [Committed(1, "a", b"1"), Committed(2, "a", b"2"), Committed(3, "b", b"3")]
GOOD = [Message(0, place, item.key, item.id, f"uuid-{item.id}", item.payload) for place, item in enumerate(ITEMS)]


def test_the_judge_finds_nothing_where_all_is_well_and_counts_repeats() -> None:
    found = judge(ITEMS, [*GOOD, GOOD[0]])
    assert (found.sentences, found.repeats) == ((), 1)


def test_the_judge_finds_what_is_lost() -> None:
    assert judge(ITEMS, GOOD[:2]).lost == ["item 3 was committed and never arrived"]


def test_the_judge_finds_what_overtook_within_a_key_only() -> None:
    assert judge(ITEMS, [GOOD[2], GOOD[1], GOOD[0]]).reordered == ["item 1 of a came after item 2"]
    assert judge(ITEMS, [GOOD[2], GOOD[0], GOOD[1]]).reordered == []


@pytest.mark.parametrize("change", [{"payload": b"other"}, {"key": "b"}, {"item": 9}])
def test_the_judge_finds_a_message_that_is_no_committed_item(change: dict[str, object]) -> None:
    assert len(judge(ITEMS, [GOOD[0]._replace(**change), *GOOD[1:]]).wrong) == 1  # type: ignore[arg-type] # one field at a time


def test_the_judge_finds_an_item_that_came_as_two() -> None:
    again = GOOD[0]._replace(idempotency_key="another")
    assert judge(ITEMS, [*GOOD, again]).wrong == ["1 items came under two Idempotency-Keys"]
