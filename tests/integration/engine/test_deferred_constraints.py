"""Constraints that PostgreSQL checks at the commit alone (``DEFERRABLE INITIALLY DEFERRED``, as Django makes them)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from boxengine.domain.item import Item, Status
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

pytestmark = ON_POSTGRESQL

PARENTS = "CREATE TABLE parents (id bigint PRIMARY KEY)"
CHILDREN = "CREATE TABLE children (parent bigint REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)"
REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF OLD.event_key = 'poison' AND (TG_OP = 'DELETE' OR NEW.status = 2) THEN RAISE EXCEPTION 'not this one'; END IF;
RETURN NULL; END $$
"""
AT_THE_COMMIT = """
CREATE CONSTRAINT TRIGGER refuses AFTER UPDATE OR DELETE ON order_outbox_items DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse()
"""


class Handler:
    """Writes a child before its parent; for poison items no parent."""

    def __call__(self, item: Item, _payload: bytes, *, session: Session) -> None:
        session.execute(sa.text("INSERT INTO children VALUES (:id)"), {"id": item.id})
        if item.event_key != "poison":
            session.execute(sa.text("INSERT INTO parents VALUES (:id)"), {"id": item.id})


class BatchHandler(Handler):
    def call_batch(self, items: Sequence[Item], *, session: Session) -> list[None]:
        for item in items:
            self(item, item.payload, session=session)
        return [None] * len(items)


def children(rig: Rig) -> list[int]:
    return sorted(row.parent for row in rig.ask("SELECT parent FROM children"))


@pytest.mark.parametrize("handler", [Handler(), BatchHandler()], ids=["item", "batch"])
@pytest.mark.parametrize("storage", ["table", "log"])
def test_a_handler_whose_write_the_commit_refuses_fails_alone(
    make_rig: MakeRig, handler: Handler, storage: str
) -> None:
    rig = make_rig(box={"bucket_size": 1, "storage": storage})
    rig.execute(PARENTS)
    rig.execute(CHILDREN)
    rig.carry(handler)
    first, poison, last = rig.create("first", "poison", "last")
    rig.deliver(3)
    assert children(rig) == [first, last]
    assert rig.row(poison).status == Status.FAILED
    assert "children_parent_fkey" in rig.row(poison).error_log


@pytest.mark.parametrize("retention", ["P1W", "PT0S"], ids=["marks", "deletes"])
def test_a_row_whose_outcome_the_commit_refuses_fails_alone(make_rig: MakeRig, retention: str) -> None:
    rig = make_rig(
        box={"bucket_size": 1, "retention_delivered_items": retention, "delivered_min_retention_period": "PT0S"}
    )
    rig.execute(REFUSES)
    rig.execute(AT_THE_COMMIT)
    rig.carry(receiver := Receiver())
    ids = rig.create("first", "poison", "last")
    rig.deliver(3)
    assert receiver.ids == ids
    statuses = {row_id: row.status for row_id, row in rig.rows().items()}
    kept = {} if retention == "PT0S" else {ids[0]: Status.DELIVERED, ids[2]: Status.DELIVERED}
    assert statuses == {ids[1]: Status.FAILED, **kept}
    assert "its delivery could not be recorded: the database: not this one" in rig.row(ids[1]).error_log


def test_a_handler_in_a_box_that_refuses_an_outcome_at_the_commit_keeps_what_it_wrote_for_others(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(box={"bucket_size": 1})
    rig.execute(REFUSES)
    rig.execute(AT_THE_COMMIT)
    rig.execute(PARENTS)

    def handle(item: Item, _payload: bytes, *, session: Session) -> None:
        session.execute(sa.text("INSERT INTO parents VALUES (:id)"), {"id": item.id})

    rig.carry(handle)
    first, poison, last = rig.create("first", "poison", "last")
    rig.deliver(3)
    assert sorted(row.id for row in rig.ask("SELECT id FROM parents")) == [first, last]
    assert rig.statuses() == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]
    assert "could not be recorded" in rig.row(poison).error_log
