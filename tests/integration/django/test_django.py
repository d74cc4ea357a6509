"""A Django project with boxes: models, migrations, items in atomic blocks, and a worker, as the page on Django has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, inspect, text

from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION, wake
from boxengine.ports import Signal
from tests.eventually import eventually
from tests.integration.django.project import DjangoProject
from tests.integration.locking import locked
from tests.tidying import tidy_up


def test_items_commit_with_their_atomic_block_and_reach_a_transport_that_uses_the_orm(
    each_project: DjangoProject,
) -> None:
    project = each_project
    with project.worker():
        project.python(
            """
    for number in range(20):
        try:
            with transaction.atomic():
                order = Order.objects.create(what=f"bicycle {number}")
                create_outbox_item(OrderOutboxItem, event_key=order.pk, payload=order.what, tenant="acme")
                if number % 5 == 0:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    with transaction.atomic():
        order = Order.objects.create(what="tandem")
        create_inbox_item(PaymentInboxItem, event_key=order.pk, payload=b"")
    """
        )
        eventually(lambda: len(project.announced()) == 16)
        eventually(lambda: "True" in project.python('print(Order.objects.get(what="tandem").paid)'))
    wanted = {f"bicycle {number}" for number in range(20) if number % 5}
    assert {line.partition(" ")[2] for line in project.announced()} == wanted
    counts = "print(sorted(OrderOutboxItem.objects.values_list('status', 'tenant').distinct()))"
    assert "[(2, 'acme')]" in project.python(counts)


def test_a_transaction_notifies_unless_it_would_have_to_wait_for_another_and_then_after_its_commit(
    project: DjangoProject, postgres_url: str
) -> None:
    other = create_engine(postgres_url)
    told = """
    from django.db import connection

    with transaction.atomic():
        create_outbox_item(OrderOutboxItem, event_key="k", payload=b"")
    ran = [query["sql"].split("(")[0] for query in connection.queries]
    print("after" if ran[-1].startswith("SELECT pg_notify") and "COMMIT" in ran[-2] else "within")
    """
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as listening, other.begin() as first:
        listening.execute(f"LISTEN {CHANNEL}")
        assert "within" in project.python(told)
        assert len([*listening.notifies(timeout=30, stop_after=1)]) == 1
        wake(first, [Signal("another", None)], IN_TRANSACTION)
        assert "after" in project.python(told)
        (notice,) = listening.notifies(timeout=30, stop_after=1)
        assert notice.payload.startswith("order_outbox_item:")
    other.dispose()


def _without_servers(folder: Path) -> DjangoProject:
    return DjangoProject(folder, database="postgresql+psycopg://nobody@127.0.0.1/nothing", redis="redis://127.0.0.1")


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        (["shell", "--no-imports", "--command", "from orders.admin import *"], {"sqlalchemy", "redis", "pydantic"}),
        (["check"], {"sqlalchemy.orm", "redis", "boxengine.adapters.sql"}),
    ],
)
def test_what_creates_no_item_does_not_wait_for_what_writes_one(
    command: list[str], unneeded: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    told = _without_servers(tmp_path).manage(*command)
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "boxengine.integrations.django.creating" in imported
    assert unneeded & imported == set()


def test_a_server_imports_what_writes_items_before_its_first_request(tmp_path: Path) -> None:
    _without_servers(tmp_path)
    asked = "import django, sys; django.setup(); print('boxengine.integrations.django.rows' in sys.modules)"
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "REDIS_URL": "redis://127.0.0.1"}
    command = [sys.executable, "-c", asked]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_test_may_override_the_configuration(project: DjangoProject) -> None:
    told = project.python(
        """
    from boxengine.errors import InvalidItem
    from django.conf import settings
    from django.test import override_settings

    create_outbox_item(OrderOutboxItem, event_key="k", payload=b"1234")
    with override_settings(BOXENGINE={**settings.BOXENGINE, "max_payload_bytes": 3}):
        try:
            create_outbox_item(OrderOutboxItem, event_key="k", payload=b"1234")
        except InvalidItem:
            print("refused")
    create_outbox_item(OrderOutboxItem, event_key="k", payload=b"1234")
    print(OrderOutboxItem.objects.count())
    """
    )
    assert told.splitlines() == ["refused", "2"]


def test_migrate_completes_the_tables_and_a_second_one_finds_nothing_to_do(
    project: DjangoProject, postgres_url: str
) -> None:
    assert "make the index ix_orders_orderoutboxitem_pending" in project.migrated
    assert "make the index" not in project.migrate()
    upgraded = project.manage("boxengine", "db", "upgrade")
    assert "bucket_size 16 recorded" in upgraded
    assert "make the index" not in upgraded
    assert "nothing to do" in project.manage("boxengine", "db", "upgrade")
    assert "all in order" in project.manage("boxengine", "db", "check")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    engine = create_engine(postgres_url)
    indexes = {index["name"] for index in inspect(engine).get_indexes("orders_orderoutboxitem")}
    with engine.connect() as connection:
        settings = connection.scalar(text("SELECT reloptions FROM pg_class WHERE relname = 'orders_orderoutboxitem'"))
    engine.dispose()
    assert {"ix_orders_orderoutboxitem_pending", "ix_orders_orderoutboxitem_troubled"} <= indexes
    assert "autovacuum_vacuum_cost_delay=0" in settings


def test_migrate_leaves_columns_to_djangos_migrations(each_project: DjangoProject) -> None:
    """A column that stood there already would stop the migration that adds it."""
    models = (each_project.folder / "orders/models.py").read_text()
    each_project.write("orders/models.py", f"{models}    dedup_key = None\n")
    each_project.manage("makemigrations", "orders")
    each_project.migrate()
    each_project.write("orders/models.py", models)
    each_project.manage("makemigrations", "orders")
    assert "make the index ux_orders_paymentinboxitem_dedup" in each_project.migrate()
    assert "all in order" in each_project.manage("boxengine", "db", "check")


def test_migrate_names_a_table_that_somebody_has_locked(each_project: DjangoProject, database_url: str) -> None:
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.begin() as connection:
        table = "" if engine.dialect.name == "postgresql" else " ON orders_orderoutboxitem"
        connection.execute(text(f"DROP INDEX ux_orders_orderoutboxitem_dedup{table}"))
    with locked(engine, "orders_orderoutboxitem"):
        said = each_project.manage("migrate", expect=1)
    assert "CommandError: boxengine: table orders_orderoutboxitem does not answer: " in said
    assert "make the index ux_orders_orderoutboxitem_dedup" in each_project.migrate()


def test_a_table_may_be_in_a_schema_named_with_djangos_quotes(fresh: DjangoProject, postgres_url: str) -> None:
    models = (fresh.folder / "orders/models.py").read_text()
    fresh.write(
        "orders/models.py",
        models + "    class Meta:\n        db_table = 'sales\".\"payments'\n",
    )
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA sales"))
    fresh.set_up()
    assert "sales.payments: make the index" in fresh.migrated
    assert "2 boxes, all in order" in fresh.manage("boxengine", "db", "check")
    fresh.python("create_inbox_item(PaymentInboxItem, event_key=Order.objects.create().pk, payload=b'')")
    with fresh.worker():
        eventually(lambda: "True" in fresh.python("print(Order.objects.get().paid)"))


def test_migrate_leaves_a_table_alone_that_a_worker_would_not_find(fresh: DjangoProject, postgres_url: str) -> None:
    """As where a schema for each tenant is chosen on Django's connection."""
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
    fresh.manage("makemigrations", "orders")
    said = fresh.python(
        """
    from django.core.management import call_command
    from django.db import connection

    connection.cursor().execute("SET search_path TO tenant")
    call_command("migrate", run_syncdb=True)
    """
    )
    assert "orders_orderoutboxitem: no indexes added, because a worker's connection does not find this table" in said
    with engine.connect() as connection:
        assert not inspect(connection).has_table("orders_orderoutboxitem", schema="public")


