"""Every statement of a box's table, by the name of the question or step that executes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.creating.choosing import inserts_for
from boxengine.adapters.sql.creating.sequence import counters
from boxengine.adapters.sql.delivering.bounding import first_stops
from boxengine.adapters.sql.delivering.bounding_mysql import first_stops as first_stops_by_range
from boxengine.adapters.sql.delivering.statements import statements_for
from boxengine.adapters.sql.dialects.base import Behind, BoxStatements
from boxengine.adapters.sql.dialects.postgresql_inserts import PostgresInserts
from boxengine.adapters.sql.log.tables import IDENTITIES, log_table
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.models import box_table
from boxengine.domain.bounds import Range
from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.unit.sql.recording import RecordingCursor
from tests.unit.sql.shapes import Shape

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=2)
HELD = {0: 0, 1: 40}
AT_START = {0: 0, 1: 0}
DIALECTS: dict[str, Dialect] = {"postgresql": postgresql.psycopg.dialect(), "mysql": mysql.pymysql.dialect()}  # type: ignore[no-untyped-call]
Step = Callable[[BoxStatements, RecordingCursor], object]
Steps = Mapping[str, tuple[Step, tuple[Sequence[Any], ...]]]


def _settle() -> Settlement:
    return Settlement(delivered=[1, 2], failed=[FailedAttempt(3, Status.PENDING, 1, "timed out")])


def _items() -> Sequence[Item]:
    """One of each bucket."""
    none = (None, b"", 0, NOW, None, BOX, NOW)
    return [Item(bucket + 1, str(bucket), None, f"key {bucket}", bucket, 0, *none) for bucket in (0, 1)]


def _answers(dialect: str) -> tuple[Sequence[Any], ...]:
    """What the server says to a claim: both buckets are granted."""
    return (([0, 1], NOW, "{0,1}", "0"),) if dialect == "postgresql" else ((NOW.replace(tzinfo=None), 0, 1, 1),)


def delivering(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What the delivery side executes."""
    table = shape.table(dialect)
    statements = statements_for(dialect, table, log=shape.log, idle_timeout=timedelta(seconds=60), light=1000)
    window = ([int(Status.DELIVERED)], NOW, NOW, 1000)
    steps: Steps = {
        "poll": (lambda on, cursor: on.poll(cursor, AT_START, 50), ()),
        "poll, rows that never failed": (lambda on, cursor: on.poll_regular(cursor, AT_START, 50), ()),
        "outlook": (lambda on, cursor: on.outlook(cursor, AT_START), ()),
        "claim": (lambda on, cursor: on.claim(cursor, HELD, 100), _answers(dialect)),
        "plain claim": (
            lambda on, cursor: on.claim_plain(cursor, HELD, 100),
            _answers(dialect),
        ),
        **(_behind_bounds(dialect) if dialect == "mysql" or table.passes_delayed else {}),
        "sizes of payloads": (lambda on, cursor: on.sizes(cursor, [1, 2]), ()),
        "heavy payloads": (lambda on, cursor: on.payloads(cursor, [1, 2]), ()),
        "keys of earlier rows that wait": (lambda on, cursor: on.waiting_keys(cursor, _items(), {0: 40, 1: 90}), ()),
        "later delivered rows of a key": (lambda on, cursor: on.later_delivered(cursor, []), ()),
        "outcomes and commit": (lambda on, cursor: on.finish(cursor, _settle()), ()),
        "locks once more": (lambda on, cursor: on.hold_again(cursor, [0, 1]), (([0, 1],),)),
        "rows that are still pending": (lambda on, cursor: on.hold_pending(cursor, [1, 2]), ()),
        "failed attempts of a row": (lambda on, cursor: on.errors_count(cursor, 1), ((0,),)),
        "before a handler's session": (lambda on, cursor: on.anchor(cursor), ()),
        "after a handler's session": (lambda on, cursor: on.take_back(cursor), (("{0,1}",),)),
        "after such a transaction": (lambda on, cursor: on.clean(cursor), ()),
        "locks set free": (lambda on, cursor: on.unlock(cursor, [0, 1]), ()),
        "oldest pending row": (lambda on, cursor: on.oldest_pending(cursor, AT_START), ((None,),)),
        "oldest delivered row": (lambda on, cursor: on.oldest(cursor, [int(Status.DELIVERED)]), ((None,),)),
        "oldest failed or discarded row": (lambda on, cursor: on.oldest(cursor, [1, 3]), ((None,),)),
        "deletion of old rows": (lambda on, cursor: on.delete(cursor, *window), ()),
        "deletion of old rows behind younger ones": (
            lambda on, cursor: on.sweep(cursor, {int(Status.DELIVERED): NOW}, 0, 1000),
            ((0, None),),
        ),
    }
    found = {}
    if shape.log is not None:
        steps = _of_a_log(steps)
    for name, (step, answers) in steps.items():
        cursor = RecordingCursor(*answers, sets=_found_in_log() if shape.log and "claim" in name else ())
        step(statements.for_claim(), cursor)
        if cursor.texts:
            found[name] = [text.replace("%%", "%") for text in cursor.texts]
    if shape.log is None:
        by_range = dialect == "mysql"
        stops = first_stops_by_range(table, {0: Range(40, 90)}) if by_range else first_stops(table).replace("%%", "%")
        found["rows that no bound may pass"] = [stops]
    return found


