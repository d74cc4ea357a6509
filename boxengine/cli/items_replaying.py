"""``boxengine items replay``: delivered items once more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.arguments import AsJson, AtMost, BoxName, DryRun, Ids, Numbers, Yes
from boxengine.cli.asking import ask, refuse_without_terminal
from boxengine.cli.context import globals_of, output, print_json
from boxengine.cli.ids import LARGEST
from boxengine.cli.item_options import EventKey, From, To, connected, item_filter
from boxengine.cli.left_alone import explain_items
from boxengine.domain.words import plural
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.domain.box import Box
    from boxengine.engine.replaying import Replays
    from boxengine.ports import ItemFilter, Replay


def replay(
    context: typer.Context,
    box: BoxName,
    numbers: Numbers = None,
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
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, max=LARGEST, help="Only ids above this one: where another replay has ended."),
    ] = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Deliver delivered items again, chosen by id, key or time: as copies that go out after all items of their keys.

    Each copy has the header Replay-Of, with the uuid of the original item. Without --overtake, it overtakes no item of its
    key, unless that waits for a retry in a box without strict_order. --transport sends it only to one transport. For another
    topic, give the copies an event name or an option that the configuration sends there. Counts first and asks on a
    terminal; elsewhere it needs --yes. 500 items per transaction.

    Examples: boxengine items replay order_outbox_item --event-key 17 --dry-run; boxengine items replay order_outbox_item --ids 41
    """
    from boxengine.engine import replaying  # noqa: PLC0415 - see Globals.boxes

    which = replace(item_filter(None, numbers, ids, event_key, since, until), above=after)
    if not (dry_run or yes):
        refuse_without_terminal("replay")
    boxes = globals_of(context).boxes()
    # A count would cover only the few items that were delivered from the side table.
    replaying.refuse_log(boxes.whole(box))
    try:
        how = replaying.chosen(
            transports=[each.name for each in boxes.pipeline(box).transports],
            transport=transport,
            event_name=event_name,
            options=_options(options),
            same_identity=same_key,
            overtaking=overtake,
        )
    except replaying.Contradiction as error:
        raise typer.BadParameter(str(error)) from error
    with connected(context, box, boxes) as (servers, found):
        replays = replaying.Replays(servers.items)
        explain_items(found, replays.passed_over(found, which), servers.log)
        count = replays.count(found, which)
        count = count if limit is None else min(count, limit)
        if count and not (dry_run or yes):
            ask(f"{box}: replay {plural(count, 'item')}?")
            # What has been delivered meanwhile is not what was agreed to.
            limit = count
        copied = None if dry_run else _run(replays, found, which, how, limit=limit, count=count)
    if json:
        figures = {"dry_run": True} if copied is None else {"copied": copied}
        print_json({"box": box, "action": "replay", "items": count, **figures})
    elif copied is None:
        output().print(f"{box}: {plural(count, 'item')} would be replayed")
    else:
        output().print(f"{box}: {plural(copied, 'item')} replayed")


def _run(replays: Replays, box: Box, which: ItemFilter, how: Replay, *, limit: int | None, count: int) -> int:
    """Returns how many were copied. Stopped between two batches, it knows how many that are."""
    from boxengine.cli.signals import stoppable  # noqa: PLC0415 - see Globals.boxes

    copied, last = 0, 0

    def advance(items: int, last_id: int) -> None:
        nonlocal copied, last
        copied, last = copied + items, last_id
        if stopping.is_set and copied < count:
            raise BoxError("stopped")

    with stoppable() as stopping:
        try:
            replays.run(box, which, how, limit=limit, progress=advance)
        except BoxError as error:
            rest = f", up to id {last}; for the rest: --after {last} --limit {count - copied}" if copied else ""
            raise BoxError(f"{error}; copied: {copied:,} of {plural(count, 'item')}{rest}") from error
    return copied


def _options(given: list[str] | None) -> dict[str, str]:
    pairs = [each.partition("=") for each in given or ()]
    if any(not name or not equals for name, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in pairs}
