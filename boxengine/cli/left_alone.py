"""Why ids that somebody named were left alone."""

from __future__ import annotations

from collections.abc import Mapping

from boxengine.cli.context import notes
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId

MOST = 20
"""Ids that are explained."""


def explain(what: str, passed_over: Mapping[ItemId, str | None]) -> None:
    """Says on standard error which ids were left alone, and why.

    Args:
        what: "item" or "job".
        passed_over: by id, its status; None: there is no such row.
    """
    reasons = [
        f"{id_} (no such {what})" if status is None else f"{id_} ({status})" for id_, status in passed_over.items()
    ]
    if reasons:
        more = f" and {len(reasons) - MOST} more" if len(reasons) > MOST else ""
        notes().print(f"left alone: {', '.join(reasons[:MOST])}{more}", markup=False, soft_wrap=True)


def explain_items(passed_over: Mapping[ItemId, Status | None]) -> None:
    """The same for items."""
    named = {id_: None if status is None else status.name.lower() for id_, status in passed_over.items()}
    explain("item", named)