def test_an_application_with_another_number_of_buckets_than_the_one_in_force_creates_nothing(
    project: DjangoProject,
) -> None:
    project.manage("boxengine", "db", "upgrade")
    settings = (project.folder / "settings.py").read_text()
    project.write("settings.py", settings.replace('"max_retries": 5', '"max_retries": 5, "bucket_size": 32'))
    printed = project.python(
        """
    from boxengine.errors import SchemaMismatch
    try:
        create_outbox_item(OrderOutboxItem, event_key=1, payload=b"")
    except SchemaMismatch as error:
        print(error, OrderOutboxItem.objects.count())
    """
    )
    assert "bucket_size is 32, but table 'orders_orderoutboxitem' was filled with 16" in printed
    assert printed.strip().endswith(" 0")


def test_batches_keep_their_order_and_a_key_that_is_there_gives_its_first_item_back(
    each_project: DjangoProject,
) -> None:
    printed = each_project.python(
        """
    with transaction.atomic():
        ids = create_outbox_batch(OrderOutboxItem, [{"event_key": n, "payload": b""} for n in range(100)])
        keyed = [create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", dedup_key="one") for _ in range(2)]
    print(ids == sorted(ids), len(set(ids)), keyed[0] == keyed[1], OrderOutboxItem.objects.count())
    """
    )
    assert "True 100 True 101" in printed


