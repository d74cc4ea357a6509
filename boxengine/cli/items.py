"""``boxengine items``: look at single items, and retry, discard or delete them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.context import connect, globals_of, notes, output, print_json, say
from boxengine.cli.item_view import as_json, details, listing
from boxengine.cli.moments import moment
from boxengine.cli.text import counted
from boxengine.domain.box import Storage
from boxengine.domain.item import Status
from boxengine.engine.item_actions import SUITABLE, Action, ItemActions
from boxengine.errors import BoxError
from boxengine.ports import ItemFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from boxengine.app.boxes import Boxes
    from boxengine.app.servers import Servers
    from boxengine.domain.box import Box
    from boxengine.ports import ItemsStore

cli = typer.Typer(help="Look at items, and retry, discard or delete them.", no_args_is_help=True)


class StatusName(StrEnum):
    """A status as people type it."""

    PENDING = "pending"
    FAILED = "failed"
    DELIVERED = "delivered"
    DISCARDED = "discarded"


BoxName = Annotated[str, typer.Argument(help="Name of the box.")]
Statuses = Annotated[list[StatusName] | None, typer.Option("--status", "-s", help="Of this status; repeatable.")]
Ids = Annotated[list[str] | None, typer.Option("--ids", help="These ids: 1,2,3; repeatable.")]
EventKey = Annotated[str | None, typer.Option("--event-key", help="Of this event key.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Created then or later: ISO 8601 (UTC if no zone), or a duration before now (PT1H)."),
]
To = Annotated[str | None, typer.Option("--to", help="Created before then.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

MOST_DIGITS = 19
"""The most digits of an id."""
DONE = {
    Action.RETRY: "retried",
    Action.RESTART: "retried",
    Action.DISCARD: "discarded",
    Action.DELETE: "deleted",
}
HELP = {
    Action.RETRY: """Make items due at once: errors_count 0, remembered failures forgotten.

    Takes failed items; with --status also discarded ones, and pending ones that wait for their next attempt. The box's
    retry strategies are asked as at any retry: latest_available discards an item again if a later one of its key has been
    delivered. --force delivers it anyway. Under strict_order: key the followers of a retried item go after it, in order.""",
    Action.DISCARD: """Give items up: they become discarded, and are deleted after their retention.

    Takes failed items; with --status also pending ones. Under strict_order: key their followers go on.""",
    Action.DELETE: """Delete items for good.

    Takes failed items; with --status those of any status. Under strict_order: key their followers go on.""",
}
SHARED_HELP = """

    Counts first and asks on a terminal; elsewhere it needs --yes. With --ids, items of every status that suits (delete
    takes pending ones only with --status pending). 1,000 items per transaction; items in work are left alone and reported.

    Examples: boxengine items {action} order_outbox_item; boxengine items {action} order_outbox_item --from PT1H --dry-run
    """


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


@cli.command("list")
def list_(
    context: typer.Context,
    box: BoxName,
    *,
    status: Statuses = None,
    ids: Ids = None,
    event_key: EventKey = None,
    since: From = None,
    until: To = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")] = 50,
    after: Annotated[int, typer.Option("--after", min=0, help="Only ids above this one: the next page.")] = 0,
    json: AsJson = False,
) -> None:
    """List items by id, without their payloads.

    Examples: boxengine items list order_outbox_item --status failed; boxengine items list order_outbox_item --from P1D --json
    """
    which = _filter(status, ids, event_key, since, until)
    with _looked_at(context, box) as (items, found):
        rows = items.page(found, which, after=after, limit=limit)
    if json:
        print_json([as_json(row) for row in rows])
        return
    output().print(listing(rows) if rows else "no such items")
    if len(rows) == limit:
        notes().print(f"there may be more: --after {rows[-1].id}")


@cli.command("show")
def show(
    context: typer.Context,
    box: BoxName,
    item_id: Annotated[int | None, typer.Argument(help="Id of the item.", metavar="ID")] = None,
    *,
    ids: Annotated[int | None, typer.Option("--ids", help="The same, as an option.")] = None,
    json: AsJson = False,
) -> None:
    """Show one item with its payload (as text, or its first bytes in hex) and the log of its last failure.

    --json has the whole payload: as payload where it is text, else as payload_base64. Exits with 1 if there is no such item.

    Example: boxengine items show order_outbox_item 42
    """
    wanted = item_id if item_id is not None else ids
    if wanted is None:
        raise typer.BadParameter("is needed", param_hint="ID")
    with _looked_at(context, box) as (items, found):
        row = items.get(found, wanted)
    if row is None:
        raise BoxError(f"{box} has no item {wanted}")
    if json:
        print_json(as_json(row, whole=True))
    else:
        say(details(row))


# ── acting ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Wish:
    """The command's options, apart from those that choose items."""

    limit: int | None
    dry_run: bool
    yes: bool
    json: bool


