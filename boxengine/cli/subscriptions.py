"""``boxengine subscriptions``: where the readers of a log are, and how a person moves them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.arguments import AsJson, DryRun, Yes
from boxengine.cli.asking import ask, refuse_without_terminal
from boxengine.cli.context import connect, globals_of, notes, print_json, say
from boxengine.cli.ids import LARGEST
from boxengine.cli.moments import moment
from boxengine.cli.pausing import BY_HAND
from boxengine.cli.subscription_view import given_up, nothing, row_of, show, told, words
from boxengine.domain.box import Box, Storage
from boxengine.errors import BadUsage, QueueUnavailable
from boxengine.ports.people.trail import Deed

if TYPE_CHECKING:
    from boxengine.adapters.sql.log.moving import Moved, Target
    from boxengine.app.boxes import Boxes
    from boxengine.app.servers.connected import Servers

cli = typer.Typer(
    help="List the subscriptions of a log, rewind one, let one skip items, or drop one.", no_args_is_help=True
)
Name = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription, such as order_outbox_item.billing.")
]
Reader = Annotated[
    str,
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="Name of the subscription, such as order_outbox_item.billing, or of a log box without subscriptions.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Go on with items created at this time or later: ISO 8601 (UTC if no zone), or a duration before now (PT1H).",
    ),
]
Id = Annotated[int | None, typer.Option("--id", min=1, max=LARGEST, help="Go on with this id and higher ids.")]


@cli.command("list")
def list_(
    context: typer.Context,
    box: Annotated[
        str | None, typer.Argument(metavar="BOX", help="One box, or one subscription; all if left out.")
    ] = None,
    *,
    json: AsJson = False,
) -> None:
    """Show the subscriptions, with how many items wait for each, and for how long.

    A box with storage: log and no subscriptions has one row.

    Example: boxengine subscriptions list order_outbox_item
    """
    from boxengine.app.overview import Lookout  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    wanted = _readers(boxes, box)
    servers = connect(boxes)
    try:
        look = Lookout(servers, wanted, auto_disabled=boxes.resolved.settings.polling_auto_disabled).look()
    finally:
        servers.close()
    rows = [row_of(each) for each in look.boxes]
    if json:
        print_json(rows)
    else:
        show(rows)
    for problem in look.unanswered:
        notes().print(f"boxengine: {problem}", markup=False, soft_wrap=True)
    if look.unanswered:
        raise typer.Exit(1)


@cli.command("rewind")
def rewind(
    context: typer.Context,
    subscription: Reader,
    *,
    time: Time = None,
    id_: Id = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Deliver items of the log again, in order, starting from a time or an id. Workers may run.

    Reaches as far back as retention has kept items. Failed items among them start again with no attempts. Each item keeps
    its Idempotency-Key. Other subscriptions are not affected. Counts first and asks on a terminal; elsewhere it needs
    --yes.

    Example: boxengine subscriptions rewind order_outbox_item.search --time PT6H --dry-run
    """
    target = _target(time, id_)
    if target is None:
        raise BadUsage("--time or --id is needed")
    _move(context, subscription, target, back=True, dry_run=dry_run, yes=yes, json=json)


