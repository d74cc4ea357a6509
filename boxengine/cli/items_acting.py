"""``boxengine items retry``, ``discard`` and ``delete``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.arguments import AsJson, AtMost, BoxName, DryRun, Ids, Numbers, Yes
from boxengine.cli.asking import ask, refuse_without_terminal
from boxengine.cli.context import notes, output, print_json
from boxengine.cli.item_options import EventKey, From, Statuses, To, connected, item_filter
from boxengine.cli.left_alone import explain_items
from boxengine.domain.item import Status
from boxengine.domain.words import plural
from boxengine.engine.item_actions import SUITABLE, Action, ItemActions
from boxengine.errors import BoxError
from boxengine.ports import ItemFilter

if TYPE_CHECKING:
    from boxengine.domain.box import Box

DONE = {
    Action.RETRY: "retried",
    Action.RESTART: "retried",
    Action.DISCARD: "discarded",
    Action.DELETE: "deleted",
}
HELP = {
    Action.RETRY: """Make items due at once: errors_count 0, remembered failures forgotten.

    Takes failed items; with --status also discarded items, and pending items that wait for their next attempt. The box's
    retry strategies decide as at any retry: latest_available discards an item again if a later item of its key has been
    delivered. --force delivers it anyway. Under strict_order: key the later items of the key go after the retried item, in
    order.""",
    Action.DISCARD: """Discard items: they are not delivered, and are deleted after their retention.

    Takes failed items; with --status also pending items. Under strict_order: key the later items of their keys go on.""",
    Action.DELETE: """Delete items for good.

    Takes failed items; with --status items of any status. Under strict_order: key the later items of their keys go on.""",
}
SHARED_HELP = """

    Counts first and asks on a terminal; elsewhere it needs --yes. With --ids, it takes items of every suitable status
    (delete takes pending items only with --status pending). 1,000 items per transaction. Items that a worker holds are left
    alone and reported.

    Examples: boxengine items {action} order_outbox_item; boxengine items {action} order_outbox_item --from PT1H --dry-run
    """


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
        numbers: Numbers = None,
        *,
        status: Statuses = None,
        ids: Ids = None,
        event_key: EventKey = None,
        since: From = None,
        until: To = None,
        limit: AtMost = None,
        dry_run: DryRun = False,
        yes: Yes = False,
        json: AsJson = False,
        force: Annotated[bool, typer.Option("--force", help="Deliver them whatever the retry strategies say.")] = False,
    ) -> None:
        from boxengine.adapters.telemetry.log_observer import LogObserver  # noqa: PLC0415 - see Globals.boxes

        meant = Action.RESTART if force else action
        unsuitable = [name for name in status or () if Status[name.name] not in SUITABLE[action]]
        if unsuitable:
            suitable = ", ".join(each.name.lower() for each in sorted(SUITABLE[action]))
            raise typer.BadParameter(f"{action} takes {suitable} items", param_hint="--status")
        which = item_filter(status, numbers, ids, event_key, since, until)
        wish = _Wish(limit, dry_run, yes, json)
        if not (dry_run or yes):
            refuse_without_terminal(action)
        with connected(context, box) as (servers, found):
            actions = ItemActions(servers.items, servers.memory, observer=LogObserver())
            explain_items(found, actions.passed_over(found, meant, which), servers.log)
            _perform(actions, found, meant, which, wish)

    if action is not Action.RETRY:
        _hide(command, "force")
    command.__doc__ = HELP[action] + SHARED_HELP.format(action=action)
    return command


def _hide(command: Callable[..., None], option: str) -> None:
    """Removes an option from the signature, from which Typer takes the options that it offers."""
    signature = inspect.signature(command, eval_str=True)
    shown = [each for each in signature.parameters.values() if each.name != option]
    command.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]


retry = _command(Action.RETRY)
discard = _command(Action.DISCARD)
delete = _command(Action.DELETE)


def _perform(actions: ItemActions, box: Box, action: Action, which: ItemFilter, wish: _Wish) -> None:
    count = actions.count(box, action, which)
    count = count if wish.limit is None else min(count, wish.limit)
    if wish.dry_run:
        _report(
            box, action, {"items": count, "dry_run": True}, f"{plural(count, 'item')} would be {DONE[action]}", wish
        )
        return
    if count and not wish.yes:
        ask(f"{box.name}: {action} {plural(count, 'item')}?")
        # What has come to match meanwhile is not what was agreed to.
        wish = replace(wish, limit=count)
    tally = _run(actions, box, action, which, wish, count) if count else None
    changed, left = (tally.changed, tally.left) if tally else (0, 0)
    text = f"{plural(changed, 'item')} {DONE[action]}"
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

    from boxengine.cli.signals import stoppable  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, TimeRemainingColumn(), console=notes(), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"{action} {box.name}", total=count)

        def advance(items: int) -> None:
            nonlocal done
            done += items
            progress.advance(task, items)
            if stopping.is_set and done < count:
                raise BoxError("stopped")

        try:
            with stoppable() as stopping:
                return actions.run(box, action, which, limit=wish.limit, progress=advance)
        except BoxError as error:
            raise BoxError(
                f"{error}; done: {done:,} of {plural(count, 'item')}; run the same command again for the rest"
            ) from error


def _report(box: Box, action: Action, figures: dict[str, Any], text: str, wish: _Wish) -> None:
    if wish.json:
        print_json({"box": box.name, "action": str(action), **figures})
    else:
        output().print(f"{box.name}: {text}", markup=False)
