"""Bounds on MariaDB: looks and claims begin behind what is done, and nothing is skipped."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.delivering.bounding_mysql import MySqlSight
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.branch import NEAR
from boxengine.domain.bounds import RENAMED
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.errors import StoreUnavailable
from tests.conftest import ServerLookup
from tests.eventually import eventually
from tests.integration.bounds_scene import ALWAYS, NEVER_FROM_START, TABLE, BoundsScene, make_box
from tests.servers.databases import fresh_mysql_database
from tests.servers.mariadb import MariaDBServer

pytestmark = pytest.mark.xdist_group("bounds-mysql")  # they share a server

GATE = "SELECT GET_LOCK(CONCAT(DATABASE(), '.gate'), 60)"
"""Waits while ``Scene.gate`` is closed."""


class Scene(BoundsScene):
    def __init__(self, url: str, box: Box) -> None:
        super().__init__(url, box)
        self._playing: set[int] = set()
        """Threads whose statements run beside the test."""

    def connection(self, *, autocommit: bool = False, user: str | None = None) -> pymysql.Connection[Any]:
        connection = pymysql.connect(
            host=self.address.host or "",
            port=self.address.port or 0,
            user=user or self.address.username,
            password=self.address.password or "",
            database=self.address.database,
            autocommit=autocommit,
        )
        self._opened.append(connection)
        return connection

    def close(self) -> None:
        self._opened = [each for each in self._opened if not isinstance(each, pymysql.Connection) or each.open]
        super().close()

    def run(self, statement: str, *values: Any, on: pymysql.Connection[Any] | None = None) -> list[Any]:
        with (on or self.direct).cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def insert(self, on: pymysql.Connection[Any] | None = None, *, bucket: int = 0, **columns: Any) -> int:
        values = {"event_key": "k", "bucket": bucket, "payload": b"x", **columns}
        names, places = ", ".join(values), ", ".join(["%s"] * len(values))
        with (on or self.direct).cursor() as cursor:
            cursor.execute(f"INSERT INTO {TABLE} (uuid, {names}) VALUES (UUID(), {places})", list(values.values()))
            return int(cursor.lastrowid)

    @contextmanager
    def gate(self, *statements: str, on: pymysql.Connection[Any]) -> Iterator[None]:
        """Executes statements beside the test; one of them waits for ``GATE`` until this ends."""
        self.run(GATE)

        def play() -> None:
            for statement in (*statements, "DO RELEASE_ALL_LOCKS()"):
                self.run(statement, on=on)

        ((thread,),) = self.run("SELECT CONNECTION_ID()", on=on)
        player = threading.Thread(target=play)
        self._playing.add(thread)
        player.start()
        waiting = "SELECT 1 FROM information_schema.processlist WHERE id = %s AND state = 'User lock'"
        try:
            eventually(lambda: self.run(waiting, thread) != [], what="a statement waits")
            yield
        finally:
            self.run("DO RELEASE_ALL_LOCKS()")
            player.join(timeout=60)
            assert not player.is_alive()
            self._playing.discard(thread)

    def advance(self, store: SqlStore | None = None) -> set[int]:
        self.wait_until_at_rest()
        return super().advance(store)

    def wait_until_at_rest(self) -> None:
        """A client has its answer some milliseconds before the server shows its thread at rest."""
        busy = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND command <> 'Sleep'"
        alone = {self.direct.thread_id()}
        eventually(
            lambda: {thread for (thread,) in self.run(busy)} - self._playing == alone, what="the others are at rest"
        )

    def sight(self) -> MySqlSight:
        found = MySqlSight.of(self.store.table(self.box), self.store._bounds._opened)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def server(server_lookup: ServerLookup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server of their own: bounds wait for every statement on a server, whichever database it is for."""
    server_lookup("mariadb")  # tells of a machine without one
    with MariaDBServer(tmp_path_factory.mktemp("mariadb")) as server:
        yield server.url()


