"""Writers that overtake each other: what the worker counts while it happens, and what an audit finds afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.engine.audit.audit import Audit
from boxengine.engine.audit.table import TableAudit
from boxengine.ports.events import Event
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import Watcher


class Counting(Watcher):
    """Also counts as the worker's own metrics do."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        self._metrics = PrometheusObserver(clock=SystemClock(), partitions=1, registry=self.registry)

    def see(self, event: Event) -> None:
        super().see(event)
        self._metrics.see(event)

    @property
    def violations(self) -> float:
        labels = {"type": "outbox", "name": BOX, "owner": "", "partition": "0"}
        return self.registry.get_sample_value("outbox_order_violations_total", labels) or 0.0


@pytest.fixture(params=["postgres_url", "mysql_url"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Rig]:
    url = request.getfixturevalue(request.param)
    retries = {"max_retries": 3, "minimal_retry_interval": 0.05}
    with Rig(tmp_path, database=url, redis=redis_url, box=retries) as made:
        made.create_tables()
        yield made


def inversions(rig: Rig) -> list[tuple[str, int | None]]:
    """What an audit finds now."""
    store = SqlStore(rig.engine)
    table = TableAudit(rig.box(), store=store, items=SqlItems(store), rows=SqlAudit(store))
    return [(str(finding.kind), finding.item) for finding in Audit(table).findings()]


def test_an_item_committed_after_a_later_one_was_delivered_counts_and_is_found(rig: Rig) -> None:
    rig.carry(Receiver())
    watcher = Counting()
    with rig.worker(watcher):
        with rig.engine.begin() as slow:
            first = rig.boxes.create_outbox_item(slow, BOX, event_key="7", payload=b"{}")
            (second,) = rig.create("7")
            watcher.wait_for_settled(1)
            assert inversions(rig) == []
        watcher.wait_for_settled(2)
    assert (watcher.delivered, watcher.violations) == ([second, first], 1.0)
    assert inversions(rig) == [("inversion", first)]


def test_an_item_of_another_key_that_is_committed_late_is_nobodys_fault(rig: Rig) -> None:
    rig.carry(Receiver())
    watcher = Counting()
    with rig.worker(watcher):
        with rig.engine.begin() as slow:
            rig.boxes.create_outbox_item(slow, BOX, event_key="3", payload=b"{}")
            rig.create("7")
            watcher.wait_for_settled(1)
        watcher.wait_for_settled(2)
    assert watcher.violations == 0.0
    assert inversions(rig) == []


def test_retries_and_whole_batches_are_no_violation(rig: Rig) -> None:
    rig.carry(BatchReceiver(FailsFirst(3)))
    rig.create(*(number % 5 for number in range(100)))
    watcher = Counting()
    with rig.worker(watcher):
        watcher.wait_for(lambda: len(watcher.delivered) == 100)
    assert watcher.failures
    assert watcher.violations == 0.0
    assert inversions(rig) == []


def test_the_rows_of_one_batch_get_one_moment(rig: Rig) -> None:
    """Else an audit would take the order in which a statement comes upon its rows for that of their delivery."""
    receiver = BatchReceiver()
    rig.carry(receiver)
    rig.create(*["7"] * 200)
    rig.deliver(200)
    moments = {row.processed_at for row in rig.rows().values()}
    assert len(moments) == len(receiver.batches)