def test_items_have_their_ids_where_the_database_returns_none_from_a_bulk_insert(
    tmp_path: Path, mysql_url: str, redis_url: str
) -> None:
    """As MySQL itself, unlike MariaDB."""
    project = DjangoProject(tmp_path, database=mysql_url, redis=redis_url)
    project.set_up()
    printed = project.python(
        """
    from django.db import connection
    features = type(connection.features)
    features.can_return_columns_from_insert = features.can_return_rows_from_bulk_insert = False
    with transaction.atomic():
        ids = [create_outbox_item(OrderOutboxItem, event_key=1, payload=b"")]
        ids += create_outbox_batch(OrderOutboxItem, [{"event_key": n, "payload": b""} for n in range(10)])
    print(ids == list(OrderOutboxItem.objects.order_by("pk").values_list("pk", flat=True)), len(set(ids)))
    """
    )
    assert "True 11" in printed


def test_mistakes_are_told(fresh: DjangoProject) -> None:
    printed = fresh.python(
        """
    from datetime import datetime, timedelta
    from enum import Enum
    from boxengine.errors import InvalidItem
    Region = Enum("Region", ["EU"])
    for call in (
        lambda: create_outbox_item(PaymentInboxItem, event_key=1, payload=b""),
        lambda: create_outbox_item(Order, event_key=1, payload=b""),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", color="red"),
        lambda: create_outbox_item(OrderOutboxItem, payload=b""),
        lambda: create_outbox_item(OrderOutboxItem, event_key=Order(), payload=b""),
        lambda: create_outbox_item(OrderOutboxItem, event_key="k" * 256, payload=b""),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", event_name="n" * 256),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", event_name=Region.EU),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", available_at="2026-01-31T12:00"),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", available_at=timedelta(hours=1)),
        lambda: create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", available_at=datetime(2026, 1, 31)),
    ):
        try:
            call()
        except InvalidItem as error:
            print(error)
    """
    )
    assert "PaymentInboxItem is an inbox model: use create_inbox_item for it" in printed
    assert "a model of boxengine.integrations.django.models is needed" in printed
    assert "unknown attribute color" in printed
    assert "event_key is missing" in printed
    assert "event_key must be a text, a whole number or a UUID, not Order" in printed
    assert "event_key has 256 characters; its column takes 255 at most" in printed
    assert "event_name has 256 characters; its column takes 255 at most" in printed
    assert "give what is meant, such as Region.EU.value" in printed
    assert printed.count("available_at: expected a datetime with a zone") == 3


