"""Every statement of a box's table, by the name of the question or step that executes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql import schema
from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.adapters.sql.dialects.postgresql_inserts import PostgresInserts
from boxengine.adapters.sql.dialects.registry import inserts_for, statements_for
from boxengine.adapters.sql.models import box_table
from boxengine.adapters.sql.sequence import counters
from boxengine.domain.box import BoxType
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.unit.sql.recording import RecordingCursor
from tests.unit.sql.shapes import Shape

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = {0: 0, 1: 40}
DIALECTS: dict[str, Dialect] = {"postgresql": postgresql.psycopg.dialect(), "mysql": mysql.pymysql.dialect()}  # type: ignore[no-untyped-call]
Step = Callable[[BoxStatements, RecordingCursor], object]


def _settle() -> Settlement:
    return Settlement(delivered=[1, 2], failed=[FailedAttempt(3, Status.PENDING, 1, "timed out")])


def _answers(dialect: str) -> tuple[Sequence[Any], ...]:
    """What the server says to a claim: both buckets are granted."""
    return (([0, 1], NOW, "{0,1}", "0"),) if dialect == "postgresql" else ((NOW.replace(tzinfo=None), 0, 1, 1),)


def delivering(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What the delivery side executes."""
    statements = statements_for(dialect, shape.table(dialect), idle_timeout=timedelta(seconds=60), light=1000)
    window = ([int(Status.DELIVERED)], NOW, NOW, 1000)
    steps: dict[str, tuple[Step, tuple[Sequence[Any], ...]]] = {
        "poll": (lambda on, cursor: on.poll(cursor, [0, 1], 50, regular_only=False), ()),
        "poll, rows that never failed": (lambda on, cursor: on.poll(cursor, [0, 1], 50, regular_only=True), ()),
        "outlook": (lambda on, cursor: on.outlook(cursor, [0, 1]), ()),
        "claim": (lambda on, cursor: on.claim(cursor, HELD, 100), _answers(dialect)),
        "plain claim": (
            lambda on, cursor: on.claim_plain(cursor, HELD, 100),
            _answers(dialect),
        ),
        "sizes of payloads": (lambda on, cursor: on.sizes(cursor, [1, 2]), ()),
        "heavy payloads": (lambda on, cursor: on.payloads(cursor, [1, 2]), ()),
        "later delivered rows of a key": (lambda on, cursor: on.later_delivered(cursor, []), ()),
        "outcomes and commit": (lambda on, cursor: on.finish(cursor, _settle()), ()),
        "locks once more": (lambda on, cursor: on.hold_again(cursor, [0, 1]), (([0, 1],),)),
        "rows that are still pending": (lambda on, cursor: on.hold_pending(cursor, [1, 2]), ()),
        "failed attempts of a row": (lambda on, cursor: on.errors_count(cursor, 1), ((0,),)),
        "before a handler's session": (lambda on, cursor: on.anchor(cursor), ()),
        "after a handler's session": (lambda on, cursor: on.take_back(cursor), (("{0,1}",),)),
        "after such a transaction": (lambda on, cursor: on.clean(cursor), ()),
        "locks set free": (lambda on, cursor: on.unlock(cursor, [0, 1]), ()),
        "oldest pending row": (lambda on, cursor: on.oldest_pending(cursor), ((None,),)),
        "oldest delivered row": (lambda on, cursor: on.oldest(cursor, [int(Status.DELIVERED)]), ((None,),)),
        "oldest failed or discarded row": (lambda on, cursor: on.oldest(cursor, [1, 3]), ((None,),)),
        "deletion of old rows": (lambda on, cursor: on.delete(cursor, *window), ()),
        "deletion of old rows behind younger ones": (
            lambda on, cursor: on.sweep(cursor, {int(Status.DELIVERED): NOW}, 0, 1000),
            ((0, None),),
        ),
    }
    found = {}
    for name, (step, answers) in steps.items():
        cursor = RecordingCursor(*answers)
        step(statements, cursor)
        if cursor.texts:
            found[name] = [text.replace("%%", "%") for text in cursor.texts]
    return found


def creating(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What the create side executes, apart from COPY."""
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


def tables(shape: Shape, dialect: str) -> dict[str, list[str]]:
    """What makes the table."""
    return {"table": schema.ddl(dialect, [shape.box])}