@pytest.fixture
def mysql_url(server: str) -> Iterator[str]:
    with fresh_mysql_database(server) as url:
        yield url


@pytest.fixture
def scene(mysql_url: str) -> Iterator[Scene]:
    with closing(Scene(mysql_url, make_box())) as scene:
        yield scene


@pytest.fixture
def account(scene: Scene) -> Iterator[Callable[[str], str]]:
    """Makes an account with all rights on the test's database, and no others."""
    made: list[str] = []

    def make(name: str) -> str:
        scene.run(f"CREATE USER '{name}'@'%'")
        made.append(name)
        scene.run(f"GRANT ALL ON {scene.address.database}.* TO '{name}'@'%'")
        return name

    yield make
    for name in made:
        scene.run(f"DROP USER '{name}'@'%'")


# ── who is waited for ────────────────────────────────────────────────────────────────────────────────


def test_what_is_delivered_lies_behind_the_bounds_of_all_buckets(scene: Scene) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    assert scene.store.pending([scene.box]) == frozenset()
    new = scene.insert()
    assert scene.store.outlook(scene.box, [0, 1]).due == [0]
    assert [row.id for row in scene.store.poll(scene.box, [0, 1], 10)] == [new]
    assert scene.store.pending([scene.box]) == {scene.box.name}
    assert scene.deliver() == [new]


@pytest.mark.parametrize(
    "statements",
    [
        ["START TRANSACTION WITH CONSISTENT SNAPSHOT", f"SELECT COUNT(*) FROM {TABLE}"],
        ["CREATE TABLE elsewhere (id int)", "INSERT INTO elsewhere VALUES (1)"],
    ],
    ids=["one that reads", "one that writes elsewhere"],
)
def test_a_long_transaction_does_not_hold_the_bounds_back(scene: Scene, statements: list[str]) -> None:
    old = scene.connection()
    for statement in statements:
        scene.run(statement, on=old)
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]


def test_a_long_statement_elsewhere_does_not_hold_the_bounds_back(scene: Scene) -> None:
    with scene.gate(GATE, on=scene.connection()):
        last = scene.deliver_and_advance()
        assert scene.bounds() == [last, last]


@pytest.mark.parametrize("settings", ["", "SET unique_checks = 0, foreign_key_checks = 0"], ids=["plain", "in bulk"])
@pytest.mark.parametrize("savepoint", [False, True], ids=["at once", "its first id in a savepoint undone"])
def test_a_lower_id_that_commits_late_is_delivered(scene: Scene, savepoint: bool, settings: str) -> None:
    writer = scene.connection()
    if settings:  # an empty table is then filled past its undo log, and locked
        scene.run(settings, on=writer)
    if savepoint:
        scene.run("SAVEPOINT s", on=writer)
        scene.insert(writer)
        scene.run("ROLLBACK TO s", on=writer)
    late = scene.insert(writer)
    if settings:
        scene.store._bounds.of(scene.box).claimed(1)
        scene.advance()
        last = late
    else:
        last = scene.deliver_and_advance()
    assert scene.bounds() == [late - 1, last]
    writer.commit()
    scene.advance()
    assert scene.deliver() == [late]
    scene.advance()
    assert scene.bounds() == [last, last]


def test_a_statement_that_has_drawn_ids_and_not_yet_used_them_is_waited_for(scene: Scene) -> None:
    scene.deliver_and_advance()
    known = scene.bounds()
    two = f"INSERT INTO {TABLE} (uuid, event_key, bucket, payload) VALUES (UUID(), 'k', 1, 'x'), (UUID(), 'k', 0, ({GATE}))"
    writer = scene.connection()
    with scene.gate(two, on=writer):
        last = scene.deliver_and_advance()
        drawn = max(known) + 2
        assert last > drawn
        assert scene.run(f"SELECT id FROM {TABLE} WHERE id = {drawn}") == []
        assert scene.bounds() == known
    scene.advance()
    assert scene.bounds() == [drawn - 1, drawn - 2]
    writer.commit()
    assert scene.deliver() == [drawn - 1, drawn]


