"""A server may end connections that are idle: after a restart, a failover, by an administrator. That alone is no outage."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from boxengine.domain.outcome import Settlement
from boxengine.errors import StoreUnavailable
from tests.eventually import eventually

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=2)
OTHERS = {
    "postgres_url": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql_url": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
END = {"postgres_url": "SELECT pg_terminate_backend({}, 60000)", "mysql_url": "KILL CONNECTION {}"}


class Scene:
    """A store with two items, one in each bucket, and an administrator."""

    def __init__(self, server: str, url: str) -> None:
        self._server = server
        self._admin = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        self.engine, self.looks = connect(url, connections=1), connect(url, connections=1)
        self.store = SqlStore(self.engine, looks=self.looks)
        schema.create(self.engine, [BOX])
        with self._admin.connect() as connection:
            for bucket in (0, 1):
                connection.exec_driver_sql(
                    "INSERT INTO order_outbox_items (uuid, event_key, bucket, payload) "
                    f"VALUES ('00000000-0000-0000-0000-00000000000{bucket}', 'k', {bucket}, 'x')"
                )
        self.store.ping()
        self.store.poll(BOX, [0, 1], 10)

    def end_connections(self) -> None:
        with self._admin.connect() as connection:
            for (number,) in connection.exec_driver_sql(OTHERS[self._server]).fetchall():
                with suppress(sa.exc.DBAPIError):
                    connection.exec_driver_sql(END[self._server].format(number))
            # MariaDB closes their sockets before it forgets them.
            eventually(lambda: not connection.exec_driver_sql(OTHERS[self._server]).fetchall())

    def close(self) -> None:
        self.store.close()
        self._admin.dispose()


@pytest.fixture(params=OTHERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    scene = Scene(request.param, request.getfixturevalue(request.param))
    yield scene
    scene.close()


def claimed(store: SqlStore, buckets: dict[int, int | None]) -> list[int]:
    """The buckets of the claimed items, whose delivery is recorded."""
    with store.claims(BOX).open(buckets, 10) as claim:
        claim.commit(Settlement(delivered=[item.id for item in claim.items]))
        return [item.bucket for item in claim.items]


@pytest.mark.parametrize("poll", [True, False], ids=["poll", "select"])
def test_the_pool_gives_away_no_ended_connection(scene: Scene, poll: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not poll:  # as on Windows
        monkeypatch.delattr(select, "poll")
        scene.store.close()
    for _ in range(3):
        with scene.engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT 1")) == 1
        scene.end_connections()
    scene.store.ping()


def test_a_message_of_the_server_to_an_idle_connection_does_not_end_it(postgres_url: str) -> None:
    engine, admin = connect(postgres_url, connections=1), connect(postgres_url, connections=1)
    listening = sa.text("SELECT pg_backend_pid()")
    with engine.begin() as connection:
        connection.execute(sa.text("LISTEN something"))
        before = connection.scalar(listening)
    with admin.begin() as connection:
        connection.execute(sa.text("NOTIFY something"))
    with engine.connect() as connection:
        assert connection.scalar(listening) == before
    engine.dispose()
    admin.dispose()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda store: [row.bucket for row in store.poll(BOX, [0, 1], 10)], [0, 1]),
        (lambda store: sorted(store.outlook(BOX, [0, 1]).due), [0, 1]),
        (lambda store: store.pending([BOX]), {BOX.name}),
    ],
    ids=["poll", "check", "survey"],
)
def test_a_question_on_an_ended_connection_is_asked_once_more(
    scene: Scene, question: Callable[[SqlStore], object], answer: object
) -> None:
    assert question(scene.store) == answer
    scene.end_connections()
    assert question(scene.store) == answer


def test_a_claim_on_an_ended_connection_is_begun_once_more(scene: Scene) -> None:
    scene.end_connections()
    assert claimed(scene.store, {0: None, 1: None}) == [0, 1]
    assert claimed(scene.store, {0: None, 1: None}) == []


def test_a_claim_that_goes_on_after_a_position_is_not(scene: Scene) -> None:
    """Another server may answer. If it gives the ids before the position once more, their items would be overtaken."""
    scene.end_connections()
    with pytest.raises(StoreUnavailable):
        claimed(scene.store, {0: None, 1: 7})


def test_what_fails_on_a_new_connection_too_is_an_outage(scene: Scene) -> None:
    attempts: list[None] = []

    def end(*_of_checkout: object) -> None:
        attempts.append(None)
        scene.end_connections()

    sa.event.listen(scene.engine, "checkout", end)
    sa.event.listen(scene.looks, "checkout", end)
    with pytest.raises(StoreUnavailable):
        claimed(scene.store, {0: None})
    with pytest.raises(StoreUnavailable):
        scene.store.poll(BOX, [0], 10)
    with pytest.raises(StoreUnavailable):
        scene.store.pending([BOX])
    assert len(attempts) == 6, "each was tried once more"
