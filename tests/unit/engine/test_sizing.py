"""How many rows a batch has: what a box's batches were like, and what there was memory for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.domain.box import Retention
from boxengine.engine.delivering.holds.sizing import FEWEST, LIGHT, QUICK, REGAINED, WORTH_SHARING, Sizing, next_width
from boxengine.engine.delivering.work import Report
from tests.unit.engine.bench import make_box

MANY = Report(claimed=WORTH_SHARING)


@pytest.mark.parametrize(("keeps", "rows"), [(timedelta(days=7), 4), (timedelta(0), 8)])
def test_a_large_batch_has_two_batches_in_one_and_four_where_delivery_deletes(keeps: timedelta, rows: int) -> None:
    sizing = Sizing(make_box(retention=Retention(delivered=keeps)), rows=2)
    assert sizing.cut() == 2
    sizing.learn(MANY, seconds=QUICK)
    assert (sizing.cut(), sizing.usual()) == (rows, 2)


@pytest.mark.parametrize(
    ("report", "seconds"), [(MANY, QUICK + 0.01), (Report(claimed=WORTH_SHARING, weight=LIGHT + 1), QUICK)]
)
def test_no_large_batch_follows_one_that_was_slow_or_heavy(report: Report, seconds: float) -> None:
    sizing = Sizing(make_box(), rows=2)
    sizing.learn(MANY, seconds=QUICK)
    sizing.learn(report, seconds=seconds)
    assert sizing.cut() == 2


def test_after_memory_ran_out_a_batch_has_half_its_rows_and_each_that_fits_lets_the_next_grow() -> None:
    sizing = Sizing(make_box(), rows=200)
    for rows in (200, 100):
        assert sizing.cut() == rows
        sizing.ran_out(rows)
    asked = []
    for _ in range(3):
        asked.append(sizing.cut())
        sizing.fitted()
    assert asked == [50, 50 + REGAINED, 50 + 2 * REGAINED]


def test_a_single_row_is_tried_however_often_memory_ran_out() -> None:
    sizing = Sizing(make_box())
    sizing.ran_out(1)
    assert sizing.cut() == 1


def test_a_batch_that_ends_late_does_not_undo_what_was_learnt_from_a_smaller_one() -> None:
    sizing = Sizing(make_box(), rows=200)
    sizing.ran_out(100)
    sizing.ran_out(200)
    assert sizing.cut() == 50


def batch(*, come_to: int, exhausted: int = 0, claimed: int = WORTH_SHARING) -> Report:
    """One that has come to so many buckets, the first of which it has exhausted."""
    return Report(claimed, positions=dict.fromkeys(range(come_to)), exhausted=frozenset(range(exhausted)))


def test_while_every_bucket_has_more_than_its_share_a_batch_takes_half_as_many() -> None:
    assert next_width(20, batch(come_to=20)) == 10
    assert next_width(5, batch(come_to=5)) == FEWEST


def test_where_the_first_buckets_filled_a_batch_the_next_takes_as_many() -> None:
    assert next_width(40, batch(come_to=6)) == 6
    assert next_width(40, batch(come_to=6, exhausted=5)) == 6
    assert next_width(40, batch(come_to=1)) == FEWEST


def test_where_buckets_are_exhausted_or_rows_are_few_a_batch_takes_twice_as_many() -> None:
    assert next_width(20, batch(come_to=20, exhausted=1)) == 40
    assert next_width(20, batch(come_to=3, claimed=3)) == 40
