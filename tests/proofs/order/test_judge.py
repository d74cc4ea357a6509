"""The judge finds what it is there to find, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.proofs.growing import Growing
from tests.proofs.order.judge import ByCounter, BySnapshot, Judge, Moment, Order, Part
from tests.proofs.order.receiver import Receiver, received


def part(number: int, *, key: int = 1, items: int = 1, first: int = 0, by: int = 100, seen: str = "100:100:") -> Part:
    return Part(number, key, items, first, by, seen)


def judged(order: Order, *received: tuple[Part, int]) -> Judge:
    judge = Judge(order)
    for each, place in received:
        judge.receive(each.number, place, each)
    return judge


# ── order by the lock's counter ──────────────────────────────────────────────────────────────────────


def test_deliveries_that_follow_the_counter_are_in_order_and_repeats_of_them_too() -> None:
    one, other, elsewhere = part(2, items=2, first=1), part(1, first=3), part(3, key=2, first=1)
    judge = judged(ByCounter(), (one, 0), (one, 1), (elsewhere, 0), (one, 0), (other, 0), (one, 1))
    assert (judge.inversions, judge.repeated, judge.items) == (0, 2, 4)


def test_an_item_that_its_key_s_next_one_overtook_is_an_inversion() -> None:
    judge = judged(ByCounter(), (part(1, first=2), 0), (part(2, first=1), 0), (part(3, first=3), 0))
    assert judge.inversions == 1
    assert judge.sentences == ["key 1: the item that its lock counted as 1 came after 2"]


# ── order by commits ─────────────────────────────────────────────────────────────────────────────────


def test_what_had_been_committed_when_another_was_written_and_comes_after_it_is_an_inversion() -> None:
    early, late = part(1, by=100), part(2, by=105, seen="104:105:104")
    assert judged(BySnapshot(), (early, 0), (late, 0)).inversions == 0
    judge = judged(BySnapshot(), (late, 0), (early, 0))
    assert judge.inversions == 1
    assert judge.sentences == [
        "key 1: item 0 of part 1 came after one of part 2, which was written when it had been committed"
    ]


def test_another_key_is_never_overtaken() -> None:
    early, late = part(1, by=100), part(2, key=2, by=105, seen="105:105:")
    assert judged(BySnapshot(), (late, 0), (early, 0)).inversions == 0


def test_of_transactions_that_overlapped_nothing_is_asked_however_their_ids_and_numbers_lie() -> None:
    running, begun_later = part(1, by=100), part(2, by=105, seen="100:105:100")
    assert judged(BySnapshot(), (begun_later, 0), (running, 0)).inversions == 0
    not_begun = part(3, by=106, seen="105:105:")
    assert judged(BySnapshot(), (begun_later, 0), (not_begun, 0)).inversions == 0


def test_of_the_parts_of_one_transaction_nothing_is_asked() -> None:
    first, second = part(1, by=100, seen="100:100:"), part(2, by=100, seen="100:103:101")
    assert judged(BySnapshot(), (second, 0), (first, 0)).inversions == 0


def test_the_latest_of_all_that_was_received_decides_and_not_the_last() -> None:
    early = part(1, by=100)
    latest, before_it = part(2, by=105, seen="101:105:101"), part(3, by=101, seen="100:101:100")
    assert judged(BySnapshot(), (latest, 0), (before_it, 0), (early, 0)).inversions == 1


def test_of_two_moments_with_one_end_the_one_with_fewer_transactions_under_way_is_later() -> None:
    before = Moment(part(1, by=103, seen="100:106:100,101,102"))
    after = Moment(part(2, by=110, seen="100:106:100,101,103"))
    assert (before.is_before(after), after.is_before(before)) == (True, False)
    own = Moment(part(3, by=103, seen="100:106:100,101"))  # it leaves out 103, its own
    assert (after.is_before(own), own.is_before(after)) == (False, False)


# ── loss ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_committed_item_that_nobody_received_is_lost() -> None:
    whole, half = part(1, items=2), part(2, items=3)
    judge = judged(BySnapshot(), (whole, 0), (whole, 1), (half, 1))
    assert judge.lost([(1, 2), (2, 3), (3, 1)]) == 3
    assert judge.sentences == [
        "part 2 was committed, and nobody received its items 0, 2",
        "part 3 was committed, and nobody received its items 0",
    ]
    assert judge.lost([(1, 2)]) == 0


def test_what_nobody_committed_is_told_of() -> None:
    judge = Judge(BySnapshot())
    judge.receive(7, 0, None)
    judge.receive(8, 1, part(8, items=1))
    assert (judge.unknown, judge.items) == (2, 0)


# ── the record ───────────────────────────────────────────────────────────────────────────────────────


def item(payload: bytes, errors_count: int = 0) -> SimpleNamespace:
    return SimpleNamespace(payload=payload, errors_count=errors_count)


def test_the_record_has_what_was_taken_in_order_and_is_read_while_it_grows(tmp_path: Path) -> None:
    receiver, record = Receiver(path=str(tmp_path / "record")), Growing(tmp_path / "record")
    assert receiver.call_batch([item(b"1 0 0 x"), item(b"1 1 1 x"), item(b"2 0 0 x")]) == [True, False, True]
    assert received(record.lines()) == [(1, 0), (2, 0)]
    assert receiver.call_batch([item(b"1 1 1 x", errors_count=1)]) == [True]
    assert received(record.lines()) == [(1, 1)]
    assert received(record.lines()) == []
    record.close()


def test_a_line_that_a_kill_cut_short_was_not_received_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "record"
    receiver, record = Receiver(path=str(path)), Growing(path)
    receiver.call_batch([item(b"1 0 0 x"), item(b"17 11 0 x")])
    path.write_bytes(path.read_bytes()[:-4])
    assert received(record.lines()) == [(1, 0)]
    receiver.call_batch([item(b"3 0 0 x")])
    assert received(record.lines()) == [(3, 0)]
    record.close()
