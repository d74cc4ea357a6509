"""What the shop does; each function is one transaction."""

from django.db import transaction

from orders.models import Order
from orders.tasks import send_receipt


def place_order(what: str) -> Order:
    """The order announces itself."""
    with transaction.atomic():
        order: Order = Order.objects.create(what=what)
    return order


def pay(order: Order) -> str:
    """Announces the change and has a receipt sent, both only if this commits. Returns the id of the task's result."""
    with transaction.atomic():
        order.paid = True
        order.save()
        return str(send_receipt.enqueue(order.pk).id)
