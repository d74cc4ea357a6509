"""Passwords and accounts change while a worker runs; each new connection logs in with what is in force."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from redis import Redis

from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.adapters.system import SystemClock
from boxengine.app.servers.database import connect_store
from boxengine.app.servers.passwords import database_password
from boxengine.app.servers.redis import redis_client
from boxengine.domain.box import Box, BoxType
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.settings import Settings
from tests.cli.project import Project
from tests.eventually import eventually
from tests.servers.sentinel import MASTER, EmbeddedSentinel

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
FIRST, SECOND = "hunter-first-7x9", "hunter-second-7x9"
INSERT = "INSERT INTO order_outbox_items (uuid, event_key, bucket, payload) VALUES ('{}', 'k', 1, 'x')"


class Guarded:
    """A PostgreSQL that asks for passwords, except for its administrator's."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        hba = server.data_dir / "pg_hba.conf"
        hba.write_text("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        self.admin = psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True)
        self.run("CREATE ROLE nobody LOGIN", "SELECT pg_reload_conf()")
        self._url = server.url()
        eventually(self._asks)

    def _asks(self) -> bool:
        """Whether the server has read its rules anew."""
        try:
            psycopg.connect(self.url("nobody").replace("+psycopg", "")).close()
        except psycopg.OperationalError as error:
            return "no password supplied" in str(error)
        return False

    def url(self, user: str) -> str:
        return self._url.replace("postgres@", f"{user}@")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.admin.execute(statement)

    def account(self, name: str, password: str) -> None:
        self.run(
            f"CREATE ROLE {name} LOGIN PASSWORD '{password}'",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}",
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}",
            f"GRANT ALL ON SCHEMA public TO {name}",
        )

    def end_connections(self) -> None:
        self.run(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def guarded(own_postgres: EmbeddedPostgres) -> Iterator[Guarded]:
    server = Guarded(own_postgres)
    yield server
    server.admin.close()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A user's module, whose name no other test has."""
    made = ModuleType(f"vault_{uuid4().hex}")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def set_password(admin: Redis, password: str) -> None:
    """Of the account ``worker``, which it makes."""
    everything: dict[str, Any] = {"keys": "*", "channels": "*", "categories": ["+@all"]}
    admin.acl_setuser("worker", enabled=True, reset_passwords=True, passwords=[f"+{password}"], **everything)


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


# ── a whole worker ───────────────────────────────────────────────────────────────────────────────────


def test_a_worker_goes_on_once_the_files_hold_the_new_passwords(
    tmp_path: Path, guarded: Guarded, own_redis: EmbeddedValkey
) -> None:
    """Its sessions, its listener and its connections to Redis are ended, and the files are a while behind the servers."""
    with Redis.from_url(own_redis.url()) as admin:
        project = Project(tmp_path, database=guarded.url("postgres"), redis=own_redis.url(), more="poller: {}")
        project.call("db", "create")
        guarded.account("worker", FIRST)
        set_password(admin, FIRST)
        database, redis = tmp_path / "database", tmp_path / "redis"
        for file in (database, redis):
            file.write_text(f"{FIRST}\n")
        text = project.config.read_text()
        text = text.replace("postgres@", "worker@").replace("redis://", "redis://worker@")
        text = text.replace('"}\nredis:', f'", password_file: {database}}}\nredis:')
        text = text.replace('"}\nprobes:', f'", password_file: {redis}}}\nprobes:')
        project.config.write_text(text)
        with project.worker() as worker:
            guarded.run(INSERT.format(uuid4()))
            eventually(lambda: len(project.deliveries()) == 1)
            guarded.run(f"ALTER ROLE worker PASSWORD '{SECOND}'", INSERT.format(uuid4()))
            set_password(admin, SECOND)
            guarded.end_connections()
            admin.client_kill_filter(user="worker")
            eventually(lambda: worker.logged("password authentication failed"))
            eventually(lambda: worker.logged("invalid username-password pair"))
            for file in (database, redis):
                file.write_text(f"{SECOND}\n")
            eventually(lambda: len(project.deliveries()) == 2)
            eventually(lambda: worker.logged("listener works again"))
            assert len(worker.logged("listener does not work")) == 1
            assert worker.stop() == 0
            assert "hunter-" not in worker.log.read_text()


# ── the database ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["password_file", "password_from"])
def test_new_connections_to_postgresql_log_in_with_the_password_in_force(
    tmp_path: Path, guarded: Guarded, module: ModuleType, key: str
) -> None:
    guarded.account("worker", FIRST)
    change, value = place(tmp_path, module, key)
    change(FIRST)
    database = {"url": guarded.url("worker"), key: value}
    alter = "ALTER ROLE worker PASSWORD '{}'"
    assert_follows(settings(database=database), change, lambda password: guarded.run(alter.format(password)))


@pytest.mark.parametrize("key", ["password_file", "password_from"])
def test_new_connections_to_mariadb_log_in_with_the_password_in_force(
    tmp_path: Path, mysql_url: str, module: ModuleType, key: str
) -> None:
    name, address = f"w{uuid4().hex[:8]}", sa.make_url(mysql_url)
    admin = sa.create_engine(mysql_url, isolation_level="AUTOCOMMIT")

    def run(statement: str) -> None:
        with admin.connect() as connection:
            connection.exec_driver_sql(statement)

    run(f"CREATE USER '{name}'@'%%' IDENTIFIED BY '{FIRST}'")
    run(f"GRANT ALL ON {address.database}.* TO '{name}'@'%%'")
    change, value = place(tmp_path, module, key)
    change(FIRST)
    database = {"url": address.set(username=name).render_as_string(hide_password=False), key: value}
    try:
        assert_follows(
            settings(database=database),
            change,
            lambda password: run(f"ALTER USER '{name}'@'%%' IDENTIFIED BY '{password}'"),
        )
    finally:
        run(f"DROP USER '{name}'@'%%'")
        admin.dispose()


def make_table(guarded: Guarded) -> None:
    store = connect_store(settings(database={"url": guarded.url("postgres")}))
    schema.create(store.engine, [BOX])
    store.close()


def place(folder: Path, module: Any, key: str) -> tuple[Callable[[str], object], str]:
    """What changes the password there, and the key's value."""
    if key == "password_file":
        file = folder / "password"
        return lambda password: file.write_text(f"{password}\n"), str(file)
    module.password = lambda: module.current
    return lambda password: setattr(module, "current", password), f"{module.__name__}.password"


def assert_follows(chosen: Settings, change: Callable[[str], object], change_in_server: Callable[[str], None]) -> None:
    store = connect_store(chosen)
    try:
        store.ping()
        change_in_server(SECOND)
        store.ping()  # over the connection that is open
        store.engine.dispose()
        with pytest.raises(StoreUnavailable, match=r"password authentication failed|Access denied") as caught:
            store.ping()
        assert "hunter-" not in str(caught.value)
        change(SECOND)
        store.ping()
    finally:
        store.close()


def test_connections_of_an_account_that_was_dropped_are_replaced_by_those_of_the_next_one(
    guarded: Guarded, module: Any
) -> None:
    """As at the end of a lease of Vault's: the sessions of the old account live on, without any privilege."""
    make_table(guarded)
    guarded.account("lease_1", FIRST)
    module.login, module.lease = lambda: module.lease, ("lease_1", FIRST)
    store = connect_store(settings(database={"url": guarded.url(""), "password_from": f"{module.__name__}.login"}))
    try:
        assert store.poll(BOX, [0], 10) == []
        store.ping()
        guarded.account("lease_2", SECOND)
        module.lease = ("lease_2", SECOND)
        guarded.run("DROP OWNED BY lease_1", "DROP ROLE lease_1")
        assert store.poll(BOX, [0], 10) == []
        # Of a handler's statement, the error stays what it is.
        for outcome in (pytest.raises(sa.exc.ProgrammingError, match="permission denied"), nullcontext()):
            with outcome, store.engine.connect() as connection:
                connection.exec_driver_sql("SELECT * FROM order_outbox_items")
    finally:
        store.close()


@pytest.mark.parametrize("own", [True, False])
def test_a_replica_and_a_listener_log_in_likewise_unless_their_urls_have_passwords(
    tmp_path: Path, guarded: Guarded, own: bool
) -> None:
    make_table(guarded)
    guarded.account("worker", FIRST)
    guarded.account("other", SECOND)
    (tmp_path / "password").write_text(FIRST)
    url = guarded.url(f"other:{SECOND}" if own else "worker")
    database = {
        "url": guarded.url("worker"),
        "replica_url": url,
        "listen_url": url,
        "password_file": str(tmp_path / "password"),
    }
    chosen = settings(database=database)
    store = connect_store(chosen)
    wakeups = PostgresWakeups(store.engine, listen_url=url, password=database_password(chosen, url))
    users = "SELECT usename FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    try:
        wakeups.wait(timedelta(0))
        assert store.poll(BOX, [0], 10) == []
        connected = [name for (name,) in guarded.admin.execute(users)]
        assert connected.count("other") == (2 if own else 0)
        assert wakeups.reliable
    finally:
        wakeups.close()
        store.close()


def test_a_function_that_raises_is_an_outage_of_which_it_is_told(postgres_url: str, module: Any) -> None:
    def login() -> str:
        raise TimeoutError("no answer from vault")

    module.login = login
    store = connect_store(settings(database={"url": postgres_url, "password_from": f"{module.__name__}.login"}))
    expected = (
        rf"the database: database.password_from: {module.__name__}.login raised TimeoutError: no answer from vault"
    )
    with pytest.raises(StoreUnavailable, match=expected):
        store.ping()
    store.close()


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def guarded_redis(own_redis: EmbeddedValkey) -> Iterator[Redis]:
    with Redis.from_url(own_redis.url()) as admin:
        yield admin


@pytest.mark.parametrize("key", ["password_file", "password_from"])
def test_new_connections_to_redis_log_in_with_the_password_in_force(
    tmp_path: Path, own_redis: EmbeddedValkey, guarded_redis: Redis, module: ModuleType, key: str
) -> None:
    change, value = place(tmp_path, module, key)
    url = own_redis.url().replace("redis://", "redis://worker@")
    assert_redis_follows(settings(redis={"url": url, key: value}), guarded_redis, change)


@pytest.fixture
def sentinel(tmp_path: Path, own_redis: EmbeddedValkey) -> Iterator[EmbeddedSentinel]:
    with EmbeddedSentinel(tmp_path / "sentinel") as server:
        server.name(own_redis)
        yield server


def test_so_do_those_to_the_master_behind_a_sentinel(
    tmp_path: Path, sentinel: EmbeddedSentinel, guarded_redis: Redis, module: ModuleType
) -> None:
    change, value = place(tmp_path, module, "password_file")
    behind = {"sentinels": [f"127.0.0.1:{sentinel.port}"], "master_name": MASTER, "username": "worker"}
    assert_redis_follows(settings(redis={**behind, "password_file": value}), guarded_redis, change)


def assert_redis_follows(chosen: Settings, admin: Redis, change: Callable[[str], object]) -> None:
    set_password(admin, FIRST)
    change(FIRST)
    with redis_client(chosen) as client:
        queue = RedisJobQueue(client, clock=SystemClock())
        queue.ping()
        set_password(admin, SECOND)
        admin.client_kill_filter(user="worker")
        eventually(lambda: refused(queue, "invalid username-password pair"))
        change(SECOND)
        queue.ping()


def refused(queue: RedisJobQueue, reason: str) -> bool:
    """Connections that were open are told first that the server has closed them."""
    with pytest.raises(QueueUnavailable) as caught:
        queue.ping()
    assert "hunter-" not in str(caught.value)
    return reason in str(caught.value)


def test_without_a_password_no_connection_to_redis_is_used(tmp_path: Path, own_redis: EmbeddedValkey) -> None:
    """One that was made, and is used without a login, would be refused for another reason."""
    file = tmp_path / "password"
    with redis_client(settings(redis={"url": own_redis.url(), "password_file": str(file)})) as client:
        queue = RedisJobQueue(client, clock=SystemClock())
        for _ in range(2):
            with pytest.raises(
                QueueUnavailable, match=f"^Redis: redis.password_file: cannot read {file}: No such file"
            ):
                queue.ping()