def test_without_use_tz_moments_are_in_djangos_zone_and_the_worker_knows_them(each_project: DjangoProject) -> None:
    settings = (each_project.folder / "settings.py").read_text()
    each_project.write("settings.py", settings.replace("USE_TZ = True", 'USE_TZ = False\nTIME_ZONE = "Asia/Tokyo"'))
    printed = each_project.python(
        """
    from datetime import UTC, datetime, timedelta

    from django.db import connection
    from django.db.models import Max

    local, zoned = datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 4, tzinfo=UTC)
    for moment in (local, zoned):
        create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", available_at=moment)
    zone = "AT TIME ZONE 'UTC'" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT available_at {zone} FROM orders_orderoutboxitem ORDER BY id")
        print("stored", *[each.isoformat() for each, in cursor.fetchall()])
    items = OrderOutboxItem.objects.order_by("pk")
    print("read", *[each.available_at.isoformat() for each in items])
    print("found", items.filter(available_at__lte=local).count(), items.aggregate(Max("available_at")))
    print("new", all(abs(datetime.now() - each.created_at) < timedelta(minutes=5) for each in items))
    """
    )
    assert "stored 2026-01-31T03:00:00 2026-01-31T04:00:00" in printed
    assert "read 2026-01-31T12:00:00 2026-01-31T13:00:00" in printed
    assert "found 1 {'available_at__max': datetime.datetime(2026, 1, 31, 13, 0)}" in printed
    assert "new True" in printed
    assert "No changes detected" in each_project.manage("makemigrations", "--check", "--dry-run")


def test_on_mysql_moments_are_in_utc_whatever_zone_djangos_connection_is_set_to(mariadb_project: DjangoProject) -> None:
    with (mariadb_project.folder / "settings.py").open("a") as file:
        file.write('DATABASES["default"]["TIME_ZONE"] = TIME_ZONE = "Asia/Tokyo"\n')
    printed = mariadb_project.python(
        """
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    from django.db import connection
    from django.db.models.functions import TruncDay

    create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", available_at=datetime(2026, 1, 31, 4, 30, tzinfo=UTC))
    with connection.cursor() as cursor:
        cursor.execute("SELECT available_at FROM orders_orderoutboxitem")
        print("stored", cursor.fetchone()[0].isoformat())
    print("read", OrderOutboxItem.objects.get().available_at.isoformat())
    field, day = OrderOutboxItem._meta.get_field("available_at"), datetime(2026, 1, 31, tzinfo=ZoneInfo("Asia/Tokyo"))
    print("truncated", field.from_db_value(day, TruncDay("available_at"), connection) == day)
    """
    )
    assert "truncated True" in printed
    assert "stored 2026-01-31T04:30:00" in printed
    assert "read 2026-01-31T04:30:00+00:00" in printed


def test_a_wrong_configuration_is_found_by_djangos_checks(fresh: DjangoProject) -> None:
    settings = (fresh.folder / "settings.py").read_text()
    fresh.write("settings.py", settings.replace('"max_retries": 5', '"max_retries": "many"'))
    assert "boxengine.E002" in fresh.manage("check", expect=1)
    assert "settings.BOXENGINE: outbox_items.order_outbox_item" in fresh.manage(
        "boxengine", "config", "check", expect=2
    )
    fresh.write("settings.py", settings.replace("BOXENGINE = {", "BOXENGINE = 'outbox.yml'\nOTHER = {"))
    assert "BOXENGINE must be a dict" in fresh.manage("check", expect=1)


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("sequence", '{"sequence": True, "transports": {"log": {}}}'),
        ("storage", '{"storage": "log", "transports": {"log": {}}}'),
        ("subscriptions", '{"storage": "log", "subscriptions": {"mail": {"transports": {"log": {}}}}}'),
    ],
)
def test_what_djangos_tables_cannot_have_is_refused(fresh: DjangoProject, key: str, lines: str) -> None:
    """A box with ``sequence`` was accepted, and none of its items had a number."""
    fresh.configure(f'BOXENGINE = {{"outbox_items": {{"order_outbox_item": {lines}}}}}')
    said = fresh.manage("check", expect=1)
    assert f"BOXENGINE: outbox_items.order_outbox_item.{key}: is not for the model orders.OrderOutboxItem" in said


