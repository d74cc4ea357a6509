"""The checker finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.checker import DELIVERED, Findings, Injection, Order, SourceRow, judge
from tests.chaos.record import Attempt, read
from tests.chaos.recorder import InBatches

BOX = "order_outbox_item"


def attempt(id_: int, *, at: float = 0.0, key: str = "a", bucket: int = 0, pid: int = 1, taken: bool = True) -> Attempt:
    return Attempt(at, pid, BOX, id_, bucket, key, taken)


def findings(
    *attempts: Attempt,
    order: Order = Order.KEY,
    rows: dict[int, int] | None = None,
    committed: tuple[int, ...] = (),
    injections: tuple[Injection, ...] = (),
    doomed: tuple[int, ...] = (),
    touched: tuple[int, ...] = (),
) -> Findings:
    statuses = dict.fromkeys((each.id for each in attempts), DELIVERED) if rows is None else rows
    return judge(
        rows=[SourceRow(BOX, id_, status) for id_, status in statuses.items()],
        committed={(BOX, id_) for id_ in committed},
        attempts=attempts,
        orders={BOX: order},
        injections=injections,
        slack=2.0,
        doomed={(BOX, id_) for id_ in doomed},
        touched={(BOX, id_) for id_ in touched},
    )


def test_all_delivered_once_and_in_order_is_sound() -> None:
    found = findings(attempt(1), attempt(2), attempt(3), committed=(1, 2, 3))
    assert found == Findings(lost=[], reordered=[], duplicates=0, unexplained=[], in_work=0)


# ── lost ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [0, 1, 3])
def test_a_row_that_did_not_end_delivered_is_lost(status: int) -> None:
    assert findings(rows={1: status}).lost == [f"item 1 of {BOX} ended with status {status}"]


@pytest.mark.parametrize(("status", "told"), [(1, 0), (0, 1), (DELIVERED, 1), (3, 1)])
def test_a_row_that_must_fail_is_lost_unless_it_did(status: int, told: int) -> None:
    assert len(findings(rows={1: status}, doomed=(1,)).lost) == told


def test_of_a_row_that_somebody_else_wrote_to_nothing_is_promised_and_of_the_others_all() -> None:
    attempts = (attempt(3), attempt(1), attempt(1), attempt(2))
    found = findings(*attempts, rows={1: 0, 2: 0, 3: DELIVERED}, committed=(1, 2, 3), touched=(1,))
    assert found.lost == [f"item 2 of {BOX} ended with status 0"]
    assert len(found.reordered) == 1
    assert found.duplicates == 0


def test_a_row_marked_delivered_that_nobody_received_is_lost() -> None:
    assert findings(rows={1: DELIVERED}).lost == [f"item 1 of {BOX} counts as delivered, and nobody received it"]


def test_a_row_marked_delivered_that_was_only_refused_is_lost() -> None:
    assert findings(attempt(1, taken=False)).lost == [f"item 1 of {BOX} counts as delivered, and nobody received it"]


def test_a_committed_row_that_has_vanished_is_lost() -> None:
    assert findings(committed=(1,)).lost == [f"item 1 of {BOX} was committed, and its row is gone"]


def test_a_delivery_without_a_row_is_told_of() -> None:
    assert findings(attempt(1), rows={}).lost == [f"item 1 of {BOX} was delivered, and was never committed"]


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", Order)
def test_an_item_that_a_later_one_of_its_key_overtook_is_reordered(order: Order) -> None:
    found = findings(attempt(2), attempt(1), order=order)
    assert found.reordered == [f"item 1 of {BOX}, key a, came after item 2"]


def test_items_of_different_keys_may_overtake_each_other_except_in_strict_order_by_bucket() -> None:
    apart = (attempt(2, key="b"), attempt(1, key="a"))
    assert findings(*apart, order=Order.KEY).reordered == []
    assert findings(*apart, order=Order.UNLESS_REFUSED).reordered == []
    assert len(findings(*apart, order=Order.BUCKET).reordered) == 1


def test_a_refused_item_may_be_overtaken_only_where_order_is_not_strict() -> None:
    stepped_aside = (attempt(1, taken=False), attempt(2), attempt(1))
    assert findings(*stepped_aside, order=Order.UNLESS_REFUSED).reordered == []
    assert len(findings(*stepped_aside, order=Order.KEY).reordered) == 1
    assert len(findings(*stepped_aside, order=Order.BUCKET).reordered) == 1


def test_a_refusal_after_the_overtaking_excuses_nothing() -> None:
    too_late = (attempt(2), attempt(1, taken=False), attempt(1))
    assert len(findings(*too_late, order=Order.UNLESS_REFUSED).reordered) == 1


def test_a_repeated_delivery_is_no_reordering() -> None:
    assert findings(attempt(1), attempt(2), attempt(1), attempt(2)).reordered == []


# ── duplicates ───────────────────────────────────────────────────────────────────────────────────────

KILL = Injection(begin=10.0, end=10.0, victims=frozenset({1}))


def test_a_duplicate_without_a_fault_is_unexplained() -> None:
    found = findings(attempt(1, at=9.9), attempt(1, at=14.0))
    assert (found.duplicates, len(found.unexplained), found.in_work) == (1, 1, 0)


def test_a_duplicate_of_what_the_victim_had_in_work_is_explained() -> None:
    found = findings(attempt(1, at=9.9), attempt(1, at=14.0, pid=2), injections=(KILL,))
    assert (found.duplicates, found.unexplained, found.in_work) == (1, [], 1)


def test_a_duplicate_of_what_another_worker_delivered_is_unexplained() -> None:
    found = findings(attempt(1, at=9.9, pid=2), attempt(1, at=14.0, pid=2), injections=(KILL,))
    assert (len(found.unexplained), found.in_work) == (1, 0)


def test_a_duplicate_of_what_was_long_recorded_is_unexplained() -> None:
    assert len(findings(attempt(1, at=7.0), attempt(1, at=14.0), injections=(KILL,)).unexplained) == 1


def test_a_fault_that_names_no_victims_strikes_all() -> None:
    everybody = replace(KILL, victims=None)
    assert findings(attempt(1, at=9.9, pid=7), attempt(1, at=14.0), injections=(everybody,)).unexplained == []


# ── the record ───────────────────────────────────────────────────────────────────────────────────────


class Item:
    """What the recorder reads of an item."""

    box_name, bucket, event_key = BOX, 3, "a"

    def __init__(self, id_: int, *, refusals: int = 0, errors_count: int = 0) -> None:
        self.id, self.errors_count = id_, errors_count
        self.payload = b"%d xxx" % refusals


def test_the_record_holds_every_attempt_in_order_and_what_became_of_it(tmp_path: Path) -> None:
    recorder = InBatches(path=str(tmp_path / "record"))
    assert recorder.call_batch([Item(1), Item(2, refusals=1)]) == [True, False]
    assert recorder(Item(2, refusals=1, errors_count=1), b"") is True
    attempts = read(tmp_path / "record")
    assert [(each.id, each.taken, each.bucket, each.key) for each in attempts] == [
        (1, True, 3, "a"),
        (2, False, 3, "a"),
        (2, True, 3, "a"),
    ]


def test_a_line_that_a_crash_cut_short_counts_as_never_received_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = InBatches(path=str(path))
    recorder.call_batch([Item(1), Item(2)])
    path.write_bytes(path.read_bytes()[:-9])
    recorder.call_batch([Item(3)])
    assert [each.id for each in read(path)] == [1, 3]