def test_ids_that_a_statement_draws_for_all_its_rows_are_waited_for(scene: Scene) -> None:
    """A trigger's statements are no end of the statement that they belong to."""
    scene.run("CREATE TABLE audited (id bigint)")
    scene.run(
        f"CREATE TRIGGER tr AFTER INSERT ON {TABLE} FOR EACH ROW "
        f"BEGIN IF NEW.event_key = 'slow' THEN INSERT INTO audited SELECT 1 FROM ({GATE}) AS g; END IF; END"
    )
    known = scene.deliver_and_advance()
    rows = ", ".join(f"(UUID(), 'slow', {bucket}, 'x')" for bucket in (1, 0))
    writer = scene.connection()
    with scene.gate(f"INSERT INTO {TABLE} (uuid, event_key, bucket, payload) VALUES {rows}", on=writer):
        scene.deliver_and_advance()
        assert scene.bounds() == [known, known]
    writer.commit()
    scene.advance()
    assert scene.deliver() == [known + 1, known + 2]


def test_a_thread_that_was_seen_at_rest_has_another_name_in_its_next_statement(scene: Scene) -> None:
    sight, writer = scene.sight(), scene.connection()
    scene.insert()
    reading = f"SELECT t.id FROM {TABLE} AS t WHERE ({GATE}) >= t.bucket"
    ((thread,),) = scene.run("SELECT CONNECTION_ID()", on=writer)

    def names() -> list[str]:
        """The writer's only: the server lists other threads for a moment after their statements were answered."""
        return [name for name in sight.writers() if name.startswith(f"{thread}:")]

    with scene.gate(reading, on=writer):
        first = names()
        assert len(first) == 1
        assert names() == first
    eventually(lambda: names() == [], what="the writer is seen at rest")
    with scene.gate(reading, on=writer):
        second = names()
        assert len(second) == 1
        assert second != first


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_a_writer_that_begins_later_is_not_waited_for(scene: Scene, far: bool) -> None:
    if far:
        scene.run(f"ALTER TABLE {TABLE} AUTO_INCREMENT = {3 * NEAR}")
    scene.insert()
    scene.deliver()
    scene.wait_until_at_rest()
    scene.store.advance(scene.box)  # times the walk
    scene.store.advance(scene.box)  # proposes
    ((last,),) = scene.run(f"SELECT MAX(id) FROM {TABLE}")
    writer = scene.connection()
    new = scene.insert(writer, id=last + 5)  # others may have drawn the ids before it
    scene.store.advance(scene.box)
    assert scene.bounds() == [last, last]
    writer.commit()
    assert scene.deliver() == [new]


def test_an_item_whose_delivery_is_undone_while_the_bounds_move_is_delivered_again(scene: Scene) -> None:
    item = scene.insert()
    claimer = scene.connection()
    scene.run(f"UPDATE {TABLE} SET status = {Status.DELIVERED:d} WHERE id = {item}", on=claimer)
    last = max(scene.insert(bucket=1) for _ in range(2))
    with scene.store.plain_claims(scene.box).open({1: None}, 100) as claim:
        claim.commit(Settlement(delivered=[each.id for each in claim.items]))
    scene.advance()
    assert scene.bounds() == [item - 1, last]
    claimer.rollback()
    assert scene.deliver() == [item]


# ── what no bound passes ─────────────────────────────────────────────────────────────────────────────


def test_a_row_that_waits_for_its_time_stays_before_the_bound_of_its_bucket_alone(scene: Scene) -> None:
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, waiting - 1]
    scene.run(f"UPDATE {TABLE} SET available_at = UTC_TIMESTAMP() WHERE id = {waiting}")
    assert scene.deliver() == [waiting]