def test_paths_and_texts_of_a_kind_of_their_own_may_stand_in_the_settings(fresh: DjangoProject) -> None:
    fresh.configure(
        """
    from pathlib import Path
    from django.utils.translation import gettext_lazy
    BOXENGINE = {
        "redis": {"prefix": gettext_lazy("shop:")},
        "outbox_items": {
            "order_outbox_item": {"transports": {"orders.transports.Announce": {"path": Path("announced.txt")}}}
        },
    }
    """
    )
    shown = fresh.python(
        """
    from boxengine.integrations.django.configuration import boxes
    settings = boxes().resolved.settings
    print(settings.redis.prefix, settings.boxes["order_outbox_item"].transports)
    """
    )
    assert "shop: " in shown
    assert "'path': 'announced.txt'" in shown


def test_what_no_configuration_can_hold_is_told_with_its_key(fresh: DjangoProject) -> None:
    fresh.configure(
        """
    from datetime import timedelta
    BOXENGINE = {"outbox_items": {"order_outbox_item": {"retention": timedelta(days=3), "transports": {"log": {}}}}}
    """
    )
    said = fresh.manage("check", expect=1)
    assert "BOXENGINE: outbox_items.order_outbox_item.retention: cannot be datetime.timedelta(days=3)" in said


def test_a_section_may_be_none_and_one_of_another_kind_is_told_with_its_key(fresh: DjangoProject) -> None:
    boxes = '"outbox_items": {"order_outbox_item": {"transports": {"log": {}}}}'
    none = '"redis": None, "database": None, "middlewares": None, "inbox_items": {"payment_inbox_item": None}'
    fresh.configure(f"BOXENGINE = {{{none}, {boxes}}}")
    fresh.manage("check")
    fresh.configure('BOXENGINE = {"outbox_items": ["order_outbox_item"]}')
    assert "BOXENGINE: outbox_items: expected a mapping" in fresh.manage("check", expect=1)


def test_another_command_goes_on_after_one_of_boxengines(project: DjangoProject) -> None:
    printed = project.python(
        """
    import io
    from django.core.management import CommandError, call_command
    out, err = io.StringIO(), io.StringIO()
    call_command("boxengine", "status", "order_outbox_item", "--json", stdout=out)
    print("taken", "order_outbox_item" in out.getvalue())
    call_command("boxengine", "items", "list", "order_outbox_item", "--status", "failed")
    print("goes on")
    call_command("boxengine", "--database=default", "db", "check")
    call_command("boxengine", "status", database="default")
    try:
        call_command("boxengine", "status", "nonesuch")
    except CommandError as error:
        print("refused", error.returncode, error)
    try:
        call_command("boxengine", "status", "nonesuch", stderr=err)
    except CommandError:
        print("told", "nonesuch" in err.getvalue())
    """
    )
    assert "taken True" in printed
    assert "told True" in printed
    assert printed.count("unknown box") == 1
    assert "goes on" in printed
    assert "2 boxes, all in order" in printed
    assert "refused 2 boxengine status nonesuch: exit code 2" in printed


def test_djangos_own_options_may_stand_anywhere(project: DjangoProject) -> None:
    (project.folder / "production").mkdir()
    project.write("production/live.py", "from settings import *\nBOXENGINE = {**BOXENGINE, 'owner': 'live-team'}\n")
    for arguments in (
        ["--settings=live", "--pythonpath", "production", "--database", "default", "config", "show"],
        ["config", "show", "--settings", "live", "--pythonpath=production"],
    ):
        assert "live-team" in project.manage("boxengine", *arguments)


def test_on_mysql_moments_are_in_utc_whatever_the_sessions_zone(mariadb_project: DjangoProject) -> None:
    printed = mariadb_project.python(
        """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+05:30'")
        create_outbox_item(OrderOutboxItem, event_key=1, payload=b"plain")
        create_outbox_item(OrderOutboxItem, event_key=2, payload=b"keyed", dedup_key="k")
        off = "abs(timestampdiff(minute, {}, utc_timestamp(6)))"
        cursor.execute(f"SELECT max({off.format('created_at')}), max({off.format('updated_at')}) FROM orders_orderoutboxitem")
        print("minutes off", cursor.fetchone())
    """
    )
    assert "minutes off (0, 0)" in printed


