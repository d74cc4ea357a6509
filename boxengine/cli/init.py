"""``boxengine init``: a first configuration and a first transport."""

from __future__ import annotations

from pathlib import Path

from boxengine.cli.context import output
from boxengine.errors import BoxError

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


def init() -> None:
    """Write a first outbox.yml and transports.py into this folder. Nothing that is there is overwritten."""
    files = {Path("outbox.yml"): CONFIGURATION, Path("transports.py"): TRANSPORT}
    for path in files:
        if path.exists():
            raise BoxError(f"{path} is there already; nothing was written")
    for path, content in files.items():
        path.write_text(content)
        output().print(f"wrote {path}")
    output().print(
        "Next: set database.url and redis.url, then\n"
        "  boxengine db create\n"
        "  boxengine create order_outbox_item --event-key 1 --payload hello\n"
        "  boxengine start"
    )
