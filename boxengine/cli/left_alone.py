"""Why ids that somebody named were left alone."""

from __future__ import annotations

from collections.abc import Mapping

from boxengine.cli.context import notes
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.ports.people.items import PASSED, status_name
from boxengine.ports.people.log import LogItems

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


def explain_items(box: Box, passed_over: Mapping[ItemId, Status | None], log: LogItems) -> None:
    """The same for items, some of which may stand in the log of the box alone.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    explained = list(passed_over.items())[:MOST]
    in_log = {id_: _place_in(log, box, id_) for id_, status in explained if status is None}
    reasons = {id_: in_log.get(id_) if status is None else status_name(status) for id_, status in passed_over.items()}
    explain("item", reasons)


def _place_in(log: LogItems, box: Box, item_id: ItemId) -> str | None:
    row = log.get(box, item_id)
    if row is None:
        return None
    return "passed in the log" if row.status == PASSED else "waits in the log"
