"""Reasons of failures that the table cannot store as they are: they are made to fit, and the batch's outcomes stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.making import checks
from boxengine.adapters.sql.shape.texts import TextColumn
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import DATABASES, ON_MARIADB, ON_POSTGRESQL, MakeRig

REASON = "no caf\u00e9 \U0001f600 \u20ac \x00 today"


def refuse_b(item: Item, _payload: bytes) -> Failure | None:
    return Failure(REASON) if item.event_key == "b" else None


def check_one_failure_among_others(rig: Rig) -> str:
    sent: list[int] = []

    def transport(item: Item, payload: bytes) -> Failure | None:
        sent.append(item.id)
        return refuse_b(item, payload)

    rig.carry(transport)
    ids = rig.create("a", "b", "c")
    rig.deliver(3)
    assert sorted(sent) == ids
    assert sorted(rig.statuses()) == [Status.FAILED, Status.DELIVERED, Status.DELIVERED]
    return str(rig.row(ids[1]).error_log)


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def other_encoding(url: str, encoding: str) -> Iterator[str]:
    """A database of another encoding on the same server."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    name = f"{engine.url.database}_other"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        yield engine.url.set(database=name).render_as_string(hide_password=False)
        connection.exec_driver_sql(f"DROP DATABASE {name} (FORCE)")
    engine.dispose()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """As of the folder's ``conftest``; any other word is the encoding of a database on PostgreSQL."""
    if request.param in DATABASES:
        yield request.getfixturevalue(DATABASES[request.param])
    else:
        with other_encoding(request.getfixturevalue("postgres_url"), request.param) as url:
            yield url


@pytest.mark.parametrize(
    ("database", "kept"),
    [
        ("LATIN1", "no caf\u00e9 ? ? ? today"),
        ("WIN1252", "no caf\u00e9 ? \u20ac ? today"),
        ("SQL_ASCII", "no caf\u00e9 \U0001f600 \u20ac \ufffd today"),
    ],
    indirect=["database"],
)
def test_a_reason_that_a_databases_encoding_lacks_repeats_nothing(make_rig: MakeRig, kept: str) -> None:
    rig = make_rig(box={"max_retries": 0})
    assert kept in check_one_failure_among_others(rig)


@pytest.mark.parametrize("database", ["LATIN1"], indirect=True)
def test_db_check_names_an_encoding_that_lacks_characters(make_rig: MakeRig) -> None:
    rig = make_rig()
    messages = [finding.message for finding in checks.check(rig.engine, [rig.box()])]
    assert any("character set LATIN1" in message for message in messages)


@ON_POSTGRESQL
def test_a_reason_longer_than_its_column_is_cut(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0})
    rig.execute(f"ALTER TABLE {rig.box().table} ALTER COLUMN error_log TYPE varchar(40)")
    assert len(check_one_failure_among_others(rig)) == 40


@ON_POSTGRESQL
def test_db_check_is_silent_where_every_character_can_be_stored(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert not [each for each in checks.check(rig.engine, [rig.box()]) if "character set" in each.message]


# ── MariaDB ──────────────────────────────────────────────────────────────────────────────────────────


@ON_MARIADB
@pytest.mark.parametrize(
    ("definition", "kept", "charset"),
    [
        ("text CHARACTER SET utf8mb3", "no caf\u00e9 \ufffd \u20ac", "utf8mb3"),
        ("text CHARACTER SET latin1", "no caf\u00e9 ? \u20ac", "latin1"),
        ("text CHARACTER SET ascii", "no caf? ? ?", "ascii"),
        ("varchar(60) CHARACTER SET utf8mb4", "no caf\u00e9 \U0001f600 \u20ac", None),
        ("tinytext CHARACTER SET utf8mb4", "no caf\u00e9 \U0001f600 \u20ac", None),
    ],
)
def test_a_reason_that_its_column_cannot_store_repeats_nothing(
    make_rig: MakeRig, definition: str, kept: str, charset: str | None
) -> None:
    rig = make_rig(box={"max_retries": 0})
    rig.execute(f"ALTER TABLE {rig.box().table} MODIFY error_log {definition}")
    assert kept in check_one_failure_among_others(rig)
    named = [each.message for each in checks.check(rig.engine, [rig.box()]) if "character set" in each.message]
    assert len(named) == (charset is not None)
    assert all(str(charset) in message for message in named)


# ── without a server ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "text", "fitted"),
    [
        (TextColumn("utf8mb4", size=5), "ab\U0001f600", "ab"),
        (TextColumn("utf8mb3", size=5), "ab\U0001f600", "ab\ufffd"),
        (TextColumn("utf8mb4", characters=3), "ab\U0001f600d", "ab\U0001f600"),
        (TextColumn("never heard of", characters=10), "caf\u00e9", "caf?"),
        (TextColumn(), "as it \x00 is", "as it \x00 is"),
    ],
)
def test_a_text_is_replaced_and_cut_no_more_than_it_must_be(column: TextColumn, text: str, fitted: str) -> None:
    assert column.fit(text) == fitted
