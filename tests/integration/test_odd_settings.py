"""A database whose settings change the form of dates, arrays and names."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.domain.item import Item, Status
from tests.integration.engine.rig import Rig
from tests.servers.databases import with_setting


@pytest.fixture(params=["datestyle=German", "array_nulls=off", "quote_all_identifiers=on"])
def odd(request: pytest.FixtureRequest, postgres_url: str) -> str:
    return with_setting(postgres_url, request.param)


@pytest.mark.parametrize("storage", ["table", "log"])
def test_a_worker_delivers_and_cleans_up_there(tmp_path: Path, odd: str, redis_url: str, storage: str) -> None:
    def handle(_item: Item, _payload: bytes, *, session: Session) -> None:
        session.execute(text("SELECT 1"))

    with Rig(tmp_path, database=odd, redis=redis_url, box={"storage": storage}) as rig:
        rig.create_tables()
        rig.carry(handle)
        with rig.worker() as watcher:
            for number in (1, 2, 3):
                rig.create("k")
                watcher.wait_for_settled(number)
        assert watcher.outages == []
        tried = rig.insert(status=Status.FAILED)
        store = SqlStore(rig.engine)
        assert store.oldest_finished(rig.box(), [Status.FAILED]) == rig.row(tried).created_at
