"""Questions about rows, on PostgreSQL and on MariaDB: what they find, and that none of them reads a large table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.adapters.sql.delivering.fronts import LARGE
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking import counting, in_line, inspection, searching
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.looking.inspection import SqlInspector
from boxengine.adapters.sql.looking.moments import Probes, place_of
from boxengine.adapters.sql.looking.windows import Windows
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.inspection import Towards
from tests.conformance.sql_stores import SqlHarness, postgresql

PENDING, FAILED, DELIVERED, DISCARDED = map(int, Status)
ALL = ItemFilter()
OLDER, NEWER = Towards.OLDER, Towards.NEWER


class Bench:
    """A box, its rows, and an inspector whose windows are small."""

    def __init__(self, harness: SqlHarness, *, window: int = 10, **policy: Any) -> None:
        assert isinstance(harness.store, SqlStore)
        self.harness = harness
        self.store = harness.store
        self.engine = harness.store.engine
        self.box: Box = harness.make_box(**policy)
        self.inspector = SqlInspector(harness.store, window=window, untidy=window)

    def insert(self, status: int = PENDING, **columns: Any) -> int:
        return self.harness.insert(self.box, status=status, **columns)

    def fail(self, **columns: Any) -> int:
        return self.insert(FAILED, errors_count=3, processed_at=self.harness.now(), **columns)

    def retrying(self, **columns: Any) -> int:
        return self.insert(PENDING, errors_count=1, processed_at=self.harness.now(), **columns)

    def row(self, item_id: int) -> ItemRow:
        (row,) = self.inspector.find(self.box, ItemFilter(ids=(item_id,)), start=None, towards=OLDER, limit=1).rows
        return row

    def walk(self, which: ItemFilter, towards: Towards, *, limit: int = 3) -> tuple[list[int], int]:
        """All ids in the order of the pages, and in how many looks."""
        ids, start, looks = list[int](), None, 0
        while True:
            found = self.inspector.find(self.box, which, start=start, towards=towards, limit=limit)
            page = [row.id for row in found.rows]
            assert page == sorted(page, reverse=True), "the newest stands first, whichever way the pages go"
            assert len(page) <= limit
            ids += page if towards is OLDER else page[::-1]
            looks += 1
            if found.searched_to is None:
                return ids, looks
            assert looks < 200
            start = found.searched_to


@pytest.fixture
def bench(harness: SqlHarness) -> Bench:
    return Bench(harness)


def of(*statuses: int, **more: Any) -> ItemFilter:
    return ItemFilter(statuses=frozenset(statuses), **more)


def test_pages_reach_every_row_once_in_both_directions(bench: Bench) -> None:
    kinds = [PENDING, DELIVERED, FAILED, DISCARDED, DELIVERED]
    ids = [bench.insert(kinds[number % 5], bucket=number % 4, event_key=str(number % 3)) for number in range(25)]
    wanted: list[tuple[ItemFilter, list[int]]] = [
        (ALL, ids),
        (of(PENDING), ids[::5]),
        (of(FAILED), ids[2::5]),
        (of(FAILED, DISCARDED), sorted(ids[2::5] + ids[3::5])),
        (of(PENDING, FAILED), sorted(ids[::5] + ids[2::5])),
        (of(DELIVERED), sorted(ids[1::5] + ids[4::5])),
        (ItemFilter(event_key="1"), ids[1::3]),
        (of(PENDING, event_key="1"), [each for each in ids[::5] if each in ids[1::3]]),
        (ItemFilter(ids=(ids[3], ids[7], 999_999)), [ids[3], ids[7]]),
    ]
    for which, expected in wanted:
        assert bench.walk(which, NEWER)[0] == expected
        assert bench.walk(which, OLDER)[0] == expected[::-1]


def test_a_row_is_found_once_though_it_lies_beyond_what_was_seen_of_another_bucket(harness: SqlHarness) -> None:
    bench = Bench(harness, window=8, bucket_size=2)
    first = bench.insert(bucket=0, event_key="x")
    second = bench.insert(bucket=1, event_key="x")
    for _ in range(5):
        bench.insert(bucket=0, event_key="other")
    assert bench.walk(of(PENDING, event_key="x"), OLDER)[0] == [second, first]


def test_a_page_that_is_the_last_says_so(bench: Bench) -> None:
    for _ in range(3):
        bench.insert()
    for which in (ALL, of(PENDING), of(PENDING, event_key="k")):
        assert bench.inspector.find(bench.box, which, start=None, towards=OLDER, limit=3).searched_to is None


def test_what_no_index_leads_to_is_looked_for_window_by_window(bench: Bench) -> None:
    rare = bench.insert(DELIVERED, event_key="rare")
    for _ in range(29):
        bench.insert(DELIVERED)
    which = ItemFilter(event_key="rare")
    first = bench.inspector.find(bench.box, which, start=None, towards=OLDER, limit=3)
    assert list(first.rows) == []
    assert first.searched_to is not None, "it says how far it came"
    assert bench.walk(which, OLDER) == ([rare], 4)


def test_an_index_by_key_leads_there_at_once(harness: SqlHarness) -> None:
    bench = Bench(harness, key_index=True)
    rare = bench.insert(DELIVERED, event_key="rare")
    for _ in range(29):
        bench.insert(DELIVERED)
    assert bench.walk(ItemFilter(event_key="rare"), OLDER) == ([rare], 1)


def test_text_uuid_event_and_time_restrict(bench: Bench) -> None:
    uuid = "018f2f6a-5c1e-4b2a-9d1f-2f6a5c1e7b2a"
    old = bench.fail(error_log="http: Timeout: 50% of_it", uuid=uuid, created_at=bench.harness.ago(hours=2))
    new = bench.fail(error_log="http: refused", event_name="paid")

    def found(**which: Any) -> list[int]:
        return bench.walk(ItemFilter(**which), NEWER)[0]

    assert found(error="TIMEOUT") == [old]
    assert found(error="50% of_it") == [old]
    assert found(error="%") == [old], "what a pattern would take for a sign is text"
    assert found(error="f_i") == [old]
    assert found(uuid=uuid) == [old]
    assert found(event_name="paid") == [new]
    assert found(created_from=bench.harness.ago(hours=1)) == [new]
    assert found(created_before=bench.harness.ago(hours=1)) == [old]
    assert found(created_from=bench.harness.ago(hours=3), created_before=bench.harness.ago(hours=1)) == [old]


def test_a_time_spares_looking_at_all_that_is_older_or_younger(bench: Bench) -> None:
    for hour in range(90, 0, -1):
        bench.insert(DELIVERED, created_at=bench.harness.ago(hours=hour))
    middle = ItemFilter(created_from=bench.harness.ago(hours=41.5), created_before=bench.harness.ago(hours=39.5))
    for towards in Towards:
        ids, looks = bench.walk(middle, towards)
        assert len(ids) == 2
        assert looks <= 3, "a window on either side of them, not all nine"


def test_a_row_that_stands_a_little_away_from_its_time_is_found_by_it(bench: Bench) -> None:
    bench.insert(DELIVERED, created_at=bench.harness.ago(hours=9))
    for _ in range(5):
        bench.insert(DELIVERED, created_at=bench.harness.ago(hours=1))
    long_in_its_transaction = bench.insert(DELIVERED, created_at=bench.harness.ago(hours=8))
    for _ in range(10):
        bench.insert(DELIVERED, created_at=bench.harness.ago(hours=1))
    which = ItemFilter(created_from=bench.harness.ago(hours=8.5), created_before=bench.harness.ago(hours=7.5))
    assert bench.walk(which, OLDER)[0] == [long_in_its_transaction]


def test_a_moment_is_found_in_a_few_probes_however_unevenly_ids_rise(bench: Bench) -> None:
    hours = [*range(400, 390, -1), *[1 + number / 1000 for number in range(90, 0, -1)]]
    now = bench.harness.now()
    ids = [bench.insert(DELIVERED, created_at=now - timedelta(hours=each)) for each in hours]
    probes: list[str] = []
    sa.event.listen(bench.engine, "before_cursor_execute", lambda *given: probes.append(given[2]))
    with bench.engine.connect() as connection:
        for number in (0, 1, 5, 9, 10, 50, 99):
            moment = now - timedelta(hours=hours[number] + 0.0001)
            probes.clear()
            place = place_of(connection, Probes(bench.box.table), moment, near=1)
            assert (place.after, place.before) == (ids[number - 1] if number else 0, ids[number])
            assert len(probes) <= 2 + 3 * 7, "no more than halving would take, thrice"


def test_a_count_stops_at_its_limit_and_says_so(bench: Bench) -> None:
    for _ in range(6):
        bench.insert()
        bench.fail()
    count = bench.inspector.count
    assert count(bench.box, of(PENDING), limit=6) == Count(6)
    assert count(bench.box, of(PENDING), limit=5) == Count(5, Precision.AT_LEAST)
    assert count(bench.box, of(FAILED, PENDING), limit=100) == Count(12)
    assert count(bench.box, of(DISCARDED), limit=100) == Count(0)
    assert count(bench.box, ItemFilter(event_key="k"), limit=100) == Count(12)
    for _ in range(60):
        bench.insert(DELIVERED)
    assert count(bench.box, ItemFilter(event_key="k"), limit=100) == Count(51, Precision.AT_LEAST), "of one window"


def test_tried_are_those_that_failed_and_will_be_tried_again(bench: Bench) -> None:
    bench.fail()
    first, second = bench.retrying(bucket=2), bench.retrying(bucket=1)
    bench.insert()
    bench.insert(DELIVERED, errors_count=2)
    assert [row.id for row in bench.inspector.tried(bench.box, limit=10)] == [first, second]
    assert [row.id for row in bench.inspector.tried(bench.box, limit=1)] == [first]


@pytest.mark.parametrize("make", ["fail", "retrying"])
def test_under_strict_order_by_key_a_failed_row_of_the_key_holds_back_the_later_ones(
    harness: SqlHarness, make: str
) -> None:
    bench = Bench(harness, strict_order=StrictOrder.KEY)
    before = bench.insert(event_key="a")
    first = getattr(bench, make)(event_key="a")
    getattr(bench, make)(event_key="a")
    after, other = bench.insert(event_key="a"), bench.insert(event_key="b")
    held_by = bench.inspector.holding_back(bench.box, bench.row(after))
    assert held_by is not None
    assert held_by.id == first
    assert bench.inspector.holding_back(bench.box, bench.row(other)) is None
    assert bench.inspector.holding_back(bench.box, bench.row(before)) is None
    followers = 1 if make == "fail" else 2
    assert bench.inspector.followers(bench.box, bench.row(first), limit=100) == Count(followers)


def test_under_strict_order_a_failed_row_holds_back_its_bucket(harness: SqlHarness) -> None:
    bench = Bench(harness, strict_order=StrictOrder.BUCKET)
    first = bench.retrying(event_key="a", bucket=1)
    after = bench.insert(event_key="b", bucket=1)
    elsewhere = bench.insert(event_key="a", bucket=2)
    held_by = bench.inspector.holding_back(bench.box, bench.row(after))
    assert held_by is not None
    assert held_by.id == first
    assert bench.inspector.holding_back(bench.box, bench.row(elsewhere)) is None
    assert bench.inspector.followers(bench.box, bench.row(first), limit=100) == Count(1)


def test_a_count_that_came_to_its_limit_is_not_repeated_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [bench.insert() for _ in range(3)]
    more_than_two = Count(2, Precision.AT_LEAST)
    assert bench.inspector.count(bench.box, of(PENDING), limit=2) == more_than_two
    with bench.engine.begin() as connection:
        connection.execute(sa.text(f"DELETE FROM {bench.box.table} WHERE id > {ids[0]}"))
    assert bench.inspector.count(bench.box, of(PENDING), limit=2) == more_than_two
    assert bench.inspector.count(bench.box, of(PENDING), limit=3) == Count(1), "another question"
    monkeypatch.setattr(inspection, "CAPPED_FOR", 0.0)
    assert bench.inspector.count(bench.box, of(PENDING), limit=2) == Count(1)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 6, 7])
def test_pending_rows_are_counted_in_steps(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(counting, "STEP", step)
    ids = [bench.insert(bucket=bucket) for bucket in (0, 3, 1, 3, 0, 3)]
    bench.insert(DELIVERED, bucket=1)
    bench.fail()
    for limit, expected in ((5, Count(5, Precision.AT_LEAST)), (6, Count(6)), (7, Count(6))):
        assert bench.inspector.count(bench.box, of(PENDING), limit=limit) == expected
    both = bench.inspector.count(bench.box, of(PENDING, FAILED), limit=100)
    assert both == Count(7)
    assert bench.inspector.count(bench.box, of(PENDING, FAILED), limit=6) == Count(6, Precision.AT_LEAST)
    until = replace(of(PENDING), up_to=ids[3])
    assert bench.inspector.count(bench.box, until, limit=100) == Count(4)


def test_followers_that_came_to_the_limit_are_not_counted_again_at_once(
    harness: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(harness, strict_order=StrictOrder.BUCKET)
    first = bench.row(bench.fail())
    others = [bench.insert() for _ in range(3)]
    more_than_two = Count(2, Precision.AT_LEAST)
    assert bench.inspector.followers(bench.box, first, limit=2) == more_than_two
    for item_id in others:
        bench.harness.set_row(bench.box, item_id, status=DELIVERED)
    assert bench.inspector.followers(bench.box, first, limit=2) == more_than_two
    assert bench.inspector.followers(bench.box, bench.row(others[0]), limit=2) == Count(0), "another item's are counted"
    monkeypatch.setattr(inspection, "CAPPED_FOR", 0.0)
    assert bench.inspector.followers(bench.box, first, limit=2) == Count(0)


def test_under_strict_order_only_so_many_rows_of_a_bucket_are_searched_for_the_one_that_holds_it_back(
    harness: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_line, "_SEARCHED_BEFORE", 3)
    bench = Bench(harness, strict_order=StrictOrder.BUCKET)
    kinds = {0: [1], 1: [4], 2: [8]}
    for bucket, retrying in kinds.items():
        ids = [(bench.retrying if n in retrying else bench.insert)(bucket=bucket) for n in range(10)]
        held_by = bench.inspector.holding_back(bench.box, bench.row(ids[9]))
        found = None if held_by is None else ids.index(held_by.id)
        assert found == {0: 1, 1: None, 2: 8}[bucket], "among the first three, and the last three before it"


def test_without_strict_order_nothing_holds_back(bench: Bench) -> None:
    bench.fail()
    assert bench.inspector.holding_back(bench.box, bench.row(bench.insert())) is None


def test_ahead_are_the_pending_rows_of_the_bucket_with_smaller_ids(bench: Bench) -> None:
    for bucket in (0, 0, 1, 0):
        bench.insert(bucket=bucket)
    bench.insert(DELIVERED, bucket=0)
    last = bench.row(bench.insert(bucket=0))
    assert bench.inspector.ahead(bench.box, last, limit=10) == Count(3)
    assert bench.inspector.ahead(bench.box, last, limit=2) == Count(2, Precision.AT_LEAST)


def test_neighbours_are_the_nearest_rows_of_the_key_on_both_sides(bench: Bench) -> None:
    ids = [bench.insert(DELIVERED, event_key="a" if number % 2 else "b") for number in range(12)]
    inspector = SqlInspector(bench.store, window=40, untidy=40)
    before, after = inspector.neighbours(bench.box, bench.row(ids[5]), limit=2)
    assert [row.id for row in before] == [ids[3], ids[1]]
    assert [row.id for row in after] == [ids[9], ids[7]]


def test_the_table_has_a_size(bench: Bench) -> None:
    bench.insert()
    state = bench.inspector.table(bench.box)
    assert state.bytes is not None
    assert state.bytes > 0


def test_a_table_of_the_reference_with_numbers_for_keys_is_searched_too(harness: SqlHarness) -> None:
    bench = Bench(harness, strict_order=StrictOrder.KEY, key_index=True)
    numeric = "bigint USING event_key::bigint" if bench.engine.dialect.name == "postgresql" else None
    with bench.engine.begin() as connection:
        change = f"ALTER event_key TYPE {numeric}" if numeric else "MODIFY event_key bigint NOT NULL"
        connection.execute(sa.text(f"ALTER TABLE {bench.box.table} {change}"))
    first = bench.fail(event_key="17")
    after = bench.insert(event_key="17")
    assert bench.walk(ItemFilter(event_key="17"), OLDER)[0] == [after, first]
    assert bench.inspector.followers(bench.box, bench.row(first), limit=10) == Count(1)
    held_by = bench.inspector.holding_back(bench.box, bench.row(after))
    assert held_by is not None
    assert held_by.id == first
    assert bench.walk(ItemFilter(event_key="no number"), OLDER)[0] == []


class Sent:
    """The statements that are sent while the block runs."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self.statements: list[str] = []

    def __enter__(self) -> list[str]:
        sa.event.listen(self._engine, "before_cursor_execute", self._note)
        return self.statements

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._note)

    def _note(self, *given: Any) -> None:
        self.statements.append(given[2])


