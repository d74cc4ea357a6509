"""A box, items and one of each event, for these tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item, Status
from boxengine.domain.jobs import ClaimedJob, JobBacklog, JobBox
from boxengine.domain.outcome import Discard, DiscardCause, FailedAttempt, Settlement
from boxengine.ports import Consumed, OpenCircuit, WorkerInfo, events
from boxengine.ports.jobs import JobEnded, JobLoad, JobsLeft, JobsReaped, JobsWaiting

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
BOX = Box(name="shop/order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", owner="shop-team")


def item(
    id_: int,
    *,
    bucket: int = 0,
    age: float = 1.0,
    tried: bool = False,
    options: Mapping[str, Any] | str | None = None,
    zone: bool = True,
) -> Item:
    created = NOW - timedelta(seconds=age)
    return Item(
        id=id_,
        uuid=f"00000000-0000-0000-0000-{id_:012}",
        event_name=None,
        event_key=str(id_),
        bucket=bucket,
        status=0,
        raw_options=options,
        payload=b"",
        errors_count=int(tried),
        raw_created_at=created if zone else created.replace(tzinfo=None),
        processed_at=created if tried else None,
        box=BOX,
        dispatched_at=NOW,
    )


CIRCUIT = OpenCircuit(box=BOX.name, transport="kafka", since=NOW, next_try=NOW, reason="no broker answers")
WORKER = WorkerInfo(id="a", host="shop-7", pid=41, boxes=(BOX.name,), threads=4, started_at=NOW, database="7301/1")
SETTLEMENT = Settlement(
    delivered=[1],
    discarded=[Discard(2, DiscardCause.OVERTAKEN, 1, "12:00 discarded by LatestAvailable: item 9")],
    failed=[FailedAttempt(3, Status.FAILED, 1, "boom"), FailedAttempt(4, Status.PENDING, 1, "boom")],
)

JOB_BOX = JobBox(name="report_job", table="report_jobs", owner="analytics")


def job(id_: int, *, attempt: int = 1, trace_context: Mapping[str, str] | None = None) -> ClaimedJob:
    return ClaimedJob(
        id=id_,
        token=1,
        task="export",
        args={},
        attempt=attempt,
        max_attempts=3,
        lease_ttl=timedelta(seconds=60),
        trace_context=trace_context,
    )


EVENTS: tuple[events.Event, ...] = (
    events.Created(BOX, ids=[1], buckets=[0], seconds=1.0),
    events.Polled(BOX, 1, found=1, pushed=1, seconds=1.0),
    events.Throttled(BOX, 1, throttler="t", status="s", seconds=1.0),
    events.QueueMeasured(BOX, length=1, lag=1.0),
    events.ForeignJobs(BOX, [b"rubbish", b"1:2"]),
    events.NamesTwice(WORKER, [BOX.name]),
    events.Taken(BOX, jobs=1, seconds=1.0),
    events.Transported(BOX, "kafka", items=1, failed=0, seconds=1.0),
    events.KeptBack(BOX, items=[item(1)]),
    events.CircuitChanged(BOX, "kafka", CIRCUIT),
    events.CircuitOpen(BOX, CIRCUIT),
    events.Settled(BOX, [item(number, tried=number == 1) for number in range(1, 5)], SETTLEMENT, seconds=1.0),
    events.OrderViolated(BOX, items=[item(1)]),
    events.HoldEnded(BOX, (1, 2), events.Ending.PROCESSED, seconds=1.0),
    events.FetchFailed(BOX, "gone"),
    events.DiscardedByHand(BOX, [7, 8]),
    events.Deleted(BOX, rows=1, seconds=1.0),
    events.OldestPending(BOX, seconds=1.0),
    events.Unread(BOX, seconds=1.0),
    events.RetentionHeld(BOX, age=timedelta(days=9)),
    events.Stranded(BOX, items=3),
    events.MessagesStored(BOX, {("orders", 2): Consumed(5, 2, 1)}, seconds=1.0),
    events.Lagging(BOX, {("orders", 2): 7}),
    events.OutageBegan("redis", "refused"),
    events.OutageLasts("redis", seconds=0.5),
    events.OutageEnded("redis", seconds=1.0),
    events.CoordinatorSlow(seconds=2.1, lease=timedelta(seconds=13)),
    events.CoordinatorQuick(seconds=0.01, lease=timedelta(seconds=4)),
    JobEnded(JOB_BOX, end="lost", seconds=1.0, job=job(7)),
    JobsReaped(JOB_BOX, requeued=2, lost=1),
    JobsLeft(JOB_BOX, jobs=[7]),
    JobLoad(JOB_BOX, running=1, threads=2),
    JobsWaiting(JOB_BOX, JobBacklog(ready=2, delayed=1, blocked=0, waits=timedelta(seconds=9))),
)
"""One of each."""