def test_on_mysql_an_item_that_is_newer_than_the_transactions_snapshot_is_known(mariadb_project: DjangoProject) -> None:
    printed = mariadb_project.python(
        """
    import threading

    from django.db import connection, transaction

    def create(ids):
        ids.append(create_outbox_item(OrderOutboxItem, event_key=1, payload=b"", dedup_key="k"))
        if threading.current_thread() is not threading.main_thread():
            connection.close()

    ids = []
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with transaction.atomic():
        OrderOutboxItem.objects.count()
        other = threading.Thread(target=create, args=[ids])
        other.start()
        other.join()
        create(ids)
    print("same", ids[0] == ids[1])
    """
    )
    assert "same True" in printed


def test_the_admin_shows_items_and_retries_and_discards_those_that_are_chosen(each_project: DjangoProject) -> None:
    printed = each_project.python(
        """
    from django.contrib.auth import get_user_model
    from django.test import Client

    user = get_user_model().objects.create_superuser("ann")
    ids = [
        create_outbox_item(OrderOutboxItem, event_key=n, payload=payload)
        for n, payload in enumerate(("zwei Bücher", b"\\xff", b""))
    ]
    OrderOutboxItem.objects.filter(pk=ids[0]).update(status=1, errors_count=6)
    browser = Client(headers={"host": "localhost"})
    browser.force_login(user)
    listed = browser.get("/admin/orders/orderoutboxitem/").content.decode()
    print("listed", all(f"/orderoutboxitem/{each}/change/" in listed for each in ids), "/orderoutboxitem/add/" in listed)
    shown = browser.get(f"/admin/orders/orderoutboxitem/{ids[0]}/change/")
    print("shown", shown.status_code, b"readonly" in shown.content, b"_save" in shown.content)
    binary = browser.get(f"/admin/orders/orderoutboxitem/{ids[1]}/change/").content.decode()
    print("payloads", shown.content.decode().count(">zwei Bücher<"), binary.count(r">b&#x27;\\xff&#x27;<"))
    saved = browser.post(f"/admin/orders/orderoutboxitem/{ids[0]}/change/", {"_save": "Save"})
    print("saved", saved.status_code)
    for action, chosen in (("retry", ids[0]), ("discard", ids[1]), ("retry", ids[2])):
        done = browser.post(
            "/admin/orders/orderoutboxitem/", {"action": action, "_selected_action": chosen}, follow=True
        ).content.decode()
        print(action, "1 changed" in done)
    print(list(OrderOutboxItem.objects.order_by("pk").values_list("status", "errors_count")))
    create_outbox_item(OrderOutboxItem, event_key=4, payload=b"secret")
    OrderOutboxItem.objects.filter(event_key="4").update(status=1)
    gone = browser.post(
        "/admin/orders/orderoutboxitem/?status=1", {"action": "discard", "_selected_action": ids[0]}, follow=True
    ).content.decode()
    print("gone", "None of these items" in gone, OrderOutboxItem.objects.get(event_key="4").status)
    """
    )
    assert "gone True 1" in printed, "chosen items that a colleague has retried are not all failed items"
    assert "listed True False" in printed
    assert "shown 200 True False" in printed
    assert "payloads 1 1" in printed
    assert "saved 403" in printed, "it would write back what a worker has changed meanwhile"
    assert "retry True\ndiscard True\nretry False" in printed
    assert "[(0, 0), (3, 0), (0, 0)]" in printed


