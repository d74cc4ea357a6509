"""What is to be done after a commit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_tasks import task  # type checkers are told of one; both have the same names
else:
    try:
        from django.tasks import task
    except ModuleNotFoundError:  # before Django 6.0
        from django_tasks import task


@task
def send_receipt(order_id: int) -> str:
    """Sends it; returns its number."""
    print("receipt for order", order_id, flush=True)
    return f"R{order_id}"