def _behind_bounds(dialect: str) -> Steps:
    """What is asked otherwise while bounds are in use."""
    behind = Behind(HELD, from_start=list(HELD))
    if dialect == "mysql":
        (granted,) = _answers(dialect)
        return {"claim, behind bounds": (lambda on, cursor: on.claim(cursor, behind, 100), (granted, (90,)))}
    return {
        "poll, behind bounds": (lambda on, cursor: on.poll(cursor, behind, 50), ()),
        "outlook, behind bounds": (lambda on, cursor: on.outlook(cursor, behind), ()),
        "claim, behind bounds": (lambda on, cursor: on.claim(cursor, behind, 100), _answers(dialect)),
        "plain claim, behind bounds": (lambda on, cursor: on.claim_plain(cursor, behind, 100), _answers(dialect)),
        "oldest pending row, behind bounds": (lambda on, cursor: on.oldest_pending(cursor, behind), ((None,),)),
    }


def _of_a_log(steps: Steps) -> Steps:
    """What is asked of a log, besides what a table is asked."""
    refused = "later delivered rows of a key"
    unshared = (True, False)

    def settle(on: BoxStatements, cursor: RecordingCursor) -> None:
        own = on.for_claim()
        own.claim(cursor, HELD, 100)
        cursor.texts.clear()
        own.finish(cursor, Settlement(delivered=[1, 3], failed=[FailedAttempt(2, Status.PENDING, 1, "timed out")]))

    return {
        **{name: step for name, step in steps.items() if name not in (refused, "plain claim", "outcomes and commit")},
        "outcomes of its items and commit, after a claim": (settle, _answers("postgresql")),
        "pending rows of the log": (lambda on, cursor: on.pending_in_log(cursor, 10), ((0, False),)),
        "oldest pending row": (steps["oldest pending row"][0], ((None,), (None,))),
        "oldest delivered row": (steps["oldest delivered row"][0], ((None,), unshared, (None,))),
        "deletion of old rows": (steps["deletion of old rows"][0], ((True,), unshared)),
    }


def _found_in_log() -> list[list[Any]]:
    """What a claim finds: more of the first bucket than it takes at once and not the first by id, nothing in the side table,
    positions, and a measure."""
    rows = [
        (number, "", None, "k", 0, 0, None, b"", 0, NOW.replace(tzinfo=None), None, False) for number in range(1, 60)
    ]
    positions = [("9:9:", None, bucket, "3:3:", None, 0, None, None, 0, 0, True, False) for bucket in (0, 1)]
    return [rows, [], positions, [(0, 1, 59, 51)], rows[:50]]


def creating(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What the create side executes, apart from COPY."""
    if shape.log is not None:
        return _appending(shape, DIALECTS[dialect])
    table, compiler = box_table(shape.box, MetaData()), DIALECTS[dialect]
    names = ("dedup_key", "uuid") if shape.box.type is BoxType.INBOX else ("dedup_key",)
    inserts = inserts_for(dialect, table, identities=names, inbox=shape.box.type is BoxType.INBOX)
    given = [*(["seq"] if shape.numbered else []), "event_key", "bucket", "payload", "dedup_key"]
    plain = given[:-1]
    found: dict[str, Any] = {"rows that may be there already": (inserts.insert_new(), given)}
    if isinstance(inserts, PostgresInserts):
        found["a row"] = (inserts.insert_one(), plain)
        found["a row and its wake-up"] = (inserts.insert_one(told=True), plain)
    else:
        found["a row"] = (table.insert(), plain)
    texts = {name: [str(each.compile(dialect=compiler, column_keys=keys))] for name, (each, keys) in found.items()}
    if shape.numbered:
        adding = inserts.add_to(counters(table, MetaData()), [{"event_key": "k", "last": 1}])
        texts["numbers"] = [str(adding.compile(dialect=compiler))]
    return texts


def _appending(shape: Shape, compiler: Dialect) -> dict[str, list[str]]:
    inbox = shape.box.type is BoxType.INBOX
    identities = IDENTITIES if inbox else ()
    table = log_table(box_table(shape.box, MetaData()), shape.box.type)
    inserts = PostgresInserts(table, identities=identities, inbox=inbox)
    given = ["event_key", "bucket", "payload"]
    found: dict[str, Any] = {"a row": inserts.insert_one(), "a row and its wake-up": inserts.insert_one(told=True)}
    if inbox:
        found["rows that may be there already"] = inserts.insert_new()
    return {name: [str(each.compile(dialect=compiler, column_keys=given))] for name, each in found.items()}


def tables(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What makes the table."""
    return {"table": schema.ddl(dialect, [shape.box])}
