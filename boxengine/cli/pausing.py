"""``boxengine pause`` and ``boxengine resume``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.context import globals_of, say

if TYPE_CHECKING:
    from boxengine.domain.box import Box
    from boxengine.ports import Pauses

BoxName = Annotated[str, typer.Argument(help="Name of the box.")]


def pause(
    context: typer.Context,
    box: BoxName,
    *,
    forget: Annotated[
        bool, typer.Option("--forget", help="Neither paused nor resumed: polling_auto_disabled decides again.")
    ] = False,
) -> None:
    """Stop a box in every worker, within 10 seconds: nothing of it is handed to a transport until it is resumed.

    What is queued or due waits. The batch under way is cut short: an item that a transport has taken is recorded, the others
    stay pending. Rows can still be created, and boxengine consume still fills a paused inbox box.

    Examples: boxengine pause order_outbox_item; boxengine pause order_outbox_item --forget
    """
    if not forget:
        _change(context, box, lambda pauses, chosen: pauses.set(chosen, polling_enabled=False))
        say(f"{box}: paused")
        return
    _change(context, box, lambda pauses, chosen: pauses.forget(chosen))
    stopped = globals_of(context).boxes().resolved.settings.polling_auto_disabled
    reason = f"polling_auto_disabled is {'true' if stopped else 'false'}"
    say(f"{box}: {'paused' if stopped else 'running'}, as {reason}")


def resume(context: typer.Context, box: BoxName) -> None:
    """Let a paused box go on, in every worker, within a few seconds.

    This holds until the next pause, also where polling_auto_disabled is true.
    """
    _change(context, box, lambda pauses, chosen: pauses.set(chosen, polling_enabled=True))
    say(f"{box}: resumed")


def _change(context: typer.Context, name: str, change: Callable[[Pauses, Box], None]) -> None:
    from boxengine.adapters.redis.pauses import RedisPauses  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.redis_server import redis_client  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    box = boxes.box(name)
    with redis_client(boxes.resolved.settings) as client:
        change(RedisPauses(client), box)