def test_a_list_that_an_index_gives_is_one_statement(bench: Bench) -> None:
    for status in (PENDING, FAILED, DELIVERED, DISCARDED) * 3:
        bench.insert(status)
    bench.walk(of(PENDING), OLDER)
    for which in (ALL, of(PENDING), of(FAILED), of(FAILED, DISCARDED)):
        for towards in Towards:
            with Sent(bench.engine) as sent:
                found = bench.inspector.find(bench.box, which, start=None, towards=towards, limit=2)
            assert (len(found.rows), len(sent)) == (2, 1), which


def test_a_search_by_time_and_its_count_look_for_the_time_once(bench: Bench) -> None:
    for _ in range(5):
        bench.fail(created_at=bench.harness.ago(hours=2))
    which = of(FAILED, created_from=bench.harness.ago(hours=3), created_before=bench.harness.ago(hours=1))
    with Sent(bench.engine) as sent:
        assert len(bench.inspector.find(bench.box, which, start=None, towards=OLDER, limit=3).rows) == 3
    assert [each for each in sent if "created_at FROM" in each], "probes"
    with Sent(bench.engine) as sent:
        assert bench.inspector.count(bench.box, which, limit=100) == Count(5)
    assert len(sent) == 1


def test_questions_are_prepared_and_the_fronts_change_no_text(postgres_url: str) -> None:
    """Between them stands no ROLLBACK, after which the driver would forget what it has prepared."""
    harness = postgresql(postgres_url)
    bench = Bench(harness)
    store = SqlStore(connect(url_of(bench.engine), connections=2), only_looks=True)
    inspector, census = SqlInspector(store), SqlCensus(store, small=0, limit=2)
    bench.insert(id=LARGE + 1, bucket=0)
    for number in range(2, 22):
        bench.insert(id=LARGE + number, bucket=0)
        harness.set_row(bench.box, LARGE + number - 1, status=DELIVERED)
        store.read_from_start(bench.box.name)
        (row,) = inspector.find(bench.box, of(PENDING), start=None, towards=OLDER, limit=2).rows
        assert row.id == LARGE + number
        census.take(bench.box)
    with reading(store.engine) as connection, reading(store.engine) as other:
        query = "SELECT statement FROM pg_prepared_statements"
        prepared = [row[0] for each in (connection, other) for row in each.exec_driver_sql(query)]
    assert [each for each in prepared if "AS near" in each and "unnest" in each], "the list"
    assert [each for each in prepared if "count(*)" in each], "the counts"
    store.close()
    harness.close()


