"""Several of Django's databases: ``using=``, routers, a worker for each, and how their addresses reach it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from tests.eventually import eventually
from tests.integration.django.project import IMPORTS, DjangoProject


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
    both = """
    from django.core.management import call_command
    call_command("boxengine", "items", "show", "order_outbox_item", "1")
    call_command("boxengine", "items", "show", "order_outbox_item", "6", database="archive")
    """
    assert shop.python(both).count("delivered") == 2
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


def test_a_test_may_override_the_routers(fresh: DjangoProject) -> None:
    fresh.write(
        "routers.py",
        """
    class OrdersElsewhere:
        def db_for_write(self, model, **hints):
            return "elsewhere" if model.__name__ == "OrderOutboxItem" else None

        def allow_migrate(self, alias, app_label, model_name=None, **hints):
            return (alias == "elsewhere") == (model_name == "orderoutboxitem")
    """,
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('DATABASE_ROUTERS = ["routers.OrdersElsewhere"]\nDATABASES["elsewhere"] = DATABASES["default"]\n')
    shown = fresh.python(
        """
    from django.test import override_settings
    from boxengine.integrations.django.configuration import boxes

    def known(alias):
        return "order_outbox_item" in boxes(alias).resolved.pipelines

    print(known("default"), known("elsewhere"))
    with override_settings(DATABASE_ROUTERS=[]):
        print(known("default"), known("elsewhere"))
    print(known("default"), known("elsewhere"))
    """
    )
    assert shown.splitlines() == ["False True", "True True", "False True"]


def test_items_that_go_to_another_database_than_the_workers_are_found_by_djangos_checks(fresh: DjangoProject) -> None:
    """The worker would find the table that migrate has made in its own database, and never an item."""
    fresh.write("routers.py", "class Primary:\n    def db_for_write(self, model, **hints):\n        return 'primary'\n")
    with (fresh.folder / "settings.py").open("a") as file:
        file.write(
            'DATABASE_ROUTERS = ["routers.Primary"]\nDATABASES["primary"] = DATABASES["default"] | {"NAME": "p"}\n'
        )
    told = fresh.manage("check")
    said = "its items are written to the database 'primary', and manage.py boxengine start delivers those in 'default'"
    assert f"orders.OrderOutboxItem: (boxengine.W003) {said}" in told
    assert (
        "HINT: Name 'primary' in BOXENGINE_DATABASE, or run manage.py boxengine --database primary start, too." in told
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('BOXENGINE_DATABASE = "primary"\n')
    assert "boxengine" not in fresh.manage("check")


def test_urls_for_the_worker_lead_to_the_main_database_alone(fresh: DjangoProject) -> None:
    """A worker of another one delivered from the main one, and its own items waited for ever."""
    with (fresh.folder / "settings.py").open("a") as file:
        file.write(
            'DATABASES["archive"] = DATABASES["default"] | {"NAME": "archive"}\n'
            'MAIN, REPLICA = "postgresql://past-the-pooler/shop", "postgresql://replica/shop"\n'
            'BOXENGINE["database"] = {"url": MAIN, "replica_url": REPLICA, "listen_url": MAIN, "comments": True}\n'
        )
    shown = fresh.python(
        """
    from boxengine.integrations.django.configuration import boxes
    for alias in ("default", "archive"):
        found = boxes(alias).resolved.settings.database
        print(alias, found.url.rpartition("/")[2], found.replica_url, found.listen_url, found.comments)
    """
    )
    main = "postgresql://past-the-pooler/shop"
    assert f"default shop postgresql://replica/shop {main} True" in shown
    assert "archive archive None None True" in shown


def test_the_admin_acts_on_the_database_that_a_test_uses(fresh: DjangoProject) -> None:
    """Django's tests rename the database, and those with ``--parallel`` once more in each process."""
    shown = fresh.python(
        """
    from django.db import connections
    from boxengine.integrations.django.configuration import boxes
    boxes()
    connections["default"].settings_dict["NAME"] = "test_shop_2"
    print(boxes().resolved.settings.database.url)
    """
    )
    assert "/test_shop_2" in shown


REPLICA = """
    DATABASES["replica"] = {**DATABASES["default"], "OPTIONS": {"options": "-c default_transaction_read_only=on"}}
    DATABASE_ROUTERS = ["routers.ReadFromReplica"]
    """
READ_FROM_REPLICA = """
    class ReadFromReplica:
        def db_for_read(self, model, **hints):
            return "replica"

        def db_for_write(self, model, **hints):
            return "default"

        def allow_relation(self, one, other, **hints):
            return True

        def allow_migrate(self, db, app_label, **hints):
            return db == "default"
    """
ANNOUNCED = """
    from django.db import models

    from boxengine.integrations.django.emitting import emits
    from boxengine.integrations.django.models import InboxItem, OutboxItem


    @emits("orders.OrderOutboxItem", payload=lambda order: order.what)
    class Order(models.Model):
        what = models.CharField(max_length=100)


    class OrderOutboxItem(OutboxItem):
        pass


    class PaymentInboxItem(InboxItem):
        pass
    """


