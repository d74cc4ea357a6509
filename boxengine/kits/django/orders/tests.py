"""`python manage.py test` runs these on a database of their own, on the server of `DATABASE_URL`."""

import json
from contextlib import redirect_stdout
from io import StringIO

from boxengine.testing import make_item
from django.core.management import call_command
from django.db import DataError
from django.test import TransactionTestCase

from orders.models import Order, OrderOutboxItem
from orders.services import place_order
from orders.transports import Announce


class OrdersAreAnnounced(TransactionTestCase):
    def test_the_migrations_make_what_the_models_say(self):
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)

    def test_an_order_and_its_event_commit_together(self):
        order = place_order("a bicycle")
        item = OrderOutboxItem.objects.get()
        self.assertEqual((item.event_name, item.event_key), ("order_placed", str(order.pk)))
        self.assertEqual(json.loads(item.payload), {"id": order.pk, "title": "a bicycle"})

    def test_an_order_that_fails_announces_nothing(self):
        with self.assertRaises(DataError):
            place_order("x" * 101)
        self.assertEqual((Order.objects.count(), OrderOutboxItem.objects.count()), (0, 0))

    def test_the_transport_prints_the_event(self):
        item = make_item(event_name="order_placed", event_key=7, payload={"id": 7})
        with redirect_stdout(StringIO()) as printed:
            Announce()(item, item.payload)
        self.assertEqual(printed.getvalue(), 'order_placed 7 {"id": 7}\n')
