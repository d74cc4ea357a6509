"""The grants that docs/security.md names: they are enough, and less is not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from boxengine import ItemAttributes
from boxengine.adapters.sql.making import checks
from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.app.servers import database
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Status
from boxengine.domain.outcome import Settlement
from boxengine.embedded import EmbeddedValkey
from boxengine.engine.item_actions import Action, ItemActions
from boxengine.errors import StoreUnavailable
from boxengine.ports import ItemFilter
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.rig import BOX, Rig

INBOX = "payment_inbox_item"
TABLES = ("order_outbox_items", "payment_inbox_items")
TABLE, INBOX_TABLE = TABLES
DENIED = "denied"
CONFIG: dict[str, Any] = {
    "outbox_items": {
        BOX: {"max_retries": 1, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1, "strict_order": "key"}
    },
    "inbox_items": {INBOX: {}},
    "wakeup": "notify",
}
WORKER = {"SELECT", "UPDATE", "DELETE"}
USAGE = "USAGE"
"""Of the table's sequence; MySQL has none."""


class Account(Rig):
    """What an account sees of the installation."""

    def __init__(self, folder: Path, *, account: str, **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, **options)
        self.account = account


class Site:
    """A database whose owner has made the tables, and accounts that have only what they were granted."""

    def __init__(self, folder: Path, *, owner_url: str, redis: str, stack: ExitStack) -> None:
        self._folder, self._redis, self._stack = folder, redis, stack
        self._owner_url = sa.make_url(owner_url)
        self.mysql = self._owner_url.get_backend_name() == "mysql"
        self.owner = self.rig(folder)
        self.owner.create_tables()

    def account(self, *grants: str, tables: tuple[str, ...] = TABLES, **config: Any) -> Account:
        """A new account with these grants on the tables."""
        name = f"r_{uuid.uuid4().hex[:12]}"
        who = f"'{name}'@'%'" if self.mysql else name
        self.owner.execute(f"CREATE USER {who}")
        self._stack.callback(self._drop, who)
        for table in tables:
            for grant in grants:
                if grant != USAGE:
                    self.owner.execute(f"GRANT {grant} ON {table} TO {who}")
                elif not self.mysql:
                    self.owner.execute(f"GRANT USAGE ON SEQUENCE {table}_id_seq TO {who}")
        return self.rig(self._folder / name, user=name, account=who, **config)

    def rig(self, folder: Path, *, user: str | None = None, account: str = "", **config: Any) -> Account:
        """The installation with the eyes of a user; the owner's by default."""
        url = self._owner_url.set(username=user) if user else self._owner_url
        address = url.render_as_string(hide_password=False)
        opened = Account(folder, account=account, database=address, redis=self._redis, **{**CONFIG, **config})
        return self._stack.enter_context(opened)

    def _drop(self, who: str) -> None:
        if not self.mysql:
            self.owner.execute(f"DROP OWNED BY {who}")
        self.owner.execute(f"DROP USER {who}")


@pytest.fixture(params=["postgres_url", "mysql_url"])
def site(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, owner_url=request.getfixturevalue(request.param), redis=redis_url, stack=stack)


def allowed(do: Callable[[], object]) -> bool:
    """Whether it goes through; anything but a denial fails the test."""
    try:
        do()
    except (DBAPIError, StoreUnavailable) as error:
        if DENIED not in str(error):
            raise
        return False
    return True


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_may_select_update_and_delete_delivers_retries_and_is_woken(site: Site) -> None:
    rig = site.account(*WORKER)
    receiver = Receiver(FailsFirst(1, guilty=lambda item: item.id % 5 == 0))
    rig.carry(receiver)
    with rig.worker() as watcher:
        ids = site.owner.create(*range(50))
        watcher.wait_for(lambda: len(watcher.delivered) == 50)
    assert sorted(set(receiver.ids)) == ids
    assert watcher.outages == []
    assert set(site.owner.statuses()) == {Status.DELIVERED}


