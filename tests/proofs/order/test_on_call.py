"""Items that were taken for deadly are sent again, and no others are forgiven."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import load
from boxengine.domain.box import Storage
from boxengine.engine.delivering.care import ENDED
from tests.chaos.snapshot import REPOSITORY
from tests.proofs.order.on_call import OnCall
from tests.proofs.order.play import configuration


@pytest.fixture
def engine(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Engine]:
    """A database with the proof's box; its configuration is in ``tmp_path``."""
    path = tmp_path / "outbox.yml"
    path.write_text(configuration(postgres_url, redis_url, tmp_path / "record", Storage.LOG))
    engine = create_engine(postgres_url)
    schema.create(engine, [pipeline.box for pipeline in load(path).resolved.pipelines.values()])
    yield engine
    engine.dispose()


@pytest.mark.parametrize("reason", [ENDED.reason, "refused"])
def test_failed_items_are_sent_again_and_another_reason_is_told(engine: Engine, tmp_path: Path, reason: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO proof_outbox_items (id, uuid, event_key, bucket, payload, status, errors_count, error_log) "
                "VALUES (1, gen_random_uuid(), 'k', 0, 'x', 1, 1, :log)"
            ),
            {"log": f"worker: {reason}"},
        )
    on_call = OnCall(tmp_path, REPOSITORY)
    assert on_call.send_again() == 1
    assert on_call.problems == ([] if reason == ENDED.reason else ["item 1 failed: worker: refused"])
    with engine.connect() as connection:
        assert connection.execute(text("SELECT status FROM proof_outbox_items")).scalars().all() == [0]
    assert on_call.send_again() == 0