def test_a_list_is_shown_though_a_column_changes_its_type_after_it_was_prepared(postgres_url: str) -> None:
    harness = postgresql(postgres_url)
    bench = Bench(harness)
    store = SqlStore(connect(url_of(bench.engine), connections=2), only_looks=True)
    inspector = SqlInspector(store)
    for status in (PENDING, FAILED):
        bench.insert(status)

    def listed() -> list[int]:
        found = [inspector.find(bench.box, which, start=None, towards=OLDER, limit=2) for which in (ALL, of(FAILED))]
        return [len(each.rows) for each in found]

    for _ in range(10):
        assert listed() == [2, 1]
    with bench.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {bench.box.table} ALTER errors_count TYPE bigint")
    for _ in range(10):
        assert listed() == [2, 1]
    store.close()
    harness.close()


def url_of(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


SLOW = {
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c",
}


def test_a_search_leaves_a_step_that_takes_too_long_to_the_next_page(
    harness: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SHORT", timedelta(milliseconds=5))
    monkeypatch.setattr(searching, "_FIRST", 6)
    bench = Bench(harness, window=40)
    dialect = "postgresql" if bench.engine.dialect.name == "postgresql" else "mysql"
    ids = [bench.insert(DELIVERED) for _ in range(20)]
    look, steps = Windows.look, list[int]()

    def slower_and_slower(self: Windows, *given: Any, **how: Any) -> Any:
        steps.append(how["size"])
        if len(steps) > 1:
            self._rows.connection.execute(sa.text(SLOW[dialect]))
        return look(self, *given, **how)

    monkeypatch.setattr(Windows, "look", slower_and_slower)
    found = bench.inspector.find(
        bench.box, ItemFilter(error="nowhere"), start=None, towards=OLDER, limit=3, enough=lambda: False
    )
    assert (len(found.rows), len(steps)) == (0, 2)
    assert found.searched_to == ids[-6]


def test_no_question_reads_more_than_it_may_of_a_large_table(postgres_url: str) -> None:
    """By the plans that PostgreSQL makes on 200,000 rows, most of them delivered."""
    harness = postgresql(postgres_url)
    bench = Bench(harness, window=1_000, strict_order=StrictOrder.KEY, bucket_size=16)
    engine = bench.engine
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                f"INSERT INTO {bench.box.table} (uuid, event_key, bucket, status, payload, errors_count, created_at, updated_at) "
                "SELECT gen_random_uuid(), n % 5000, n % 16, CASE WHEN n > 180000 THEN 0 WHEN n % 100 = 0 THEN 1 ELSE 2 END, "
                "'x', 0, now() - make_interval(secs => 200000 - n), now() FROM generate_series(1, 200000) AS n"
            )
        )
        connection.execute(sa.text(f"ANALYZE {bench.box.table}"))
    read: list[tuple[int, str]] = []

    @sa.event.listens_for(engine, "before_cursor_execute", retval=False)
    def plan(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "WITH")) and "pg_catalog" not in statement:
            with cursor.connection.cursor() as own:
                own.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
                read.append((_rows_read(own.fetchone()[0][0]["Plan"]), statement))

    inspector, box = bench.inspector, bench.box
    row = bench.row(190_000)
    read.clear()
    for which in (
        ALL,
        of(PENDING),
        of(FAILED),
        of(DELIVERED),
        of(FAILED, DISCARDED),
        ItemFilter(event_key="17"),
        ItemFilter(error="x"),
        of(PENDING, event_key="17"),
        ItemFilter(created_from=bench.harness.ago(hours=1)),
    ):
        for towards in Towards:
            inspector.find(box, which, start=None, towards=towards, limit=50)
            inspector.find(box, which, start=100_000, towards=towards, limit=50)
        inspector.find(box, which, start=None, towards=OLDER, limit=50, enough=lambda: False)
        inspector.count(box, which, limit=1_000)
    inspector.tried(box, limit=200)
    inspector.holding_back(box, row)
    inspector.ahead(box, row, limit=1_000)
    inspector.followers(box, row, limit=1_000)
    inspector.neighbours(box, row, limit=3)
    most = 16 * 1_001 + 1_000
    assert len(read) > 60
    assert max(read)[0] <= most, max(read)[1]
    harness.close()


def _rows_read(plan: dict[str, Any]) -> int:
    """Rows that the plan's scans returned or threw away."""
    below = sum(map(_rows_read, plan.get("Plans", [])))
    if "Scan" not in plan["Node Type"] or "Relation Name" not in plan:
        return below
    rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return below + int(rows * plan["Actual Loops"])


def test_a_moment_before_or_after_all_rows_is_found(bench: Bench) -> None:
    assert bench.inspector.find(
        bench.box, ItemFilter(created_from=bench.harness.now()), start=None, towards=OLDER, limit=5
    ) == (
        [],
        None,
    )
    bench.insert(created_at=bench.harness.ago(hours=5))
    which = ItemFilter(created_from=bench.harness.ago(hours=1))
    assert bench.inspector.find(bench.box, which, start=None, towards=NEWER, limit=5) == ([], None)
