"""Rows as an audit sees them, told as they were written: the earliest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Status
from boxengine.engine.audit.by_key import KeyChecks
from boxengine.engine.audit.findings import Finding
from boxengine.ports.people.audit import AuditedRow, Replayed

NOON = datetime(2026, 1, 31, 12, 0)  # noqa: DTZ001 - drivers make UTC without saying so


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def box(**policy: Any) -> Box:
    return Box(**{"name": "order_outbox_item", "type": BoxType.OUTBOX, "table": "order_outbox_items", **policy})


def row(row_id: int, delivered: float | None = None, *, key: str = "7", **fields: Any) -> AuditedRow:
    """A row; ``delivered``: seconds after noon, None: it is pending."""
    values: dict[str, Any] = {
        "id": row_id,
        "event_key": key,
        "bucket": 7,
        "status": Status.PENDING if delivered is None else Status.DELIVERED,
        "may_wait": False,
        "processed_at": None if delivered is None else at(delivered),
        "created_at": NOON,
        "seq": None,
        "replayed": Replayed.NO,
        **fields,
    }
    return AuditedRow(**values)


def look(rows: Sequence[AuditedRow], *, page: int = 1000, **options: Any) -> list[Finding]:
    """What is found in rows of one key; the checks get them as a store gives them."""
    policy = {
        name: options.pop(name) for name in ("strict_order", "bucket_size", "partition_strategy") if name in options
    }
    settings = {"numbered": True, "own_buckets": False, "complete_from": at(-3600), **options}
    checks = KeyChecks(box(**policy), **settings)
    latest_first = sorted(rows, key=lambda each: (each.event_key, each.id), reverse=True)
    pages = [latest_first[start : start + page] for start in range(0, len(latest_first), page)]
    return [finding for part in pages for finding in checks.look(part)]


def told(findings: Sequence[Finding]) -> list[tuple[str, int | None]]:
    """Kind and item of each."""
    return [(str(finding.kind), finding.item) for finding in findings]