def _command(action: Action) -> Callable[..., None]:
    def command(
        context: typer.Context,
        box: BoxName,
        *,
        status: Statuses = None,
        ids: Ids = None,
        event_key: EventKey = None,
        since: From = None,
        until: To = None,
        limit: Annotated[
            int | None, typer.Option("--limit", min=1, help="At most this many, the lowest ids first.")
        ] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        json: AsJson = False,
        force: Annotated[bool, typer.Option("--force", help="Deliver them whatever the retry strategies say.")] = False,
    ) -> None:
        from boxengine.adapters.telemetry.logs import LogObserver  # noqa: PLC0415 - see Globals.boxes

        meant = Action.RESTART if force else action
        unsuitable = [name for name in status or () if Status[name.name] not in SUITABLE[action]]
        if unsuitable:
            suitable = ", ".join(each.name.lower() for each in sorted(SUITABLE[action]))
            raise typer.BadParameter(f"{action} takes {suitable} items", param_hint="--status")
        which = _filter(status, ids, event_key, since, until)
        wish = _Wish(limit, dry_run, yes, json)
        if not (dry_run or yes or _on_terminal()):
            raise typer.BadParameter(f"is needed to {action} without a terminal; --dry-run counts", param_hint="--yes")
        with _connected(context, box) as (servers, found):
            _perform(ItemActions(servers.items, servers.memory, observer=LogObserver()), found, meant, which, wish)

    if action is not Action.RETRY:
        _hide(command, "force")
    return command


def _hide(command: Callable[..., None], option: str) -> None:
    """Removes an option from the signature, from which Typer takes the options that it offers."""
    signature = inspect.signature(command, eval_str=True)
    shown = [each for each in signature.parameters.values() if each.name != option]
    command.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]


for _action, _help in HELP.items():
    cli.command(_action.value, help=_help + SHARED_HELP.format(action=_action))(_command(_action))


def _perform(actions: ItemActions, box: Box, action: Action, which: ItemFilter, wish: _Wish) -> None:
    count = actions.count(box, action, which)
    count = count if wish.limit is None else min(count, wish.limit)
    if wish.dry_run:
        _report(
            box, action, {"items": count, "dry_run": True}, f"{counted(count, 'item')} would be {DONE[action]}", wish
        )
        return
    if count and not wish.yes and not typer.confirm(f"{box.name}: {action} {counted(count, 'item')}?", err=True):
        raise BoxError("nothing was done")
    tally = _run(actions, box, action, which, wish, count) if count else None
    changed, left = (tally.changed, tally.left) if tally else (0, 0)
    text = f"{counted(changed, 'item')} {DONE[action]}"
    if left:
        text += f", {left} left alone: in work, or changed meanwhile; the same command tries them again"
    _report(box, action, {"items": count, "changed": changed, "left": left}, text, wish)


def _run(actions: ItemActions, box: Box, action: Action, which: ItemFilter, wish: _Wish, count: int) -> Any:
    from rich.progress import (  # noqa: PLC0415 - see context.output
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, TimeRemainingColumn(), console=notes(), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"{action} {box.name}", total=count)

        def advance(items: int) -> None:
            nonlocal done
            done += items
            progress.advance(task, items)

        try:
            return actions.run(box, action, which, limit=wish.limit, progress=advance)
        except BoxError as error:
            raise BoxError(
                f"{error}; {done} of {count} items are done; run the same command again for the rest"
            ) from error


def _report(box: Box, action: Action, figures: dict[str, Any], text: str, wish: _Wish) -> None:
    if wish.json:
        print_json({"box": box.name, "action": str(action), **figures})
    else:
        output().print(f"{box.name}: {text}", markup=False)


# ── once more ────────────────────────────────────────────────────────────────────────────────────────


