"""Subscriptions, and what is done with them, as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boxengine.cli.context import output
from boxengine.domain.words import plural

if TYPE_CHECKING:
    from boxengine.adapters.sql.log.moving import Moved, Target
    from boxengine.app.overview import BoxView


def row_of(seen: BoxView) -> dict[str, Any]:
    """One subscription, as JSON has it."""
    pending, failed = (None if seen.counts is None else getattr(seen.counts, each) for each in ("pending", "failed"))
    return {
        "subscription": seen.box.name,
        "pending": None if pending is None else pending.number,
        "pending_precision": None if pending is None else str(pending.precision),
        "failed": None if failed is None else failed.number,
        "oldest_pending_seconds": None if seen.waited is None else seen.waited.total_seconds(),
        "paused": seen.paused,
        "workers": None if seen.workers is None else len(seen.workers),
        "error": seen.broken,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the rows as a table."""
    from rich.table import Table  # noqa: PLC0415 - see context.output

    table = Table("subscription", "pending", "failed", "oldest", "paused", "workers", box=None)
    for row in rows:
        more = ">" if row["pending_precision"] == "at_least" else ""
        age = row["oldest_pending_seconds"]
        table.add_row(
            row["subscription"],
            "-" if row["pending"] is None else f"{more}{row['pending']:,}",
            "-" if row["failed"] is None else f"{row['failed']:,}",
            "-" if row["pending"] is None else "" if age is None else f"{age:,.0f} s",
            {None: "-", True: "yes", False: ""}[row["paused"]],
            "-" if row["workers"] is None else str(row["workers"]),
        )
    output().print(table)


def words(target: Target | None) -> str:
    """Where a subscription goes."""
    if target is None:
        return "the end of the log"
    return f"id {target.item}" if target.since is None else f"{target.since:%Y-%m-%dT%H:%M:%SZ}"


def told(moved: Moved, *, back: bool, dry_run: bool = False) -> str:
    """What became, or would become, of the items in between."""
    number = plural(moved.items, "item", or_more=moved.at_least)
    go = "go" if dry_run or moved.at_least or moved.items != 1 else "goes"
    would = "would " if dry_run else ""
    return f"{number} {would}{go} out once more" if back else f"{number} {would}never {go} out"


def nothing(target: Target | None, *, back: bool) -> str:
    """There are no items in between."""
    if back:
        return (
            f"nothing to rewind: of the items from {words(target)} on, the log has none that it has passed; "
            "to skip what waits, use: boxengine subscriptions skip-to"
        )
    return f"nothing to skip: no item waits in the log before {words(target)}"


def given_up(lost: int, unread: Moved | None) -> str:
    """What goes with a subscription's position."""
    if unread is None:
        behind = "an unknown number of items"
    else:
        behind = f"{'more than ' if unread.at_least else ''}{plural(unread.items, 'item')}"
    return f"with {plural(lost, 'item')} that failed or waited, and {behind} that it has not read"