def test_with_the_same_grants_people_look_at_items_and_retry_discard_delete_and_clean_up(site: Site) -> None:
    rig, (kept, tried, gone) = site.account(*WORKER), site.owner.create(1, 2, 3)
    site.owner.execute(f"UPDATE {TABLE} SET status = 1, errors_count = 2 WHERE id IN ({tried}, {gone})")
    connected = connect_servers(rig.boxes.resolved.settings)
    actions, box, now = ItemActions(connected.items, connected.memory), rig.box(), datetime.now(UTC)
    assert actions.run(box, Action.RETRY, ItemFilter(ids=(tried,))).changed == 1
    assert actions.run(box, Action.DISCARD, ItemFilter(ids=(tried,))).changed == 1
    assert actions.run(box, Action.DELETE, ItemFilter(ids=(gone,))).changed == 1
    assert [row.id for row in connected.items.page(box, ItemFilter(), after=0, limit=10)] == [kept, tried]
    assert connected.store.counts(box) == {Status.PENDING: 1, Status.DISCARDED: 1}
    assert connected.store.oldest_pending(box) is not None
    span = {"created_from": now - timedelta(days=1), "created_before": now + timedelta(days=1)}
    assert connected.store.delete_finished(box, [Status.DISCARDED], limit=10, **span) == 1
    connected.close()


def test_db_check_needs_no_more_than_the_worker_has(site: Site) -> None:
    rig = site.account(*WORKER)
    assert checks.check(rig.engine, [rig.box(), rig.box(INBOX)]) == []


@pytest.mark.parametrize("missing", sorted(WORKER))
def test_each_of_the_workers_grants_is_needed(site: Site, missing: str) -> None:
    (item_id,) = site.owner.create(1)
    rig = site.account(*WORKER - {missing})
    store, box, now = database.connect_store(rig.boxes.resolved.settings), rig.box(), datetime.now(UTC)

    def deliver() -> None:
        with store.claims(box).open(dict.fromkeys(box.buckets), 10) as claim:
            claim.commit(Settlement(delivered=[item_id]))

    def clean_up() -> None:
        span = {"created_from": now - timedelta(days=1), "created_before": now + timedelta(days=1)}
        store.delete_finished(box, [Status.DELIVERED], limit=10, **span)

    assert (allowed(deliver) and allowed(clean_up)) is False
    store.close()


def test_the_worker_can_neither_write_items_nor_change_tables(site: Site) -> None:
    rig = site.account(*WORKER)
    assert not allowed(lambda: rig.create("a"))
    with pytest.raises(DBAPIError, match=r"denied|must be owner"):
        rig.execute(f"ALTER TABLE {TABLE} ADD COLUMN x int")


# ── the application ──────────────────────────────────────────────────────────────────────────────────


def writes(rig: Rig, **attributes: Any) -> bool:
    """Whether one item, a few and many can be written."""
    return all(allowed(partial(rig.create, *range(count), **attributes)) for count in (1, 20, 100))


def test_an_application_that_may_insert_and_read_its_ids_writes_items_and_nothing_more(site: Site) -> None:
    # MariaDB's INSERT ... RETURNING wants to read every column that it writes.
    rig = site.account("INSERT", "SELECT" if site.mysql else "SELECT (id)", USAGE)
    assert writes(rig)
    assert site.owner.statuses() == [Status.PENDING] * 121
    for statement in (f"UPDATE {TABLE} SET status = 2", f"DELETE FROM {TABLE}"):
        assert not allowed(partial(rig.execute, statement))
    assert site.mysql or not allowed(lambda: rig.ask(f"SELECT payload FROM {TABLE}"))


def test_single_items_need_no_more_than_insert_on_mariadb(site: Site) -> None:
    rig = site.account("INSERT", USAGE)
    assert allowed(lambda: rig.create(1)) == site.mysql


