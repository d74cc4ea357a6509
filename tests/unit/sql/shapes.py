"""Tables of every shape for which the statements differ."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta

from boxengine.adapters.sql.log.readers import Readers
from boxengine.adapters.sql.log.tables import LogTable, is_logged
from boxengine.adapters.sql.shape.tables import OPTIONAL, REQUIRED, BoxTable
from boxengine.domain.box import Backoff, Box, BoxType, Retention, Storage, StrictOrder

PLAIN = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)
INBOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items", bucket_size=4)
MOMENTS = ("created_at", "updated_at", "processed_at", "available_at")
QUOTES = {"postgresql": '"', "mysql": "`"}


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of table and policy."""

    box: Box = PLAIN
    old: bool = False
    """As the first version of sbmt-outbox made it."""
    numbered: bool = False

    @property
    def dialects(self) -> Collection[str]:
        """Of the databases that have it."""
        return QUOTES if self.box.storage is Storage.TABLE else ("postgresql",)

    @property
    def log(self) -> LogTable | None:
        """The log beside it, as it would be found."""
        if self.box.storage is Storage.TABLE:
            return None
        return LogTable(
            log=f"public.{self.box.table}_log",
            positions=f"public.{self.box.table}_positions",
            readers=Readers("public", self.box.source.table),
            shared=tuple(name for name in (*REQUIRED, *sorted(OPTIONAL), "payload") if is_logged(name, self.box.type)),
            has_event_name=True,
            has_options=True,
            partitioned=self.box.log_partitions is not None,
        )

    def table(self, dialect: str) -> BoxTable:
        """The table as it would be found in a database."""
        quote, schema = QUOTES[dialect], "public" if dialect == "postgresql" else "shop"
        optional = frozenset() if self.old else frozenset(OPTIONAL)
        return BoxTable(
            box=self.box,
            name=f"{schema}.{self.box.table}",
            columns=frozenset(REQUIRED) | optional | {"proto_payload" if self.old else "payload"},
            payload="proto_payload" if self.old else "payload",
            zoned=frozenset(MOMENTS if dialect == "postgresql" and not self.old else ()),
            numeric_keys=self.old,
            schema=schema,
            location=f"{schema}.{self.box.table}",
            status_index=f"{quote}ix_{self.box.table}_pending{quote}",
            delayed_index=None if self.old else f"{quote}ix_{self.box.table}_delayed{quote}",
            status_of_key_index=f"{quote}ix_{self.box.table}_troubled{quote}"
            if dialect == "mysql" and self.box.strict_order is StrictOrder.KEY
            else None,
            numbered=self.numbered,
            nullable=frozenset({"errors_count"}) if self.old else frozenset(),
        )


SHAPES = {
    "plain": Shape(),
    "jitter": Shape(replace(PLAIN, backoff=Backoff(jitter=0.5))),
    "strict_order_key": Shape(replace(PLAIN, strict_order=StrictOrder.KEY)),
    "strict_order_bucket": Shape(replace(PLAIN, strict_order=StrictOrder.BUCKET)),
    "deleted_on_delivery": Shape(replace(PLAIN, retention=Retention(delivered=timedelta(0)))),
    "numbered": Shape(replace(PLAIN, sequence=True), numbered=True),
    "inbox": Shape(INBOX),
    "of_sbmt_outbox": Shape(replace(PLAIN, backoff=None), old=True),
    **{
        f"log_{order.name.lower()}": Shape(replace(PLAIN, storage=Storage.LOG, strict_order=order))
        for order in StrictOrder
    },
    "log_partitioned": Shape(replace(PLAIN, storage=Storage.LOG, log_partitions=timedelta(days=1))),
    "log_inbox": Shape(replace(INBOX, storage=Storage.LOG)),
}