@cli.command("replay")
def replay(
    context: typer.Context,
    box: BoxName,
    *,
    ids: Ids = None,
    event_key: EventKey = None,
    since: From = None,
    until: To = None,
    event_name: Annotated[
        str | None,
        typer.Option("--event-name", help="Give the copies this event name: for the transports of that name."),
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", help="Set NAME=VALUE in the copies' options; repeatable.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option("--transport", help="Only to this transport of the box, whatever the event name.")
    ] = None,
    overtake: Annotated[
        bool,
        typer.Option(
            "--overtake", help="Before live items of their keys: the items themselves, from their old places."
        ),
    ] = False,
    same_key: Annotated[
        bool, typer.Option("--same-key", help="Keep the Idempotency-Key: receivers that know it drop the copy.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most this many, the lowest ids first.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Deliver delivered items once more, chosen by id, key or time: as copies behind all items of their keys.

    Each copy carries the header Replay-Of, with the uuid of the item that it is a copy of. It never overtakes an item of its
    key that is still to go, unless --overtake says so. --transport sends it to one transport alone; for another topic, give the
    copies an event name or an option that the configuration sends there. Counts first and asks on a terminal; elsewhere it
    needs --yes. 500 items per transaction.

    Examples: boxengine items replay order_outbox_item --event-key 17 --dry-run; boxengine items replay order_outbox_item --ids 41
    """
    from boxengine.engine import replaying  # noqa: PLC0415 - see Globals.boxes

    which = _filter(None, ids, event_key, since, until)
    if not (dry_run or yes or _on_terminal()):
        raise typer.BadParameter("is needed to replay without a terminal; --dry-run counts", param_hint="--yes")
    boxes = globals_of(context).boxes()
    try:
        copying = replaying.copying(
            transports=[each.name for each in boxes.pipeline(box).transports],
            transport=transport,
            event_name=event_name,
            options=_options(options),
            same_identity=same_key,
            overtaking=overtake,
        )
    except replaying.Contradiction as error:
        raise typer.BadParameter(str(error)) from error
    with _connected(context, box, boxes) as (servers, found):
        if found.storage is Storage.LOG:
            # Before any count: that would cover only the few items that were delivered from the side table.
            raise BoxError(
                f"box {box} has storage: log, and its items cannot be replayed: its rows do not record what was delivered"
            )
        replays = replaying.Replays(servers.items)
        count = replays.count(found, which)
        count = count if limit is None else min(count, limit)
        if count and not (dry_run or yes) and not typer.confirm(f"{box}: replay {counted(count, 'item')}?", err=True):
            raise BoxError("nothing was done")
        copied, last = 0, 0

        def advance(items: int, last_id: int) -> None:
            nonlocal copied, last
            copied, last = copied + items, last_id

        if not dry_run:
            try:
                replays.run(found, which, copying, limit=limit, progress=advance)
            except BoxError as error:
                raise BoxError(f"{error}; {copied} of {count} items are copied, up to id {last}") from error
    figures = {"items": count, **({"dry_run": True} if dry_run else {"copied": copied})}
    if json:
        print_json({"box": box, "action": "replay", **figures})
    else:
        output().print(
            f"{box}: {counted(count, 'item')} would be replayed"
            if dry_run
            else f"{box}: {counted(copied, 'item')} replayed"
        )


def _options(given: list[str] | None) -> dict[str, str]:
    pairs = [each.partition("=") for each in given or ()]
    if any(not name or not equals for name, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in pairs}


# ── what they share ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _looked_at(context: typer.Context, name: str) -> Iterator[tuple[ItemsStore, Box]]:
    """The items of a box, for reading only: this wakes no worker and needs no Redis."""
    from boxengine.adapters.sql.items import SqlItems  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.database import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    box = boxes.box(name)
    store = connect_store(boxes.resolved.settings)
    try:
        yield SqlItems(store), box
    finally:
        store.close()


@contextmanager
def _connected(context: typer.Context, name: str, loaded: Boxes | None = None) -> Iterator[tuple[Servers, Box]]:
    boxes = loaded or globals_of(context).boxes()
    box = boxes.box(name)
    servers = connect(boxes)
    try:
        yield servers, box
    finally:
        servers.close()


def _filter(
    statuses: list[StatusName] | None,
    ids: list[str] | None,
    event_key: str | None,
    since: str | None,
    until: str | None,
) -> ItemFilter:
    return ItemFilter(
        statuses=frozenset(Status[name.name] for name in statuses or ()),
        ids=tuple(_ids(ids or ())),
        event_key=event_key,
        created_from=moment(since, option="--from"),
        created_before=moment(until, option="--to"),
    )


def _ids(texts: list[str] | tuple[()]) -> Iterator[int]:
    for text in texts:
        for part in text.split(","):
            if not part.strip().isdecimal() or len(part.strip()) > MOST_DIGITS:
                raise typer.BadParameter(f"expected ids such as 1,2,3, got {text!r}", param_hint="--ids")
            yield int(part)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
