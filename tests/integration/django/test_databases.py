"""Several of Django's databases: ``using=``, routers, a worker for each, and how their addresses reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.django.project import DjangoProject


def test_items_reach_the_worker_of_the_database_that_they_were_written_to(
    tmp_path: Path, postgres_url: str, mysql_url: str, redis_url: str
) -> None:
    """The second worker has boxes of the same names, on the same Redis."""
    shop = DjangoProject(tmp_path, database=postgres_url, redis=redis_url, archive=mysql_url)
    shop.set_up()
    shop.migrate("--database", "archive")
    assert "make the index" in shop.migrated
    with shop.worker(), shop.worker("--database", "archive"):
        shop.python(
            """
    for alias in ("default", "archive"):
        with transaction.atomic(using=alias):
            order = Order.objects.using(alias).create(pk=1, what=alias)
            create_outbox_item(OrderOutboxItem, using=alias, event_key=order.pk, payload=alias)
    # Announce looks for its order in Django's default database, where this one is, too.
    create_outbox_batch(OrderOutboxItem, [{"event_key": 1, "payload": b"again"}] * 5, using="archive")
    """
        )
        eventually(lambda: len(shop.announced()) == 7)
    assert sorted(shop.announced()) == ["1 again"] * 5 + ["1 archive", "1 default"]
    counts = """
    for alias in ("default", "archive"):
        print(alias, list(OrderOutboxItem.objects.using(alias).values_list("status", flat=True).order_by("pk")))
    """
    assert "default [2]\narchive [2, 2, 2, 2, 2, 2]" in shop.python(counts)
    assert "order_outbox_item" in shop.manage("boxengine", "--database=archive", "status")
    assert "expected one of default, archive, got 'archiv'" in shop.manage(
        "boxengine", "--database", "archiv", "status", expect=1
    )


def test_a_box_stands_only_in_the_databases_that_the_routers_allow(fresh: DjangoProject) -> None:
    fresh.write(
        "routers.py",
        """
    class PaymentsElsewhere:
        def allow_migrate(self, alias, app_label, model_name=None, **hints):
            return (alias == "elsewhere") == (model_name == "paymentinboxitem")
    """,
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('DATABASE_ROUTERS = ["routers.PaymentsElsewhere"]\nDATABASES["elsewhere"] = DATABASES["default"]\n')
    shown = fresh.python(
        """
    from boxengine.integrations.django.configuration import completed
    for alias in ("default", "elsewhere"):
        found = completed(alias)
        print(alias, found["redis"].get("prefix"), list(found["outbox_items"]), list(found["inbox_items"]))
    """
    )
    assert "default None ['order_outbox_item'] []" in shown
    assert "elsewhere elsewhere: [] ['payment_inbox_item']" in shown


@pytest.mark.parametrize(
    ("database", "url"),
    [
        (
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "a shop",
                "USER": "ann@shop",
                "PASSWORD": "p:/?#",
                "HOST": "::1",
                "PORT": 5433,
                "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "pool": True},
            },
            "postgresql+psycopg://ann%40shop:p%3A%2F%3F%23@[::1]:5433/a shop?sslmode=verify-full&sslrootcert=%2Fca.pem",
        ),
        (
            {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": "/run/postgresql", "PORT": "5433"},
            "postgresql+psycopg:///shop?host=%2Frun%2Fpostgresql&port=5433",
        ),
        (
            {
                "ENGINE": "django.db.backends.mysql",
                "NAME": "shop",
                "USER": "ann",
                "HOST": "/run/mysqld.sock",
                "OPTIONS": {"ssl": {"ca": "/ca.pem"}, "charset": "utf8mb4"},
            },
            "mysql+pymysql://ann@/shop?ssl_ca=%2Fca.pem&unix_socket=%2Frun%2Fmysqld.sock",
        ),
    ],
)
def test_the_address_of_a_database_tells_all_that_a_worker_needs(database: dict[str, object], url: str) -> None:
    from boxengine.integrations.django.addresses import url_of

    vendor = str(database["ENGINE"]).rpartition(".")[2]
    assert url_of(vendor, database) == url