def test_a_row_that_backs_off_stays_before_the_bound(scene: Scene) -> None:
    failing = scene.insert()
    with scene.store.plain_claims(scene.box).open({0: None}, 1) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(failing, Status.PENDING, 1, "timed out")]))
    last = scene.deliver_and_advance()
    assert scene.bounds() == [failing - 1, last]
    scene.run(f"UPDATE {TABLE} SET processed_at = UTC_TIMESTAMP() - INTERVAL 1 DAY WHERE id = {failing}")
    assert scene.deliver() == [failing]


@pytest.mark.parametrize("status", [Status.FAILED, Status.DISCARDED])
def test_under_strict_order_no_bound_passes_a_row_that_somebody_may_retry(mysql_url: str, status: Status) -> None:
    with closing(Scene(mysql_url, make_box(StrictOrder.KEY))) as scene:
        ended = scene.insert(status=int(status))
        last = scene.deliver_and_advance()
        assert scene.bounds() == [ended - 1, last]
        follower = scene.insert()
        scene.run(f"UPDATE {TABLE} SET status = 0 WHERE id = {ended}")
        assert scene.deliver() == [ended, follower]


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "statements",
    [
        [f"UPDATE {TABLE} SET status = 0 WHERE id = 1"],
        [f"DELETE FROM {TABLE} WHERE id = 1", f"UPDATE {TABLE} SET id = 1, status = 0 WHERE id = 3"],
    ],
    ids=["an operator's SQL", "a row with an id of its own"],
)
def test_what_comes_back_by_other_ways_is_found_by_a_look_from_the_start(scene: Scene, statements: list[str]) -> None:
    store = scene.worker(ALWAYS)
    last = scene.deliver_and_advance()
    scene.insert()
    scene.deliver(store)
    scene.advance(store)
    assert min(scene.bounds(store)) > last
    for statement in statements:
        scene.run(statement)
    assert scene.deliver(store) == []
    assert scene.advance(store) == {0}
    assert scene.deliver(store) == [1]


def test_ids_that_are_set_back_make_the_worker_forget_its_bounds(scene: Scene) -> None:
    store = scene.worker(ALWAYS)
    scene.insert()
    scene.insert()
    scene.deliver(store)
    scene.advance(store)
    assert min(scene.bounds(store)) > 0
    scene.run(f"TRUNCATE {TABLE}")
    first = scene.insert()
    assert scene.deliver(store) == []
    scene.advance(store)
    assert scene.deliver(store) == [first]


@pytest.mark.parametrize(
    "statements",
    [
        [f"CREATE TABLE copy LIKE {TABLE}", f"RENAME TABLE {TABLE} TO gone, copy TO {TABLE}"],
        [f"ALTER TABLE {TABLE} AUTO_INCREMENT = 1"],
    ],
    ids=["a copy under the same name", "altered"],
)
def test_ids_that_an_altered_table_draws_again_are_delivered_though_the_next_look_finds_later_ones(
    scene: Scene, statements: list[str]
) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    scene.run(f"DELETE FROM {TABLE}")
    # Of a whole second, by the clock of the file system, which lags some milliseconds behind.
    made = (
        "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() "
        "AND create_time > SYSDATE(6) - INTERVAL 1.1 SECOND"
    )
    eventually(lambda: scene.run(made) == [], what="a second in which the table was not made")
    for statement in statements:
        scene.run(statement)
    ids = [scene.insert() for _ in range(last + 1)]
    assert ids == list(range(1, last + 2))
    assert scene.deliver() == [last + 1]
    scene.store.advance(scene.box)
    assert scene.deliver() == ids[:-1]


def test_a_lost_connection_makes_the_worker_forget_its_bounds(scene: Scene) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    for (thread,) in scene.run(others):
        scene.run(f"KILL CONNECTION {thread}")
    eventually(lambda: scene.run(others) == [], what="the connections are closed")
    scene.store._bounds.of(scene.box).claimed(1)
    assert scene.store.advance(scene.box) == ()
    assert scene.bounds() == [0, 0]


