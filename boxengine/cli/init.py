"""``boxengine init``: a first configuration and a first transport."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boxengine.cli.context import output
from boxengine.errors import BoxError

Kits = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Write a kit: fastapi, django, docker, compose, systemd, helm, kubernetes, monitoring; repeatable.",
        metavar="KIT",
    ),
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
    """Write a first outbox.yml and transports.py into this folder, or a kit: an application, or what a deployment needs.

    Existing files are kept. In a folder that has an outbox.yml or config/outbox.yml, --with writes only the kit's files.

    Examples: boxengine init; boxengine init --with fastapi --with docker; boxengine init --with helm
    """
    from boxengine.cli.kits import APPLICATIONS, KITS, NEXT, READING, content  # noqa: PLC0415 - most commands need none of it
    from boxengine.settings.files import USUAL_PLACES  # noqa: PLC0415

    asked = list(dict.fromkeys(with_ or []))
    if unknown := [name for name in asked if name not in KITS]:
        raise typer.BadParameter(f"expected one of {', '.join(KITS)}, got {unknown[0]!r}", param_hint="--with")
    configured = [place for place in USUAL_PLACES if Path(place).exists()]
    brings_its_own = configured or APPLICATIONS.intersection(asked)
    texts = {} if asked and brings_its_own else {"outbox.yml": CONFIGURATION, "transports.py": TRANSPORT}
    # An application's files work with all other kits, but not the other way around.
    for name in sorted(asked, key=lambda kit: kit not in APPLICATIONS):
        texts = {target: content(source) for target, source in KITS[name].items()} | texts
    there = [path for path in texts if Path(path).exists()]
    if not asked:
        there = list(dict.fromkeys([*configured, *there]))
    if len(there) == len(texts) or (there and not asked):
        raise BoxError(f"already there: {', '.join(there)}; nothing was written")
    for path, text in texts.items():
        if path in there:
            output().print(f"kept {path}, which exists already")
            continue
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
        output().print(f"wrote {path}")
    for name in asked:
        output().print(f"{name}: {NEXT[name]}", markup=False)
    if READING.intersection(asked) and configured and not Path("outbox.yml").exists():
        output().print(
            f"These files name outbox.yml: move {configured[0]} to this folder, or write its place into them."
        )
    if not asked:
        output().print(
            "Next: set DATABASE_URL and REDIS_URL (`boxengine servers` starts both for development and prints them), then\n"
            "  boxengine db create\n"
            "  boxengine create order_outbox_item --event-key 1 --payload hello\n"
            "  boxengine start"
        )