def test_what_was_read_from_a_replica_is_announced_and_acted_on_where_it_is_written(fresh: DjangoProject) -> None:
    fresh.write("routers.py", READ_FROM_REPLICA)
    fresh.write("orders/models.py", ANNOUNCED)
    with (fresh.folder / "settings.py").open("a") as file:
        file.write(textwrap.dedent(REPLICA))
    fresh.set_up()
    printed = fresh.python(
        """
    from django.contrib.auth.models import User
    from django.test import Client
    from boxengine.integrations.django.emitting import emit

    Order.objects.create(what="a")
    Order.objects.update(what="b")
    order = Order.objects.get()
    print("read from", order._state.db)
    emit([order])
    first, second = OrderOutboxItem.objects.order_by("pk")
    print(bytes(first.payload), bytes(second.payload))

    browser = Client(headers={"host": "localhost"})
    browser.force_login(User.objects.create_superuser("ann"))
    chosen = {"action": "discard", "_selected_action": first.pk}
    answer = browser.post("/admin/orders/orderoutboxitem/", chosen, follow=True)
    print("1 changed" in answer.content.decode())
    print(list(OrderOutboxItem.objects.order_by("pk").values_list("status", flat=True)))
    """
    )
    assert "read from replica\nb'a' b'b'\nTrue\n[3, 0]" in printed


NAMESAKE = """
    from boxengine.integrations.django.models import OutboxItem


    class OrderOutboxItem(OutboxItem):
        pass
    """


