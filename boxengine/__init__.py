"""The transactional outbox and inbox.

A service commits business data and a row saying "this happened" in one transaction. boxengine delivers each such row to
Kafka, a webhook or any code: never lost, in order per key, and within milliseconds.

::

    from boxengine import OutboxItem, create_outbox_item

    class OrderOutboxItem(OutboxItem, Base):
        __tablename__ = "order_outbox_items"

    with Session(engine) as session, session.begin():
        session.add(order)
        create_outbox_item(session, OrderOutboxItem, event_key=order.id, payload=b"...")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boxengine import errors as errors
from boxengine.version import __version__ as __version__

if TYPE_CHECKING:
    from boxengine.adapters.payload import Payload
    from boxengine.adapters.sql.jobs.models import JobItem
    from boxengine.adapters.sql.shape.models import InboxItem, OutboxItem, SequencedItem
    from boxengine.app.boxes import Boxes, load
    from boxengine.app.boxes.default import (
        acreate_inbox_batch,
        acreate_inbox_item,
        acreate_job,
        acreate_jobs,
        acreate_outbox_batch,
        acreate_outbox_item,
        configure,
        create_inbox_batch,
        create_inbox_item,
        create_job,
        create_jobs,
        create_outbox_batch,
        create_outbox_item,
    )
    from boxengine.app.running.in_application import running
    from boxengine.domain.attributes import BatchAttributes, ItemAttributes
    from boxengine.domain.contracts import Contract, Int, Int64
    from boxengine.domain.item import Item, Status
    from boxengine.domain.job_attributes import JobAttributes, NewJobAttributes
    from boxengine.domain.outcome import DISCARD, PROCESS, SKIP, Failure
    from boxengine.engine.jobs.async_handle import AsyncJob
    from boxengine.engine.jobs.batch_handle import BatchJob
    from boxengine.engine.jobs.handle import Job
    from boxengine.engine.jobs.process_job import ProcessJob

__all__ = [
    "DISCARD",
    "PROCESS",
    "SKIP",
    "AsyncJob",
    "BatchAttributes",
    "BatchJob",
    "Boxes",
    "Contract",
    "Failure",
    "InboxItem",
    "Int",
    "Int64",
    "Item",
    "ItemAttributes",
    "Job",
    "JobAttributes",
    "JobItem",
    "NewJobAttributes",
    "OutboxItem",
    "Payload",
    "ProcessJob",
    "SequencedItem",
    "Status",
    "acreate_inbox_batch",
    "acreate_inbox_item",
    "acreate_job",
    "acreate_jobs",
    "acreate_outbox_batch",
    "acreate_outbox_item",
    "configure",
    "create_inbox_batch",
    "create_inbox_item",
    "create_job",
    "create_jobs",
    "create_outbox_batch",
    "create_outbox_item",
    "load",
    "running",
]

_HOMES = {
    "boxengine.adapters.payload": ("Payload",),
    "boxengine.adapters.sql.jobs.models": ("JobItem",),
    "boxengine.adapters.sql.shape.models": ("InboxItem", "OutboxItem", "SequencedItem"),
    "boxengine.app.boxes": ("Boxes", "load"),
    "boxengine.app.boxes.default": (
        "acreate_inbox_batch",
        "acreate_inbox_item",
        "acreate_job",
        "acreate_jobs",
        "acreate_outbox_batch",
        "acreate_outbox_item",
        "configure",
        "create_inbox_batch",
        "create_inbox_item",
        "create_job",
        "create_jobs",
        "create_outbox_batch",
        "create_outbox_item",
    ),
    "boxengine.app.running.in_application": ("running",),
    "boxengine.domain.attributes": ("BatchAttributes", "ItemAttributes"),
    "boxengine.domain.contracts": ("Contract", "Int", "Int64"),
    "boxengine.domain.item": ("Item", "Status"),
    "boxengine.domain.job_attributes": ("JobAttributes", "NewJobAttributes"),
    "boxengine.domain.outcome": ("DISCARD", "PROCESS", "SKIP", "Failure"),
    "boxengine.engine.jobs.async_handle": ("AsyncJob",),
    "boxengine.engine.jobs.batch_handle": ("BatchJob",),
    "boxengine.engine.jobs.handle": ("Job",),
    "boxengine.engine.jobs.process_job": ("ProcessJob",),
}


if not TYPE_CHECKING:  # a checker would believe that there is every name

    def __getattr__(name: str) -> Any:
        """The names above, each imported when it is first asked for.

        Whatever imports one module of the package imports this one before: ``boxengine --help`` would wait for SQLAlchemy.
        """
        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(home), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