def test_no_page_of_the_admin_reads_a_whole_table(each_project: DjangoProject) -> None:
    printed = each_project.python(
        """
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext, setup_test_environment

    from boxengine.integrations.django import admin
    from orders.admin import OrderOutboxItemAdmin

    setup_test_environment()
    admin.MOST = 2
    OrderOutboxItemAdmin.list_per_page = 1
    for n, name in enumerate(("old", "new", "new")):
        create_outbox_item(OrderOutboxItem, event_key=n, event_name=name, payload=b"")
    browser = Client(headers={"host": "localhost"})
    browser.force_login(get_user_model().objects.create_superuser("ann"))
    with CaptureQueriesContext(connection) as queries:
        page = browser.get("/admin/orders/orderoutboxitem/")
    texts = [each["sql"] for each in queries if OrderOutboxItem._meta.db_table in each["sql"]]
    print("bounded", len(texts), [each for each in texts if "LIMIT" not in each])
    shown = page.context["cl"]
    print("shown", shown.result_count, [str(choice["display"]) for choice in list(shown.filter_specs[1].choices(shown))])
    chosen = browser.get("/admin/orders/orderoutboxitem/?event_name=old").context["cl"]
    print("chosen", [item.event_name for item in chosen.result_list])
    first = OrderOutboxItem.objects.earliest("pk")
    refused = browser.post(
        "/admin/orders/orderoutboxitem/",
        {"action": "discard", "_selected_action": first.pk, "select_across": "1"},
        follow=True,
    )
    print("refused", [str(each) for each in refused.context["messages"]], set(OrderOutboxItem.objects.values_list("status")))
    """
    )
    assert "bounded 3 []" in printed, printed
    assert "shown 2 ['All', 'new']" in printed, printed
    assert "chosen ['old']" in printed, printed
    refusal = "more than 2 items: none was changed. Filter the list, or use boxengine items discard"
    assert f"refused ['{refusal}'] {{(0,)}}" in printed, "an action may not reach more items than the list has shown"


def test_a_search_in_the_admin_uses_the_indexes(fresh: DjangoProject) -> None:
    settings = (fresh.folder / "settings.py").read_text()
    fresh.write("settings.py", settings.replace('"max_retries": 5', '"max_retries": 5, "key_index": True'))
    fresh.set_up()
    printed = fresh.python(
        """
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import setup_test_environment

    setup_test_environment()
    for key in ("3", "Ann", "ann"):
        create_outbox_item(OrderOutboxItem, event_key=key, payload=b"")
    browser = Client(headers={"host": "localhost"})
    browser.force_login(get_user_model().objects.create_superuser("ann"))
    connection.cursor().execute("SET enable_seqscan = off")
    for term in ("3", "ann", "9" * 30, "carl"):
        shown = browser.get("/admin/orders/orderoutboxitem/", {"q": term}).context["cl"]
        plan = shown.queryset.order_by().explain()
        print(term, sorted(item.event_key for item in shown.result_list), "Filter" in plan)
    """
    )
    assert printed.splitlines()[-4:] == [
        "3 ['3', 'ann'] False",
        "ann ['ann'] False",
        f"{'9' * 30} [] False",
        "carl [] False",
    ]


def test_a_proxy_stands_for_the_box_of_the_model_behind_it(fresh: DjangoProject) -> None:
    with (fresh.folder / "orders/models.py").open("a") as file:
        file.write("\n\nclass TroubledItem(OrderOutboxItem):\n    class Meta:\n        proxy = True\n")
    with (fresh.folder / "orders/admin.py").open("a") as file:
        file.write(
            "\nfrom orders.models import TroubledItem\n\n\n"
            "@admin.register(TroubledItem)\nclass TroubledItemAdmin(BoxItemAdmin): ...\n"
        )
    fresh.set_up()
    printed = fresh.python(
        """
    from django.contrib.auth import get_user_model
    from django.test import Client
    from orders.models import TroubledItem

    user = get_user_model().objects.create_superuser("ann")
    created = create_outbox_item(TroubledItem, event_key=1, payload=b"")
    browser = Client(headers={"host": "localhost"})
    browser.force_login(user)
    browser.post("/admin/orders/troubleditem/", {"action": "discard", "_selected_action": created}, follow=True)
    print("status", OrderOutboxItem.objects.get(pk=created).status)
    """
    )
    assert "status 3" in printed