def test_a_restart_is_noticed_though_no_connection_tells_of_it_and_a_prepared_item_is_delivered(tmp_path: Path) -> None:
    with MariaDBServer(tmp_path) as server:
        url = server.url("shop")
        with pymysql.connect(host="127.0.0.1", port=sa.make_url(url).port or 0, user="root") as admin:
            admin.cursor().execute("CREATE DATABASE shop")
        with closing(Scene(url, make_box())) as scene:
            sight = scene.sight()
            scene.insert()
            scene.deliver()
            assert sight.last_drawn() == 1
            writer = scene.connection()
            scene.run("XA START 'x'", on=writer)
            late = scene.insert(writer)
            scene.run("XA END 'x'", on=writer)
            scene.run("XA PREPARE 'x'", on=writer)
        server.stop()
        server.start()
        with closing(scene):  # whose sight connects anew
            assert [sight.last_drawn(), sight.last_drawn()] == [0, late]
        with closing(Scene(url, make_box())) as scene:
            last = scene.deliver_and_advance()
            assert scene.bounds() == [late - 1, last]
            scene.run("XA COMMIT 'x'")
            assert scene.deliver() == [late]


# ── where a bound would not be safe, or would spare nothing ──────────────────────────────────────────


def test_without_the_privilege_to_see_all_threads_there_are_no_bounds(
    scene: Scene, account: Callable[[str], str]
) -> None:
    store = scene.worker(NEVER_FROM_START, user=account("least"))
    for _ in range(2):
        item = scene.insert()
        assert scene.deliver(store) == [item]
        assert scene.advance(store) == set()
    assert scene.bounds(store) == [0, 0]
    remarks = SqlCheckup(store, now=lambda: datetime.now(UTC)).remarks([scene.box])
    assert any("has no bounds" in remark.text and "PROCESS" in remark.text for remark in remarks)


def test_a_privilege_that_is_revoked_ends_the_bounds(scene: Scene, account: Callable[[str], str]) -> None:
    user = account("demoted")
    scene.run(f"GRANT PROCESS ON *.* TO '{user}'@'%'")
    store = scene.worker(NEVER_FROM_START, user=user)
    scene.insert()
    scene.deliver(store)
    scene.advance(store)
    assert min(scene.bounds(store)) > 0
    scene.run(f"REVOKE PROCESS ON *.* FROM '{user}'@'%'")
    store.engine.dispose()
    scene.insert()
    scene.deliver(store)
    with pytest.raises(StoreUnavailable, match="PROCESS"):
        scene.advance(store)
    assert scene.bounds(store) == [0, 0]
    item = scene.insert()
    scene.advance(store)
    assert scene.deliver(store) == [item]
    assert scene.bounds(store) == [0, 0]


def test_where_replication_writes_there_are_no_bounds(scene: Scene, account: Callable[[str], str]) -> None:
    """MariaDB lists the threads that apply what another server wrote under this name, also while they wait."""
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    replication = scene.connection(user=account("system user"))
    scene.insert()
    scene.deliver()
    scene.advance()
    assert scene.bounds() == [0, 0]
    assert set(scene.sight().writers()) == {RENAMED}
    replication.close()


@pytest.mark.parametrize(
    "change",
    [
        f"ALTER TABLE {TABLE} ENGINE = Aria",
        f"ALTER TABLE {TABLE} MODIFY id bigint NOT NULL DEFAULT (UUID_SHORT()), ADD n bigint NOT NULL AUTO_INCREMENT UNIQUE",
        f"ALTER TABLE {TABLE} DROP INDEX ix_{TABLE}_status",
    ],
    ids=["another engine", "ids that are not counted", "no index"],
)
def test_where_ids_do_not_ascend_or_no_index_serves_the_look_no_bound_is_used(scene: Scene, change: str) -> None:
    scene.run(change)
    scene.insert()
    assert len(scene.deliver()) == 1
    scene.advance()
    assert scene.bounds() == [0, 0]


