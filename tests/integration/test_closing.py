"""What a worker held open on its servers is closed once it has stopped."""

from __future__ import annotations

import gc
import threading
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import redis

from boxengine.adapters.redis.connection import connect as connect_redis
from boxengine.app.servers.connected import Servers
from boxengine.cli.context import connect
from boxengine.domain.box import BoxType
from boxengine.engine.polling import listener
from boxengine.errors import BoxError
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.engine.rig import Rig
from tests.integration.engine.watcher import Watcher
from tests.servers.databases import numbered

NOW = timedelta(seconds=0.01)
OF_THIS_FILE = 7
"""How far this file's logical database is from the other tests': what they leave open is not counted here."""


@pytest.fixture
def redis_url(redis_url: str) -> str:
    url = numbered(redis_url, OF_THIS_FILE)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


def connected(project: Project, redis_url: str) -> Servers:
    """Servers with a connection open of each kind."""
    opened = connect(project.boxes())
    assert opened.wakeups is not None
    opened.wakeups.wait(NOW)
    opened.store.ping()
    opened.queue.ping()
    assert open_at_redis(redis_url) > 0
    assert open_at_postgres(project) > 0
    return opened


def test_all_connections_to_database_and_redis_are_closed(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    connected(project, redis_url).close()
    eventually(lambda: open_at_redis(redis_url) == 0)
    eventually(lambda: open_at_postgres(project) == 0)


def test_a_connection_that_fails_to_close_leaves_no_other_open(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise BoxError("no")

    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    opened = connected(project, redis_url)
    # The test keeps the listener's own connection, which would be open still.
    monkeypatch.setattr(opened.wakeups, "close", fail)
    with pytest.raises(BoxError):
        opened.close()
    eventually(lambda: open_at_redis(redis_url) == 0)
    monkeypatch.undo()
    opened.close()


def test_a_configuration_that_is_given_up_leaves_no_connection_to_redis(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more="wakeup: redis")
    project.call("db", "create")
    boxes = project.boxes()
    creator = boxes.creator("order_outbox_item", BoxType.OUTBOX)  # keeps the client, which would close it in the end
    with project.engine() as engine, engine.begin() as connection:
        creator.create(connection, {"event_key": 1, "payload": b""})
    for thread in threading.enumerate():
        if thread.name == "boxengine-announcer":
            thread.join()
    assert open_at_redis(redis_url) == 1
    del boxes
    gc.collect()
    eventually(lambda: open_at_redis(redis_url) == 0)
    del creator


def test_a_client_of_redis_that_is_closed_leaves_no_connection_to_the_garbage_collector(redis_url: str) -> None:
    client = connect_redis(redis_url)
    client.ping()
    assert open_at_redis(redis_url) == 1
    client.close()
    eventually(lambda: open_at_redis(redis_url) == 0)


def open_at_redis(url: str) -> int:
    """How many clients are in the URL's logical database. The server takes a moment to notice that one has gone."""
    with redis.Redis.from_url(url) as client:
        own = str(client.connection_pool.connection_kwargs["db"])
        return sum(each["name"] == "boxengine" and each["db"] == own for each in client.client_list())


def open_at_postgres(project: Project) -> int:
    """Its servers take a moment to notice that their client has gone."""
    with psycopg.connect(project.database.replace("+psycopg", ""), autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'boxengine' AND datname = current_database()"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("wakeup", ["notify", "redis"])
def test_no_listener_delays_a_stop(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, wakeup: str
) -> None:
    monkeypatch.setattr(listener, "WAIT", timedelta(minutes=1))
    with Rig(tmp_path, database=postgres_url, redis=redis_url, wakeup=wakeup) as rig:
        rig.create_tables()
        for _ in range(2):  # the second stop may find the listener elsewhere
            worker = rig.assemble(Watcher())
            worker.start()
            rig.create("a")
            assert worker.stop(within=timedelta(seconds=30)) == []