def test_tests_may_run_on_sqlite_if_their_settings_say_so(fresh: DjangoProject) -> None:
    fresh.write(
        "orders/tests.py",
        """
    from django.test import TestCase

    from boxengine.integrations.django import create_inbox_item, create_outbox_batch
    from orders.models import OrderOutboxItem, PaymentInboxItem


    class Announcing(TestCase):
        def test_items_are_rows(self):
            with self.captureOnCommitCallbacks(execute=True):
                create_outbox_batch(OrderOutboxItem, [{"event_key": n, "payload": b"x"} for n in range(3)])
                create_inbox_item(PaymentInboxItem, event_key=1, payload=b"y")
            self.assertEqual(OrderOutboxItem.objects.count() + PaymentInboxItem.objects.count(), 4)
    """,
    )
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "tests.db"}}\n')
    refused = fresh.manage("test", expect=1)
    assert "DATABASES['default'] is sqlite; name the worker's database in BOXENGINE_DATABASE" in refused
    with (fresh.folder / "settings.py").open("a") as file:
        file.write('BOXENGINE["database"] = {"url": "sqlite://"}\n')
    assert "OK" in fresh.manage("test")


COMPLETED = "from boxengine.integrations.django.configuration import completed\n"


def test_every_kind_of_transport_finds_its_way_back_to_the_database(fresh: DjangoProject, postgres_url: str) -> None:
    kinds = ("plain", "limited", "awaited")
    boxes = "\n".join(f"    class {kind.title()}Item(OutboxItem): ..." for kind in kinds)
    fresh.write("orders/models.py", f"    from boxengine.integrations.django.models import OutboxItem\n{boxes}\n")
    fresh.write("orders/admin.py", "")
    fresh.write(
        "orders/transports.py",
        """
    from django.contrib.auth.models import User


    class Plain:
        def __call__(self, item, payload):
            User.objects.exists()


    class Awaited:
        async def __call__(self, item, payload):
            await User.objects.aexists()


    class Poll:
        def __call__(self, task, call_next):
            return call_next()
    """,
    )
    fresh.configure(
        """
    DATABASES["default"] |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    DATABASES["default"]["OPTIONS"] = {"application_name": "shop"}
    BOXENGINE = {
        "redis": {"url": os.environ["REDIS_URL"]},
        "probes": {"enabled": False},
        "middlewares": {"poll": "orders.transports.Poll"},
        "outbox_items": {
            "plain_item": {"transports": {"orders.transports.Plain": {}}},
            "limited_item": {"transports": {"orders.transports.Plain": {"timeout": 60}}},
            "awaited_item": {"transports": {"orders.transports.Awaited": {}}},
        },
    }
    """
    )
    fresh.set_up()
    middlewares = fresh.python("print(completed('default')['middlewares'])", head=COMPLETED)
    assert middlewares.count("FreshConnections") == 2  # one is around polls, whose threads have connections, too
    create = "".join(f"create_outbox_item({kind.title()}Item, event_key='k', payload=b'')\n" for kind in kinds)
    head = "from orders.models import *\nfrom boxengine.integrations.django import create_outbox_item\n"
    states = " UNION ALL ".join(f"SELECT '{kind}', status FROM orders_{kind}item" for kind in kinds)
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as looking, fresh.worker():
        for delivered in (1, 2):
            fresh.python(create, head=head)
            eventually(lambda: all(status for _, status in looking.execute(states).fetchall()))
            wanted = sorted((kind, 2) for kind in kinds for _ in range(delivered))
            assert sorted(looking.execute(states).fetchall()) == wanted
            looking.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shop'")


def test_a_process_of_a_worker_that_ends_after_old_temporary_files_were_deleted_is_replaced(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    project = DjangoProject(tmp_path / "shop", database=postgres_url, redis=redis_url)

    def logged(text: str) -> list[dict[str, Any]]:
        lines = (project.folder / "worker.log").read_text().splitlines()
        return [
            line for line in map(json.loads, filter(lambda each: each.endswith("}"), lines)) if text in line["message"]
        ]

    worker = project.start("boxengine", "start", "--processes", "2")
    try:
        eventually(lambda: len(logged("started: order_outbox_item")) == 2)
        tidy_up(temporary)
        os.kill(logged("process 1 started")[0]["pid"], signal.SIGKILL)
        eventually(lambda: len(logged("started: order_outbox_item")) == 3)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
        assert not list(temporary.iterdir())
    finally:
        worker.kill()
        worker.wait()
