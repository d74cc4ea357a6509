"""``@emits`` on Django models: what is announced, with what, and in which transaction."""

from __future__ import annotations

import textwrap

import pytest

from tests.integration.django.project import DjangoProject

MODELS = """
    from django.db import models

    from boxengine.integrations.django.emitting import emits
    from boxengine.integrations.django.models import OutboxItem


    class OrderOutboxItem(OutboxItem):
        pass


    @emits("orders.OrderOutboxItem", payload=lambda order: order.what)
    @emits(
        OrderOutboxItem,
        on=["update"],
        when=lambda order, change: change.before.get("paid") is False and order.paid,
        event_name="order_paid",
        event_key="customer",
        payload=lambda order, change: str(sorted(change.before)),
        options=lambda order: {"headers": {"customer": order.customer}},
    )
    class Order(models.Model):
        what = models.CharField(max_length=100)
        customer = models.CharField(max_length=20, default="ann")
        paid = models.BooleanField(default=False)
        total = models.IntegerField(default=0)


    class LateOrder(Order):
        class Meta:
            proxy = True


    class GiftOrder(Order):
        wrapping = models.CharField(max_length=20)


    @emits(OrderOutboxItem, on=["delete"], event_name="voucher_gone", payload=lambda voucher: voucher.code)
    class Voucher(Order):
        code = models.CharField(max_length=20)


    class Unannounced(models.Model):
        pass
    """
BOXES = """
    BOXENGINE = {"redis": {"url": os.environ["REDIS_URL"]}, "outbox_items": {"order_outbox_item": {}}}
    """
HEAD = """
    from django.db import connection, models, transaction
    from boxengine.errors import InvalidItem
    from boxengine.integrations.django.emitting import emit
    from orders.models import GiftOrder, LateOrder, Order, OrderOutboxItem, Unannounced, Voucher

    def told():
        rows = OrderOutboxItem.objects.order_by("pk")
        found = [(row.event_name, row.event_key, bytes(row.payload).decode()) for row in rows]
        rows.delete()
        return found
    """


def _written(project: DjangoProject) -> DjangoProject:
    project.configure(BOXES)
    project.write("orders/models.py", MODELS)
    project.write("orders/admin.py", "")
    return project


@pytest.fixture
def shop(blank: DjangoProject) -> DjangoProject:
    _written(blank).set_up()
    return blank


def test_what_save_and_delete_change_is_announced_in_the_same_transaction(shop: DjangoProject) -> None:
    shop.python(
        """
    order = Order.objects.create(what="bicycle")
    key = str(order.pk)
    assert told() == [("order_created", key, "bicycle")]

    order.save()
    assert told() == []                                   # nothing has another value

    order.what = "tandem"
    order.save()
    assert told() == [("order_updated", key, "tandem")]

    order.what, order.total = "unwritten", 3
    order.save(update_fields=["total"])
    assert told() == [("order_updated", key, "unwritten")]
    order.refresh_from_db()

    stale = Order.objects.get(pk=order.pk)
    order.paid, order.total = True, 4
    order.save()
    row = OrderOutboxItem.objects.get(event_name="order_paid")
    assert row.options == {"headers": {"customer": "ann"}}
    assert told() == [("order_paid", "ann", "['paid', 'total']"), ("order_updated", key, "tandem")]
    stale.paid, stale.total = True, 4                     # as the row has them by now
    stale.save()
    assert told() == []

    order.total = models.F("total") + 1
    order.save()
    assert told() == [("order_updated", key, "tandem")]

    Order.objects.defer("what").get(pk=order.pk).save()
    assert told() == []

    late = LateOrder.objects.get(pk=order.pk)
    late.what = "late"
    late.save()
    assert told() == [("order_updated", key, "late")]     # through a proxy

    LateOrder.objects.create(what="gone").delete()
    LateOrder.objects.create(what="gone")
    LateOrder.objects.filter(what="gone").delete()
    assert [name.rpartition("_")[2] for name, *_ in told()] == ["created", "deleted"] * 2

    Voucher.objects.create(what="voucher", code="1").delete()
    assert sorted(name for name, *_ in told()) == ["order_deleted", "voucher_created", "voucher_gone"]

    gift = GiftOrder.objects.create(what="gift", wrapping="red")
    gift.delete()
    assert [name for name, *_ in told()] == ["gift_order_created", "order_deleted"]

    Order.objects.update_or_create(what="late", defaults={"customer": "bob"})
    Order.objects.all().delete()
    assert [name for name, *_ in told()] == ["order_updated", "order_deleted"]
    """,
        head=HEAD,
    )