@pytest.mark.parametrize("change", ["PARTITION BY HASH (id) PARTITIONS 2", "ENGINE = Aria"])
def test_a_table_that_is_changed_while_bounds_are_used_so_that_none_would_be_safe_has_none(
    scene: Scene, change: str
) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    scene.run(f"ALTER TABLE {TABLE} DROP INDEX ux_{TABLE}_dedup")  # each unique key of a partitioned table needs the id
    scene.run(f"ALTER TABLE {TABLE} {change}")
    scene.deliver_and_advance()
    assert scene.bounds() == [0, 0]


def test_under_strict_order_of_buckets_there_are_no_bounds(mysql_url: str) -> None:
    with closing(Scene(mysql_url, make_box(StrictOrder.BUCKET))) as scene:
        scene.deliver_and_advance()
        assert scene.bounds() == [0, 0]


# ── what is spared ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("writes", [False, True], ids=["that reads", "that has written elsewhere"])
@pytest.mark.parametrize("asked", ["outlook", "poll", "claim", "pending"])
def test_beside_an_old_snapshot_nothing_walks_over_what_was_delivered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, asked: str, writes: bool
) -> None:
    """Each dead entry is dearer beside a transaction that has written: others must look up the row's versions."""
    old = scene.connection()
    scene.run("CREATE TABLE elsewhere (id int)")
    scene.run("START TRANSACTION WITH CONSISTENT SNAPSHOT", on=old)
    scene.run("INSERT INTO elsewhere VALUES (1)" if writes else f"SELECT COUNT(*) FROM {TABLE}", on=old)
    columns = "uuid, event_key, bucket, payload"
    scene.run(f"INSERT INTO {TABLE} ({columns}) SELECT UUID(), 'k', seq MOD 2, 'x' FROM seq_1_to_40000")
    scene.run(f"UPDATE {TABLE} SET status = {Status.DELIVERED:d}")
    scene.store._bounds.of(scene.box).claimed(1)
    scene.advance()
    assert min(scene.bounds()) >= 40_000
    new = scene.insert(bucket=1)  # a living entry would end the walk of the bucket before it
    ask: dict[str, Callable[[SqlStore], bool]] = {
        "outlook": lambda store: store.outlook(scene.box, [0, 1]).due == [1],
        "poll": lambda store: [row.id for row in store.poll(scene.box, [0, 1], 10)] == [new],
        "claim": lambda store: claimed(store, scene.box) == [new],
        "pending": lambda store: store.pending([scene.box]) == {scene.box.name},
    }
    statements: list[str] = []
    query = pymysql.cursors.Cursor._query  # type: ignore[attr-defined]

    def listen(self: Any, text: Any) -> Any:
        statements.append(text if isinstance(text, str) else bytes(text).decode())
        return query(self, text)

    walked = {}
    for name, store in (("from the start", scene.worker(NEVER_FROM_START)), ("behind the bound", scene.store)):
        store.table(scene.box)
        with monkeypatch.context() as patch:
            patch.setattr(pymysql.cursors.Cursor, "_query", listen)
            statements.clear()
            assert ask[asked](store)
        about = [each for each in statements if f"{TABLE}`" in each or f".{TABLE} " in each]
        walked[name] = sum(pages(scene, each) for each in about if each.lstrip("(").startswith("SELECT"))
    assert 0 < walked["behind the bound"] <= 10
    assert walked["from the start"] > (20_000 if writes else 40)


def claimed(store: SqlStore, box: Box) -> list[int]:
    with store.plain_claims(box).open({0: None, 1: None}, 100) as claim:
        return [item.id for item in claim.items]


def pages(scene: Scene, statement: str) -> int:
    """How many pages of indexes and tables the server reads for it."""
    plain = statement.replace("FOR UPDATE NOWAIT", "").replace("FOR UPDATE", "")
    ((analysis,),) = scene.run(f"ANALYZE FORMAT=JSON {plain}")
    return sum(map(int, re.findall(r'"pages_accessed": (\d+)', analysis)))
