"""``boxengine pause`` and ``boxengine resume``."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.app.running.garbage import put_off
from boxengine.cli.arguments import BoxName
from boxengine.cli.context import connect_to_jobs, globals_of, say

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

BY_HAND = "the command line"
"""Who decided, as the journal of a box of long jobs records it."""


class Decision(Enum):
    """A person's decision about a box."""

    PAUSE = auto()
    RESUME = auto()
    FORGET = auto()


def pause(
    context: typer.Context,
    box: BoxName,
    *,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget pause and resume: polling_auto_disabled decides again.")
    ] = False,
) -> None:
    """Pause a box in every worker, within 10 seconds: no item goes to a transport, and no job begins, until it is resumed.

    Queued and due items wait. The batch under way is cut short: items that a transport has taken are recorded, the others
    stay pending. Running long jobs go on. Applications can still create items, and boxengine consume still fills a paused
    inbox box.

    Examples: boxengine pause order_outbox_item; boxengine pause order_outbox_item --forget
    """
    if not forget:
        _change(context, box, Decision.PAUSE)
        say(f"{box}: paused")
        return
    _change(context, box, Decision.FORGET)
    stopped = globals_of(context).boxes().resolved.settings.polling_auto_disabled
    reason = f"polling_auto_disabled is {'true' if stopped else 'false'}"
    say(f"{box}: {'paused' if stopped else 'running'}, as {reason}")


def resume(context: typer.Context, box: BoxName) -> None:
    """Let a paused box continue, in every worker, within a few seconds.

    This holds until the next pause, even if polling_auto_disabled is true.
    """
    _change(context, box, Decision.RESUME)
    say(f"{box}: resumed")


def _change(context: typer.Context, name: str, decision: Decision) -> None:
    boxes = globals_of(context).boxes()
    if name in boxes.resolved.jobs:
        _change_jobs(boxes, name, decision)
    else:
        _change_items(boxes, name, decision)


def _change_items(boxes: Boxes, name: str, decision: Decision) -> None:
    with put_off():
        from boxengine.adapters.redis.pauses import RedisPauses  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app.servers.redis import redis_client  # noqa: PLC0415

    box = boxes.box(name)
    with redis_client(boxes.resolved.settings) as client:
        pauses = RedisPauses(client)
        if decision is Decision.FORGET:
            pauses.forget(box)
        else:
            pauses.set(box, polling_enabled=decision is Decision.RESUME)


def _change_jobs(boxes: Boxes, name: str, decision: Decision) -> None:
    from boxengine.adapters.sql.jobs.pauses import SqlJobPauses  # noqa: PLC0415 - see Globals.boxes

    box, store = boxes.resolved.jobs[name].box, connect_to_jobs(boxes)
    try:
        pauses = SqlJobPauses(store)
        if decision is Decision.FORGET:
            pauses.forget(box, who=BY_HAND)
        else:
            pauses.set(box, running=decision is Decision.RESUME, who=BY_HAND)
    finally:
        store.close()
