"""Orders placed in ``atomic()`` blocks, some rolled back, and a worker that is killed meanwhile: what became of them.

``make proof-django`` plays 10,000 orders; the suite plays fewer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.eventually import eventually
from tests.integration.django.project import DjangoProject
from tests.servers.databases import fresh_postgres_database

CUSTOMERS = 100
PATIENCE = 1800.0
"""Seconds; a shared machine may take long for 10,000 transactions."""
MODELS = """
    from django.db import models

    from boxengine.integrations.django.models import OutboxItem


    class Order(models.Model):
        customer = models.IntegerField()


    class OrderOutboxItem(OutboxItem):
        pass
    """
TRANSPORTS = """
    class Announce:
        def __init__(self, *, path):
            self.path = path

        def __call__(self, item, payload):
            with open(self.path, "a") as file:
                file.write(f"{item.event_key} {payload.decode()}\\n")
    """
BOXES = """
    BOXENGINE = {
        "redis": {"url": os.environ["REDIS_URL"]},
        "probes": {"enabled": False},
        "outbox_items": {
            "order_outbox_item": {
                "strict_order": "key",
                "transports": {"orders.transports.Announce": {"path": "announced.txt"}},
            },
        },
    }
    """
PLACE = """
    from django.db import transaction
    from boxengine.integrations.django import create_outbox_item
    from orders.models import Order, OrderOutboxItem

    for number in range({orders}):
        try:
            with transaction.atomic():
                order = Order.objects.create(customer=number % {customers})
                create_outbox_item(OrderOutboxItem, event_key=order.customer, payload=str(order.pk))
                if number % 5 == 0:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    """
LEFT = """
    from orders.models import Order, OrderOutboxItem

    print("pending", OrderOutboxItem.objects.exclude(status=2).count())
    print(*(f"{order.customer} {order.pk}" for order in Order.objects.order_by("pk")), sep="\\n")
    """


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the transport was given, compared with the orders that were committed."""

    committed: int
    lost: int
    """Orders that were never announced."""
    phantom: int
    """Announcements of orders that were rolled back."""
    again: int
    """Announcements beyond the first of an order, which a kill explains."""
    overtaken: int
    """First announcements that came before one of an earlier order of the same customer."""


def play(shop: DjangoProject, *, orders: int, kills: int) -> Verdict:
    """Places the orders while the worker is killed that many times, and waits until nothing is pending."""
    shop.configure(BOXES)
    shop.write("orders/models.py", MODELS)
    shop.write("orders/transports.py", TRANSPORTS)
    shop.write("orders/admin.py", "")
    shop.set_up()
    wanted = orders - len(range(0, orders, 5))
    placing = shop.start(
        "shell", "--no-imports", "--command", textwrap.dedent(PLACE.format(orders=orders, customers=CUSTOMERS))
    )
    try:
        for kill in range(1, kills + 1):
            worker = shop.start_worker()
            try:
                eventually(lambda: len(shop.announced()) >= wanted * kill / (kills + 2), patience=PATIENCE)  # noqa: B023 - called here
            finally:
                worker.kill()
                worker.wait()
        with shop.worker():
            eventually(lambda: len({*shop.announced()}) >= wanted and placing.poll() is not None, patience=PATIENCE)
        assert placing.wait() == 0
    finally:
        placing.kill()
        placing.wait()
    return _verdict(shop)


def _verdict(shop: DjangoProject) -> Verdict:
    pending, *committed = shop.python(LEFT, head="").splitlines()
    assert pending == "pending 0"
    told = shop.announced()
    counts = Counter(told)
    latest: dict[str, int] = {}
    overtaken = 0
    for customer, order in (line.split() for line in counts):  # in the order of the first announcements
        overtaken += int(order) < latest.get(customer, 0)
        latest[customer] = max(latest.get(customer, 0), int(order))
    return Verdict(
        committed=len(committed),
        lost=len(set(committed) - counts.keys()),
        phantom=len(counts.keys() - set(committed)),
        again=len(told) - len(counts),
        overtaken=overtaken,
    )


def main() -> int:
    """Plays it on servers of its own; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=2)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(folder=Path(folder, "postgres")) as postgres,
        EmbeddedValkey(folder=Path(folder, "valkey")) as valkey,
        fresh_postgres_database(postgres.url()) as url,
    ):
        verdict = play(
            DjangoProject(Path(folder, "shop"), database=url, redis=valkey.url()),
            orders=asked.orders,
            kills=asked.kills,
        )
    print(verdict)
    return 1 if verdict.lost or verdict.phantom or verdict.overtaken else 0


if __name__ == "__main__":
    sys.exit(main())
