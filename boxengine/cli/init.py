"""``boxengine init``: a first configuration and a first transport."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boxengine.cli.context import output
from boxengine.errors import BoxError

Kits = Annotated[
    list[str] | None,
    typer.Option("--with", help="Also write compose, docker, monitoring or systemd files; repeatable.", metavar="KIT"),
]

CONFIGURATION = """\
# boxengine reads this file; `boxengine config check` tells what is wrong with it, outbox.yml.example lists every key.
database:
  url: ${DATABASE_URL:-postgresql+psycopg://postgres@127.0.0.1/postgres}
redis:
  url: ${REDIS_URL:-redis://127.0.0.1:6379/0}

outbox_items:
  order_outbox_item:              # the table is order_outbox_items
    max_retries: 5
    strict_order: key             # an item that fails holds back its own key, and nothing else
    transports:
      transports.Print: {}        # dotted path of your class; its arguments go between the braces
"""
TRANSPORT = '''\
"""Where items go: a transport is any class whose instances can be called with an item and its payload."""


class Print:
    """Prints each item. Raise, or return False or boxengine.Failure("why"), and it is tried again."""

    def __call__(self, item, payload):
        print(item.event_key, payload.decode(), flush=True)
'''


def init(with_: Kits = None) -> None:
    """Write a first outbox.yml and transports.py into this folder. Nothing that is there is overwritten.

    With --with, in a folder that has an outbox.yml already, only the kit's files are written.

    Examples: boxengine init; boxengine init --with compose; boxengine init --with systemd --with monitoring
    """
    from boxengine.cli.kits import KITS, NEXT, content  # noqa: PLC0415 - most commands need none of it

    asked = list(dict.fromkeys(with_ or []))
    if unknown := [name for name in asked if name not in KITS]:
        raise typer.BadParameter(f"expected one of {', '.join(KITS)}, got {unknown[0]!r}", param_hint="--with")
    first = {"outbox.yml": CONFIGURATION, "transports.py": TRANSPORT}
    texts = {} if asked and Path("outbox.yml").exists() else first
    texts = texts | {target: content(source) for name in asked for target, source in KITS[name].items()}
    for path in texts:
        if Path(path).exists():
            raise BoxError(f"{path} is there already; nothing was written")
    for path, text in texts.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
        output().print(f"wrote {path}")
    for name in asked:
        output().print(f"{name}: {NEXT[name]}", markup=False)
    if not asked:
        output().print(
            "Next: set database.url and redis.url, then\n"
            "  boxengine db create\n"
            "  boxengine create order_outbox_item --event-key 1 --payload hello\n"
            "  boxengine start"
        )