@cli.command("skip-to")
def skip_to(
    context: typer.Context,
    subscription: Reader,
    *,
    time: Time = None,
    id_: Id = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Skip for good the items that wait in the log before a time or an id; without either, all of them. Workers may run.

    Failed items are in the subscription's own table and stay there: see boxengine items. Counts first and asks on a
    terminal; elsewhere it needs --yes.

    Example: boxengine subscriptions skip-to order_outbox_item.search --time 2026-01-31T12:00Z
    """
    _move(context, subscription, _target(time, id_), back=False, dry_run=dry_run, yes=yes, json=json)


@cli.command("drop")
def drop(
    context: typer.Context,
    subscription: Name,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Delete the position of a subscription that the configuration no longer has, with its failed and waiting items.

    The subscription never gets the items of the log that it has not read.

    The name of a box alone means the position that the box had before it had subscriptions.

    Example: boxengine subscriptions drop order_outbox_item.search
    """
    from boxengine.adapters.sql.log.moving import give_up, is_read, unread_by  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    name, _, own = subscription.partition(".")
    log = _logged(boxes.written(name))
    if own in log.subscriptions or not (own or log.subscriptions):
        raise BadUsage(f"{subscription} is delivered, as the configuration says; take it out of there first")
    servers, left_alone = connect(boxes), False
    try:
        engine = servers.store.engine
        lost = give_up(engine, log, own, dry=True)
        unread = unread_by(engine, log, own)
        if not dry_run:
            _confirm("drop", f"{subscription}: give up its position, {given_up(lost, unread)}?", yes=yes)
            lost = give_up(engine, log, own)
            _forget_pause(servers, replace(log, name=f"{name}.{own}" if own else name))
            _note(servers, "drop", subscription, "", f"given up, {given_up(lost, unread)}")
            left_alone = not is_read(engine, log)
    finally:
        servers.close()
    if json:
        number = None if unread is None else unread.items
        print_json(
            {"subscription": subscription, "action": "drop", "items": lost, "unread": number, "dry_run": dry_run}
        )
    else:
        done = "would be given up" if dry_run else "given up"
        say(f"{subscription}: {done}, {given_up(lost, unread)}")
    if left_alone:
        notes().print(
            f"boxengine: nobody reads the log of {name} now; who reads it next begins with its oldest item, delivered or not. To "
            "leave out what is there, after boxengine db create and before workers start: boxengine subscriptions skip-to NAME",
            markup=False,
            soft_wrap=True,
        )


def _move(
    context: typer.Context, name: str, target: Target | None, *, back: bool, dry_run: bool, yes: bool, json: bool
) -> None:
    from boxengine.adapters.sql.log.moving import Mover  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    box, action = _logged(boxes.box(name)), "rewind" if back else "skip-to"
    servers = connect(boxes)
    try:
        mover = Mover(servers.store.engine, box)

        def move(*, dry: bool) -> Moved:
            return mover.back(target, dry=dry) if back and target is not None else mover.ahead(target, dry=dry)

        moved = move(dry=True)
        if moved.items and not dry_run:
            _confirm(action, f"{name}: {told(moved, back=back)}?", yes=yes)
            moved = move(dry=False)
            _forget_failures(servers, box, moved)
            _note(servers, action, name, words(target), told(moved, back=back))
    finally:
        servers.close()
    if json:
        figures = {"items": moved.items, "at_least": moved.at_least, "dry_run": dry_run}
        print_json({"subscription": name, "action": action, **figures})
    elif moved.items:
        say(f"{name}: {told(moved, back=back, dry_run=dry_run)}")
    else:
        say(f"{name}: {nothing(target, back=back)}")


def _target(time: str | None, id_: int | None) -> Target | None:
    from boxengine.adapters.sql.log.moving import Target as Found  # noqa: PLC0415 - see Globals.boxes

    if time is not None and id_ is not None:
        raise BadUsage("--time cannot be combined with --id")
    if time is None and id_ is None:
        return None
    return Found(since=moment(time, option="--time"), item=id_)


def _confirm(action: str, question: str, *, yes: bool) -> None:
    if not yes:
        refuse_without_terminal(action)
        ask(question)


def _logged(box: Box) -> Box:
    """The box, if it reads a log."""
    if box.storage is not Storage.LOG:
        raise BadUsage(f"box {box.name} has storage: table, so there are no positions")
    return box


def _forget_failures(servers: Servers, box: Box, moved: Moved) -> None:
    """Those remembered outside the database would count as attempts of items that begin anew."""
    try:
        servers.memory.forget(box, moved.anew)
    except QueueUnavailable as error:
        notes().print(f"boxengine: done, and failures of before may still count for a while: {error}", markup=False)


def _forget_pause(servers: Servers, box: Box) -> None:
    """One that comes again under this name later must not stand still because of a pause that nobody remembers."""
    try:
        servers.pauses.forget(box)
    except QueueUnavailable as error:
        notes().print(f"boxengine: done, and a pause of before may still be in force: {error}", markup=False)


def _note(servers: Servers, action: str, name: str, what: str, outcome: str) -> None:
    """Puts it on the trail, where the console shows what people did."""
    deed = Deed(at=servers.clock.now(), who=BY_HAND, action=action, box=name, what=what, outcome=outcome)
    try:
        servers.trail.add(deed)
    except QueueUnavailable as error:
        notes().print(f"boxengine: done, and not on the trail: {error}", markup=False)


def _readers(boxes: Boxes, name: str | None) -> list[Box]:
    """What has positions of its own: the subscriptions, and each log box without any."""
    resolved = boxes.resolved
    if name is None:
        return [each.box for each in resolved.pipelines.values() if each.box.storage is Storage.LOG]
    names = resolved.readers(name) if name in resolved.logs else [name]
    return [_logged(boxes.box(each)) for each in names]