def test_an_object_without_a_file_has_not_changed_since_it_was_created(fresh: DjangoProject) -> None:
    _written(fresh)
    models = (fresh.folder / "orders/models.py").read_text()
    fresh.write(
        "orders/models.py",
        models
        + textwrap.dedent(
            """

    @emits("orders.OrderOutboxItem", payload=lambda scan, change: repr(sorted(change.before)))
    class Scan(models.Model):
        file = models.FileField(null=True, blank=True)
    """
        ),
    )
    fresh.set_up()
    fresh.python(
        """
    from orders.models import Scan
    scan = Scan.objects.create()
    scan.save()
    scan.file = "a.png"
    scan.save()
    assert [payload for *_, payload in told()] == ["[]", "['file']"]
    """,
        head=HEAD,
    )


def test_a_new_object_whose_key_comes_from_the_database_is_not_looked_for(fresh: DjangoProject) -> None:
    """A look for a row with a key that each row is given anew would read the whole table."""
    _written(fresh)
    with (fresh.folder / "orders/models.py").open("a") as file:
        file.write(
            textwrap.dedent(
                """

    from django.contrib.postgres.functions import RandomUUID

    @emits("orders.OrderOutboxItem", payload=lambda parcel: parcel.what)
    class Parcel(models.Model):
        id = models.UUIDField(primary_key=True, db_default=RandomUUID())
        what = models.CharField(max_length=100)
    """
            )
        )
    fresh.set_up()
    fresh.python(
        """
    from django.test.utils import CaptureQueriesContext
    from orders.models import Parcel
    with CaptureQueriesContext(connection) as queries:
        parcel = Parcel.objects.create(what="a bell")
    assert not [each["sql"] for each in queries if "FOR UPDATE" in each["sql"]]
    parcel.what = "a horn"
    parcel.save()
    assert told() == [("parcel_created", str(parcel.pk), "a bell"), ("parcel_updated", str(parcel.pk), "a horn")]
    """,
        head=HEAD,
    )


def test_an_item_and_its_change_commit_together_or_not_at_all(shop: DjangoProject) -> None:
    shop.python(
        """
    try:
        with transaction.atomic():
            Order.objects.create(what="bicycle")
            assert len(told()) == 1, "it is there before the commit: a crash behind it loses nothing"
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert told() == [] and not Order.objects.exists()

    order = Order(what=b"not text".decode(), customer="x" * 300)   # an event key of 300 characters, the column has 255
    order.what = None                                              # a payload of None is refused
    for attempt in (order, Order(what=1)):
        try:
            attempt.save()                                         # with no transaction open
        except Exception as error:
            print("refused", type(error).__name__)
    assert told() == [] and not Order.objects.exists()
    """,
        head=HEAD,
    )


def test_statements_that_send_no_signals_emit_when_asked(shop: DjangoProject) -> None:
    shop.python(
        """
    with transaction.atomic():
        orders = Order.objects.bulk_create([Order(what="a"), Order(what="b")])
        assert told() == []
        orders = orders if orders[0].pk else list(Order.objects.order_by("pk"))
        ids = emit(orders, action="insert")
    assert len(set(ids)) == 2
    assert [(name, payload) for name, _, payload in told()] == [("order_created", "a"), ("order_created", "b")]

    Order.objects.update(total=9)
    assert told() == []
    for wrong in (lambda: emit([Unannounced()]), lambda: emit(orders, action="upsert")):
        try:
            wrong()
        except InvalidItem as error:
            print(error)
        else:
            raise AssertionError
    """,
        head=HEAD,
    )


def test_an_outbox_that_is_none_is_found_by_djangos_checks(fresh: DjangoProject) -> None:
    _written(fresh)
    fresh.write("orders/models.py", MODELS.replace('"orders.OrderOutboxItem"', '"orders.Unannounced"'))
    fresh.configure(BOXES.replace("order_outbox_item", "order_outbox_itm"))
    found = fresh.manage("check", expect=1)
    assert "boxengine.E004" in found
    assert "'orders.Unannounced' is no model of an outbox" in found
    assert "outbox_items.order_outbox_itm: no model has this box" in found
    assert "Did you mean order_outbox_item?" in found