def test_items_that_are_known_by_a_key_need_that_column_too(site: Site) -> None:
    enough = ("SELECT, UPDATE",) if site.mysql else ("SELECT (id, dedup_key)",)
    rig = site.account("INSERT", *enough, USAGE)
    ids = rig.create("a", dedup_key="k")
    assert rig.create("a", dedup_key="k") == ids
    less = site.account("INSERT", "SELECT" if site.mysql else "SELECT (id)", USAGE)
    assert not allowed(lambda: less.create("a", dedup_key="k"))


@pytest.mark.parametrize("missing", [USAGE, "INSERT"])
def test_each_of_the_applications_grants_is_needed(site: Site, missing: str) -> None:
    rig = site.account(*{"INSERT", "SELECT (id)", USAGE} - {missing})
    assert allowed(lambda: rig.create(1)) == (site.mysql and missing == USAGE)


def test_gapless_numbers_need_grants_on_the_table_that_counts_them(tmp_path: Path, site: Site) -> None:
    boxes = {"numbered_item": {"sequence": True, "table": "numbered"}}
    owner = site.rig(tmp_path / "owner", outbox_items=boxes)
    owner.create_tables()
    own = ("INSERT", "SELECT" if site.mysql else "SELECT (id)", USAGE)
    rig = site.account(*own, tables=("numbered",), outbox_items=boxes)
    assert not allowed(lambda: rig.create("a", box="numbered_item"))
    owner.execute(f"GRANT INSERT, SELECT, UPDATE ON numbered_seqs TO {rig.account}")
    assert [rig.create("a", box="numbered_item") for _ in range(3)]
    assert [row.seq for row in owner.ask("SELECT seq FROM numbered ORDER BY id")] == [1, 2, 3]


@pytest.mark.parametrize("granted", [", processed_at", ""], ids=["as documented", "without a moment"])
def test_a_consumer_stores_messages_once_with_its_grants_on_the_inbox(site: Site, granted: str) -> None:
    own = "SELECT, UPDATE" if site.mysql else f"SELECT, UPDATE (status, error_log, errors_count{granted})"
    rig = site.account("INSERT", own, USAGE, tables=(INBOX_TABLE,))
    store = database.connect_store(rig.boxes.resolved.settings)
    inbox, box = SqlInbox(store), rig.box(INBOX)
    assert "dedup_key" in inbox.columns(box)
    message: ItemAttributes = {"event_key": "a", "payload": b"{}", "dedup_key": "k", "uuid": str(uuid.uuid4())}
    with inbox.transaction(box) as transaction, transaction.savepoint():
        ids = [rig.boxes.create_inbox_item(transaction.session, INBOX, **message) for _ in range(2)]
        transaction.reject(ids[0], "for a test")
    assert ids[0] == ids[1]
    assert site.owner.statuses(INBOX) == [Status.FAILED]
    store.close()


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_account_of_redis_in_the_docs_is_enough_for_worker_and_wake_ups(
    tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("ACL SETUSER "))
    with redis.Redis.from_url(own_redis.url()) as admin:
        admin.execute_command(*command.replace(">SECRET", ">abc").split())
    url = own_redis.url().replace("redis://", "redis://worker:abc@")
    with Rig(tmp_path, database=postgres_url, redis=url, wakeup="redis") as rig:
        rig.create_tables()
        rig.carry(Receiver())
        with rig.worker() as watcher:
            rig.create(*range(10))
            watcher.wait_for_settled(10)
        assert watcher.outages == []
        connected = connect_servers(rig.boxes.resolved.settings)
        connected.pauses.set(rig.box(), polling_enabled=False)
        assert connected.pauses.polling_enabled([rig.box()]) == {BOX: False}
        connected.memory.forget(rig.box(), [1])
        assert connected.workers.living() == []
        connected.close()
    with redis.Redis.from_url(url) as account, pytest.raises(redis.exceptions.NoPermissionError):
        account.set("somebody:else", "x")
