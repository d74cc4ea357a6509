"""Two databases with boxes of the same names on one Redis take each other's jobs: workers and the doctor say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boxengine.app.checking.doctor import Doctor
from boxengine.app.servers.connected import connect as connect_servers
from tests.conftest import ServerLookup
from tests.eventually import eventually
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_MARIADB, ON_POSTGRESQL, MakeRig, rigs
from tests.integration.engine.watcher import Watcher
from tests.servers.databases import fresh_postgres_database


@contextmanager
def elsewhere(folder: Path, lookup: ServerLookup, redis: str, **config: object) -> Iterator[Rig]:
    """The same configuration with a database of its own."""
    with (
        fresh_postgres_database(lookup("postgres").address) as url,
        rigs(folder, database=url, redis=redis) as make,
    ):
        yield make(**config)


def told(watcher: Watcher) -> list[tuple[int, list[str]]]:
    """The process of each worker that was reported, and the names."""
    return [(each.worker.pid, list(each.boxes)) for each in watcher.mixed_up]


def findings(rig: Rig) -> list[str]:
    connected = connect_servers(rig.boxes.resolved.settings)
    try:
        return [each.text for each in Doctor(rig.boxes, connected).look() if "same names" in each.text]
    finally:
        connected.close()


@ON_POSTGRESQL
def test_a_worker_and_the_doctor_say_who_uses_the_same_names_in_another_database(
    make_rig: MakeRig, tmp_path: Path, redis_url: str, server_lookup: ServerLookup
) -> None:
    own = make_rig()
    (tmp_path / "other").mkdir()
    with own.worker(), elsewhere(tmp_path / "other", server_lookup, redis_url) as other:
        (found,) = eventually(lambda: findings(other))
        assert f"for boxes of the same names in another database: {BOX}." in found
        assert findings(own) == [], "its own worker is in the same database"
        with other.worker() as second:
            second.wait_for(lambda: bool(second.mixed_up))
        assert told(second) == [(os.getpid(), [BOX])]


@ON_POSTGRESQL
def test_with_a_prefix_of_its_own_each_database_is_alone(
    make_rig: MakeRig, tmp_path: Path, redis_url: str, server_lookup: ServerLookup
) -> None:
    own = make_rig()
    (tmp_path / "other").mkdir()
    coordinator = {"prefix": "other:"}
    with own.worker(), elsewhere(tmp_path / "other", server_lookup, redis_url, coordinator=coordinator) as other:
        with other.worker() as second:
            other.insert()
            second.wait_for_settled(1)
            assert findings(other) == []
        assert told(second) == []


@ON_MARIADB
def test_a_database_that_nothing_tells_from_others_is_not_reported(make_rig: MakeRig) -> None:
    rig = make_rig()
    connected = connect_servers(rig.boxes.resolved.settings)
    try:
        assert connected.store.identity() is None
    finally:
        connected.close()
    with rig.worker():
        assert findings(rig) == []
