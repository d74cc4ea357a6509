"""The demonstration's verdict, also when its time was over before everything had arrived."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, StaticPool, create_engine, text

from boxengine.demo.payments import Base, Booking
from boxengine.demo.shop import Committed
from boxengine.demo.verdict import Check, judge
from boxengine.domain.item import Status

ORDERS = {"a": [1, 3, 5], "b": [2, 4]}
ORDER, ALL, ONCE = (
    "orders of one customer arrived in order",
    "every committed order was delivered",
    "booked exactly once",
)


class Ended:
    """A demonstration that is over."""

    def __init__(self, engine: Engine, record: Path) -> None:
        self._engine = engine
        self._record = record

    def with_items(self, table: str, *, pending: list[int], others: Status = Status.DELIVERED) -> None:
        with self._engine.begin() as connection:
            for id_ in range(1, 6):
                status = Status.PENDING if id_ in pending else others
                connection.execute(text(f"INSERT INTO {table} VALUES ({id_}, {status:d})"))

    def judged(self, *arrived: int, crashed: bool = False, more: str = "") -> dict[str, Check]:
        self._record.write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in arrived) + more)
        committed = Committed(orders=ORDERS, payments={"x": [1, 2]})
        return {check.promise: check for check in judge(committed, self._record, self._engine, crashed=crashed)}


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Ended]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for table in ("order_outbox_items", "payment_inbox_items"):
            connection.execute(text(f"CREATE TABLE {table} (id integer, status integer)"))
        for id_ in (1, 2):
            connection.execute(Booking.__table__.insert().values(id=id_, item_id=id_, account="x", number=id_))  # type: ignore[attr-defined]
    yield Ended(engine, tmp_path / "record.jsonl")
    engine.dispose()


def test_all_that_arrived_in_order_is_kept(ended: Ended) -> None:
    ended.with_items("order_outbox_items", pending=[])
    checks = ended.judged(1, 2, 3, 4, 5)
    assert all(check.kept and not check.waiting for check in checks.values())


@pytest.mark.parametrize("crashed", [False, True])
def test_what_is_still_on_its_way_breaks_no_promise(ended: Ended, crashed: bool) -> None:
    ended.with_items("order_outbox_items", pending=[4, 5])
    checks = ended.judged(1, 2, 3, crashed=crashed)
    assert all(check.kept for check in checks.values())
    assert checks[ALL].waiting == 2
    assert checks[ORDER].waiting == 0


def test_what_is_neither_delivered_nor_on_its_way_is_lost(ended: Ended) -> None:
    ended.with_items("order_outbox_items", pending=[5])
    assert not ended.judged(1, 2, 3)[ALL].kept


@pytest.mark.parametrize("arrived", [(1, 2, 5), (3, 1, 2), (3,)])
def test_one_that_overtook_another_breaks_the_order(ended: Ended, arrived: tuple[int, ...]) -> None:
    ended.with_items("order_outbox_items", pending=[1, 3, 4, 5])
    assert not ended.judged(*arrived)[ORDER].kept


def test_a_payment_that_waits_is_not_booked_yet(ended: Ended) -> None:
    ended.with_items("payment_inbox_items", pending=[3])
    committed = Committed(payments={"x": [1, 2, 3]})
    (check,) = [each for each in judge(committed, Path("none"), ended._engine, crashed=False) if ONCE in each.promise]
    assert check.kept
    assert check.waiting == 1


def test_a_line_that_is_being_written_does_not_count(ended: Ended) -> None:
    ended.with_items("order_outbox_items", pending=[4, 5])
    assert ended.judged(1, 2, 3, more='{"id": ')[ALL].waiting == 2