def test_two_models_of_one_box_are_refused_in_one_database_and_may_stand_in_two(fresh: DjangoProject) -> None:
    """A worker delivers from one table: what is written to the other one would wait for ever."""
    fresh.write("billing/__init__.py", "")
    fresh.write("billing/models.py", NAMESAKE)
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('INSTALLED_APPS += ["billing"]\n')
    said = "orders.OrderOutboxItem and billing.OrderOutboxItem are both the box order_outbox_item"
    assert said in fresh.manage("check", expect=1)
    create = (
        "from billing.models import OrderOutboxItem as Second\ncreate_outbox_item(Second, event_key=1, payload=b'')"
    )
    assert said in fresh.manage("shell", "--no-imports", "-c", textwrap.dedent(IMPORTS) + create, expect=1)

    fresh.write(
        "routers.py",
        """
    class BillingElsewhere:
        def allow_migrate(self, alias, app_label, model_name=None, **hints):
            return (alias == "elsewhere") == (app_label == "billing")
    """,
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('DATABASE_ROUTERS = ["routers.BillingElsewhere"]\nDATABASES["elsewhere"] = DATABASES["default"]\n')
    shown = fresh.python(
        """
    from boxengine.integrations.django.configuration import completed
    for alias in ("default", "elsewhere"):
        print(alias, completed(alias)["outbox_items"]["order_outbox_item"]["table"])
    """
    )
    assert "default orders_orderoutboxitem" in shown
    assert "elsewhere billing_orderoutboxitem" in shown


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
        (
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "",
                "OPTIONS": {"service": "shop", "passfile": "/pass", "options": "-c x=y", "assume_role": "shop owner"},
            },
            "postgresql+psycopg:///?options=-c+x%3Dy+-c+role%3Dshop%5C+owner&passfile=%2Fpass&service=shop",
        ),
        (
            {"ENGINE": "django.db.backends.postgresql", "NAME": None, "HOST": "a,b", "PORT": "5432,5433"},
            "postgresql+psycopg:///postgres?host=a%2Cb&port=5432%2C5433",
        ),
        (
            {
                "ENGINE": "django.db.backends.mysql",
                "OPTIONS": {"read_default_file": "/my.cnf", "init_command": "SET sql_mode='ANSI'", "charset": "latin1"},
            },
            "mysql+pymysql:///?charset=utf8mb4&init_command=SET+sql_mode%3D%27ANSI%27&read_default_file=%2Fmy.cnf",
        ),
        *(
            ({"ENGINE": "mysql", "NAME": "shop", "HOST": "db", "OPTIONS": options}, f"mysql+pymysql://db/shop?{query}")
            for options, query in (
                ({"ssl_mode": "REQUIRED"}, "ssl_check_hostname=false"),
                ({"ssl": True}, "ssl_check_hostname=false"),
                ({"ssl_mode": "DISABLED"}, "ssl_disabled=true"),
                ({"ssl_mode": "VERIFY_CA", "ssl": {"ca": "ca"}}, "ssl_ca=ca&ssl_check_hostname=false"),
                ({"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": "ca"}}, "ssl_ca=ca&ssl_check_hostname=true"),
                ({"ssl_ca": "ca", "ssl_disabled": False}, "ssl_ca=ca"),
            )
        ),
    ],
)
def test_the_address_of_a_database_tells_all_that_a_worker_needs(database: dict[str, object], url: str) -> None:
    from boxengine.integrations.django.addresses import url_of

    vendor = str(database["ENGINE"]).rpartition(".")[2]
    assert url_of(vendor, database) == url


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ssl_mode": "VERIFY_IDENTITY"}, "ssl_mode VERIFY_IDENTITY needs a CA"),
        ({"ssl_mode": "MAYBE"}, "ssl_mode MAYBE is not understood"),
        ({"ssl": {"ca": "ca", "verify_mode": "optional"}}, "verify_mode cannot be carried over"),
        ({"ssl": object()}, "only as a dict of files"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(options: dict[str, object], told: str) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from boxengine.integrations.django.addresses import url_of

    with pytest.raises(ImproperlyConfigured, match=told):
        url_of("mysql", {"NAME": "shop", "OPTIONS": options})


def test_the_mode_of_tls_is_read_from_the_file_with_defaults(tmp_path: Path) -> None:
    from boxengine.integrations.django.addresses import url_of

    file = tmp_path / "my.cnf"
    file.write_text("[client]\nssl_mode = VERIFY_CA\nssl-ca = /ca.pem\nskip-auto-rehash\n")
    assert "ssl_check_hostname=false" in url_of("mysql", {"NAME": "shop", "OPTIONS": {"read_default_file": str(file)}})


def test_a_worker_reaches_a_server_of_which_only_a_file_tells(tmp_path: Path, mysql_url: str, redis_url: str) -> None:
    address = make_url(mysql_url)
    (tmp_path / "my.cnf").write_text(
        f"[client]\nhost = {address.host}\nport = {address.port}\nuser = {address.username}\n"
    )
    shop = DjangoProject(tmp_path, database=mysql_url, redis=redis_url)
    with (shop.folder / "settings.py").open("a") as file:
        file.write(
            'DATABASES["default"] = {"ENGINE": "django.db.backends.mysql", "NAME": DATABASES["default"]["NAME"],\n'
            f'    "OPTIONS": {{"read_default_file": "{tmp_path}/my.cnf", "init_command": "SET @told = 1"}}}}\n'
        )
    shop.set_up()
    assert "make the index" in shop.migrated
    assert "all in order" in shop.manage("boxengine", "db", "check")


def test_a_refused_option_is_told_by_djangos_checks_unless_the_worker_has_a_url_of_its_own(
    tmp_path: Path, mysql_url: str, redis_url: str
) -> None:
    shop = DjangoProject(tmp_path, database=mysql_url, redis=redis_url)
    with (shop.folder / "settings.py").open("a") as file:
        file.write('DATABASES["default"]["OPTIONS"] = {"ssl": {"verify_mode": None}}\n')
    told = shop.manage("check", expect=1)
    assert "boxengine.E001" in told
    assert "DATABASES['default']: OPTIONS: ssl: verify_mode cannot be carried over" in told
    with (shop.folder / "settings.py").open("a") as file:
        file.write(f'BOXENGINE["database"] = {{"url": "{mysql_url}"}}\n')
    assert "boxengine" not in shop.manage("check")


def test_migrate_passes_by_a_database_without_boxes_that_no_worker_could_reach(fresh: DjangoProject) -> None:
    fresh.write(
        "routers.py",
        """
    class Legacy:
        def allow_migrate(self, alias, app_label, **hints):
            return alias == "default"
    """,
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write(
            "import pymysql\npymysql.install_as_MySQLdb()\n"
            'DATABASES["legacy"] = {"ENGINE": "django.db.backends.mysql", "OPTIONS": {"ssl": {"verify_mode": None}}}\n'
            'DATABASE_ROUTERS = ["routers.Legacy"]\n'
        )
    fresh.python(
        """
    from boxengine.integrations.django.completing import after_migrate
    after_migrate(using="legacy", plan=[])
    """
    )
    fresh.write("routers.py", "class Legacy: ...\n")
    printed = fresh.python(
        """
    import sys
    from boxengine.integrations.django.completing import after_migrate
    after_migrate(using="legacy", plan=[], stdout=sys.stdout)
    """
    )
    assert "cannot add indexes: DATABASES['legacy']: OPTIONS: ssl: verify_mode cannot be carried over" in printed


def test_a_worker_takes_on_the_role_that_django_assumes(postgres_url: str) -> None:
    from boxengine.integrations.django.addresses import url_of

    address = make_url(postgres_url)
    role = f"shop owner {address.database}"
    settings = {
        "NAME": address.database,
        "USER": address.username,
        "PASSWORD": address.password,
        "HOST": address.host,
        "PORT": address.port,
        "OPTIONS": {"assume_role": role},
    }
    owner, worker = create_engine(postgres_url), create_engine(url_of("postgresql", settings), poolclass=NullPool)
    with owner.begin() as connection:
        connection.execute(text(f'CREATE ROLE "{role}"'))
    try:
        with worker.connect() as connection:
            assert connection.scalar(text("SELECT current_user")) == role
    finally:
        with owner.begin() as connection:
            connection.execute(text(f'DROP ROLE "{role}"'))
        owner.dispose()
