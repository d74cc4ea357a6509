"""What the engine needs from outside: small Protocols, in modules by role.

| module | holds |
|---|---|
| ``process`` | the clock, services that run beside the loops, sister processes |
| ``creating`` | new rows, written through the caller's transaction |
| ``store`` | rows as the loops need them: due rows, claims, finished rows |
| ``coordination`` | queue, leases, pauses, wakeups, workers, remembered failures: all of it may be lost at any time |
| ``credentials`` | logins to servers, which may change |
| ``delivering`` | transports |
| ``receiving`` | message sources, inboxes, dead letters |
| ``observing`` | observers, tracers, error trackers |
| ``events`` | what an observer is told: one frozen value per event |
| ``jobs``, ``schedules``, ``contracts`` | long jobs: their store, the times at which they recur, their arguments |
| ``job_processes`` | the processes that run jobs' handlers, and what these and the worker send each other |
| ``people`` | questions and actions of people: items, jobs, logs, counts, inspection, audit, history, trail, checkup |

Every docstring here is a contract. ``tests/conformance`` holds each implementation to it, the in-memory twins and the real
ones alike. Nothing in this package knows SQL, Redis commands or rows of one database.

The names that the loops use can be imported from here. Those that only people's tools use come from ``people``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxengine.ports.coordination.failures import FailureMemory, InHand, RememberedFailure
    from boxengine.ports.coordination.leases import Duty, LeaseName, Leases
    from boxengine.ports.coordination.pauses import Pauses
    from boxengine.ports.coordination.queue import Hold, JobQueue, QueueState, WhenLong
    from boxengine.ports.coordination.wakeups import Signal, Wakeups
    from boxengine.ports.coordination.workers import Engagement, OpenCircuit, WorkerInfo, Workers
    from boxengine.ports.creating import Attributes, CreateBatch, Inserted, NewRows
    from boxengine.ports.delivering import BatchTransport, Result, Transport
    from boxengine.ports.observing import Around, AttemptsFailed, ErrorTracker, NotTaken, Observer, Tracer
    from boxengine.ports.people.census import Census, Count, Counts, Precision
    from boxengine.ports.people.items import Copying, ItemFilter, ItemRow, ItemsStore, Overtaking, Replay
    from boxengine.ports.process import Clock, OtherProcesses, Service
    from boxengine.ports.receiving import (
        Consumed,
        DeadLetters,
        Inbox,
        InboxTransaction,
        MessageSource,
        TopicPartition,
    )
    from boxengine.ports.store import (
        Bounding,
        Claim,
        Claims,
        HistoryStore,
        Outlook,
        Partitions,
        PendingRow,
        PlainClaim,
        Store,
        Swept,
        Tables,
        Turnover,
    )

__all__ = [
    "Around",
    "AttemptsFailed",
    "Attributes",
    "BatchTransport",
    "Bounding",
    "Census",
    "Claim",
    "Claims",
    "Clock",
    "Consumed",
    "Copying",
    "Count",
    "Counts",
    "CreateBatch",
    "DeadLetters",
    "Duty",
    "Engagement",
    "ErrorTracker",
    "FailureMemory",
    "HistoryStore",
    "Hold",
    "InHand",
    "Inbox",
    "InboxTransaction",
    "Inserted",
    "ItemFilter",
    "ItemRow",
    "ItemsStore",
    "JobQueue",
    "LeaseName",
    "Leases",
    "MessageSource",
    "NewRows",
    "NotTaken",
    "Observer",
    "OpenCircuit",
    "OtherProcesses",
    "Outlook",
    "Overtaking",
    "Partitions",
    "Pauses",
    "PendingRow",
    "PlainClaim",
    "Precision",
    "QueueState",
    "RememberedFailure",
    "Replay",
    "Result",
    "Service",
    "Signal",
    "Store",
    "Swept",
    "Tables",
    "TopicPartition",
    "Tracer",
    "Transport",
    "Turnover",
    "Wakeups",
    "WhenLong",
    "WorkerInfo",
    "Workers",
]

_HOMES = {
    "boxengine.ports.coordination.failures": ("FailureMemory", "InHand", "RememberedFailure"),
    "boxengine.ports.coordination.leases": ("Duty", "LeaseName", "Leases"),
    "boxengine.ports.coordination.pauses": ("Pauses",),
    "boxengine.ports.coordination.queue": ("Hold", "JobQueue", "QueueState", "WhenLong"),
    "boxengine.ports.coordination.wakeups": ("Signal", "Wakeups"),
    "boxengine.ports.coordination.workers": ("Engagement", "OpenCircuit", "WorkerInfo", "Workers"),
    "boxengine.ports.creating": ("Attributes", "CreateBatch", "Inserted", "NewRows"),
    "boxengine.ports.delivering": ("BatchTransport", "Result", "Transport"),
    "boxengine.ports.observing": ("Around", "AttemptsFailed", "ErrorTracker", "NotTaken", "Observer", "Tracer"),
    "boxengine.ports.people.census": ("Census", "Count", "Counts", "Precision"),
    "boxengine.ports.people.items": ("Copying", "ItemFilter", "ItemRow", "ItemsStore", "Overtaking", "Replay"),
    "boxengine.ports.process": ("Clock", "OtherProcesses", "Service"),
    "boxengine.ports.receiving": (
        "Consumed",
        "DeadLetters",
        "Inbox",
        "InboxTransaction",
        "MessageSource",
        "TopicPartition",
    ),
    "boxengine.ports.store": (
        "Bounding",
        "Claim",
        "Claims",
        "HistoryStore",
        "Outlook",
        "Partitions",
        "PendingRow",
        "PlainClaim",
        "Store",
        "Swept",
        "Tables",
        "Turnover",
    ),
}


if not TYPE_CHECKING:  # type checkers would otherwise accept any name

    def __getattr__(name: str) -> Any:
        """Imports each of the names above when it is first used, so that a command that needs one does not wait for all."""
        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(home), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
