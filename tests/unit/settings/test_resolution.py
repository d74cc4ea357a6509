"""From settings to live objects."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from boxengine.domain import partitioning
from boxengine.domain.box import Backoff, BoxType, StrictOrder
from boxengine.domain.retry import ExponentialBackoff, LatestAvailable, NoDelay
from boxengine.errors import ConfigurationError
from boxengine.settings import load_and_resolve
from tests.unit.settings import shop
from tests.unit.settings.folder import BUILT_IN, Folder

SHOP = "tests.unit.settings.shop"


def test_a_box_has_all_that_its_settings_say(folder: Folder) -> None:
    resolved = folder.resolved(
        """
        owner: everyone
        bucket_size: 8
        outbox_items:
          a_item:
            owner: us
            bucket_size: 4
            partition_strategy: hash
            max_retries: 3
            minimal_retry_interval: 1
            maximal_retry_interval: 60
            multiplier_retry_interval: 3
            jitter_retry_interval: 0.2
            retention: P2D
            retention_delivered_items: PT0S
            deletion_batch_size: 10
            deletion_sleep_time: 0.1
            deletion_time_window: PT1H
        inbox_items:
          combined/b_item:
        """
    )
    assert list(resolved.pipelines) == ["a_item", "combined/b_item"]
    a, b = (pipeline.box for pipeline in resolved.pipelines.values())
    assert (a.name, a.type, a.table, a.owner, a.bucket_size) == ("a_item", BoxType.OUTBOX, "a_items", "us", 4)
    assert a.partition_strategy is partitioning.hashed
    assert (a.max_retries, a.strict_order) == (3, StrictOrder.NONE)
    expected = Backoff(minimal=timedelta(seconds=1), maximal=timedelta(minutes=1), multiplier=3, jitter=0.2)
    assert a.backoff == expected
    assert (a.retention.others, a.retention.deletes_on_delivery) == (timedelta(days=2), True)
    assert (a.retention.batch_size, a.retention.pause, a.retention.window) == (
        10,
        timedelta(seconds=0.1),
        timedelta(hours=1),
    )
    assert (b.type, b.table, b.owner, b.bucket_size) == (BoxType.INBOX, "combined_b_items", "everyone", 8)


@pytest.mark.parametrize(
    ("order", "retries", "limit"),
    [
        ("false", "", 0),
        ("false", "max_retries: 2", 2),
        ("true", "", None),
        ("true", "max_retries: 2", None),
        ("bucket", "", None),
        ("key", "", None),
        ("key", "max_retries: 2", 2),
        ("key", "max_retries: 0", 0),
    ],
)
def test_the_limit_of_retries_depends_on_the_order(folder: Folder, order: str, retries: str, limit: int | None) -> None:
    resolved = folder.resolved(f"outbox_items: {{a_item: {{strict_order: {order}, {retries}}}}}")
    assert resolved.pipelines["a_item"].box.max_retries == limit


@pytest.mark.parametrize(
    ("keys", "waits"),
    [
        ("", True),
        ("retry_strategies: [no_delay]", False),
        ("retry_strategies: latest_available", False),
        ("retry_strategies: [latest_available, exponential_backoff]", True),
        ("strict_order: true", True),
        ("strict_order: key", True),
    ],
)
def test_a_box_has_pauses_where_a_strategy_waits_or_the_order_is_strict(folder: Folder, keys: str, waits: bool) -> None:
    resolved = folder.resolved(f"outbox_items: {{a_item: {{{keys}}}}}")
    assert (resolved.pipelines["a_item"].box.backoff is not None) == waits


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("", False),
        ("max_retries: 1", False),
        ("max_retries: 1, retry_strategies: latest_available", True),
        ("max_retries: 1, retry_strategies: [exponential_backoff]", False),
        ("max_retries: 1, retry_strategies: [no_delay, compacted_log]", True),
        (f"max_retries: 1, retry_strategies: [{SHOP}.Patient]", False),
        (f"max_retries: 1, retry_strategies: [{SHOP}.Patient], key_index: true", True),
        ("max_retries: 1, key_index: false", False),
        ("strict_order: true", False),
        ("strict_order: key, max_retries: 1", False),
        ("model: tests.integration.test_key_index.KeyedOutboxItem", True),
        ("model: tests.integration.test_key_index.KeyedOutboxItem, key_index: false", False),
        ("model: tests.integration.test_key_index.PlainOutboxItem", False),
    ],
)
def test_a_table_is_indexed_by_key_where_a_strategy_may_ask_for_later_items_or_somebody_wants_it(
    folder: Folder, keys: str, wanted: bool
) -> None:
    name = "keyed_outbox_item" if "Keyed" in keys else "plain_outbox_item"
    resolved = folder.resolved(f"outbox_items: {{{name}: {{{keys}}}}}")
    assert resolved.pipelines[name].box.key_index is wanted


def test_retry_strategies_are_made_in_order(folder: Folder) -> None:
    resolved = folder.resolved(
        f"outbox_items: {{a_item: {{retry_strategies: [compacted_log, {SHOP}.Patient, no_delay]}}, b_item: }}"
    )
    strategies = [
        [type(strategy) for strategy in pipeline.retry_strategies] for pipeline in resolved.pipelines.values()
    ]
    assert strategies == [[LatestAvailable, shop.Patient, NoDelay], [ExponentialBackoff]]


def test_strict_order_has_no_retry_strategies(folder: Folder) -> None:
    resolved = folder.resolved("outbox_items: {a_item: {strict_order: key}}")
    assert resolved.pipelines["a_item"].retry_strategies == ()


def test_a_partition_strategy_may_be_ones_own(folder: Folder) -> None:
    resolved = folder.resolved(f"outbox_items: {{a_item: {{partition_strategy: {SHOP}.always_three}}}}")
    assert resolved.pipelines["a_item"].box.partition_strategy("x", 16) == 3


def test_a_model_gives_its_table_and_its_payload_builder(folder: Folder) -> None:
    resolved = folder.resolved(
        f"outbox_items: {{a_item: {{model: {SHOP}.OrderOutboxItem}}, b_item: {{model: {SHOP}.Plain}}}}"
    )
    a, b = resolved.pipelines.values()
    assert a.model is shop.OrderOutboxItem
    assert a.box.table == "shop_orders"
    assert a.box.payload_builder is not None
    assert a.box.payload_builder(shop.OrderOutboxItem()) == b"built of stored"
    assert b.box.payload_builder is None


def test_a_models_hooks_are_methods_properties_or_mappings(folder: Folder) -> None:
    resolved = folder.resolved(
        f"outbox_items: {{a_item: {{model: {SHOP}.Described}}, b_item: {{model: {SHOP}.Plain}}}}"
    )
    a, b = (pipeline.box for pipeline in resolved.pipelines.values())
    assert a.extra_options is not None
    assert a.extra_log_details is not None
    assert a.extra_options(shop.Described()) == {"key": "same for all"}
    assert a.extra_log_details(shop.Described()) == {"order": "7"}
    assert (b.extra_options, b.extra_log_details) == (None, None)


def test_a_models_hook_that_is_none_is_refused(folder: Folder) -> None:
    problems = folder.problems(f"outbox_items: {{a_item: {{model: {SHOP}.Wrong, transports: {{log: }}}}}}")
    expected = "its extra_options is int; expected a method of the item, a property, or a mapping"
    assert problems == {"outbox_items.a_item.model": expected}


def test_middlewares_are_made_outermost_first(folder: Folder) -> None:
    resolved = folder.resolved(
        f"middlewares: {{item_process: [{SHOP}.Timed, {SHOP}.passed_on], create_item: {SHOP}.Stamped}}"
    )
    first, second = resolved.middlewares.item_process
    assert isinstance(first, shop.Timed)
    assert second is shop.passed_on
    assert len(resolved.middlewares.create_item) == 1
    assert resolved.middlewares.poll == ()


def test_the_error_tracker_is_ones_own_or_none(folder: Folder) -> None:
    assert folder.resolved("").error_tracker is None
    assert folder.resolved(f"error_tracker: {SHOP}.track").error_tracker is shop.track


def test_modules_of_the_application_are_imported(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("made = True", "users_module_for_settings.py")
    monkeypatch.syspath_prepend(folder.path)
    folder.resolved("app: users_module_for_settings")
    assert sys.modules.pop("users_module_for_settings").made


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("app: no_such_app", "app[0]", "no such module"),
        (f"app: [json, {SHOP}.lacking]", "app[1]", "No module named 'no_such_distribution'"),
        ("error_tracker: shop.nothing", "error_tracker", "no such module"),
        (f"error_tracker: {SHOP}.number_of_items", "error_tracker", "is not callable"),
        (f"middlewares: {{poll: [{SHOP}.Demanding]}}", "middlewares.poll[0]", "expected a class without arguments"),
        (f"middlewares: {{poll: [{SHOP}.NoTransport]}}", "middlewares.poll[0]", "called as (subject, call_next)"),
        (
            f"middlewares: {{create_item: [{SHOP}.NoTransport]}}",
            "middlewares.create_item[0]",
            "called as (model, attributes, call_next)",
        ),
        (
            f"outbox_items: {{a_item: {{retry_strategies: [no_delay, {SHOP}.Impatient]}}}}",
            "outbox_items.a_item.retry_strategies[1]",
            "has no 'Impatient'",
        ),
        (
            f"outbox_items: {{a_item: {{partition_strategy: {SHOP}.number_of_items}}}}",
            "outbox_items.a_item.partition_strategy",
            "called as (key, bucket_size)",
        ),
        (f"outbox_items: {{a_item: {{model: {SHOP}.deliver}}}}", "outbox_items.a_item.model", "expected a model class"),
        (
            f"outbox_items: {{a_item: {{model: {SHOP}.Anything}}}}",
            "outbox_items.a_item.model",
            "is a class without a table; expected a SQLAlchemy model with the mixin boxengine.OutboxItem",
        ),
        (
            f"outbox_items: {{a_item: {{model: {SHOP}.Customer}}}}",
            "outbox_items.a_item.model",
            "has no event_key, bucket; expected the mixin boxengine.OutboxItem among its bases",
        ),
        (
            f"outbox_items: {{keyed: {{model: {SHOP}.Keyed}}}}",
            "outbox_items.keyed.model",
            "has an id that is no whole number; expected the mixin's own: items go out in the order of their ids",
        ),
        (
            f"outbox_items: {{b_item: {{model: {SHOP}.Received}}}}",
            "outbox_items.b_item.model",
            "is an inbox model; expected the mixin boxengine.OutboxItem among its bases, or the box under inbox_items",
        ),
        (
            f"outbox_items: {{orders: {{model: {SHOP}.Plain}}}}",
            "outbox_items.orders.model",
            "belongs to the box b_item; rename this box, or write __box_name__ = 'orders' in the class",
        ),
        (
            f"outbox_items: {{b_item: {{model: {SHOP}.Plain, table: others}}}}",
            "outbox_items.b_item.table",
            "the model's is 'plain_items'",
        ),
        (
            f"outbox_items: {{plain_item: , b_item: {{model: {SHOP}.Plain}}}}",
            "outbox_items.b_item.table",
            "as does outbox_items.plain_item",
        ),
    ],
)
def test_what_cannot_be_imported_or_cannot_serve_is_reported_at_its_key(
    folder: Folder, text: str, path: str, message: str
) -> None:
    problems = folder.problems(text)
    assert list(problems) == [path]
    assert message in problems[path]


def test_resolve_alone_reports_all_it_finds(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.resolved("app: no_such_app\nerror_tracker: no.such")
    assert [problem.path for problem in caught.value.problems] == ["app[0]", "error_tracker"]


def test_everything_wrong_at_once_is_reported_at_once_each_with_its_file(folder: Folder) -> None:
    folder.write(
        f"""
        app: no_such_app
        buckets: 3
        bucket_size: none
        owner: ${{TEAM}}
        database: {{url: postgres://h/db}}
        redis: {{url: 'http://h', sentinels: [a:1]}}
        poller: {{tactic: lazy, min_queue_size: 500}}
        processor: {{threads_count: 0, general_timeout: 10}}
        metrics: {{port: 99999}}
        probes: on
        middlewares: {{poll: [{SHOP}.Nothing]}}
        error_tracker: {SHOP}.number_of_items
        outbox_items:
          a_item:
            max_retries: few
            max_retries: 3
            strict_order: true
            retry_strategies: [no_delay]
            retention: PT1H
            retention_delivered_items: PT1M
            minimal_retry_interval: 9000
            partition_strategy: modulo
            transports:
              log: {{lvl: 1}}
              kafka:
              no_such: {{}}
          BadName:
            transports: {{log: }}
        """,
        "a.yml",
    )
    folder.write(
        f"""
        outbox_items:
          c_item: {{table: a_items, model: {SHOP}.Missing, retention: 7}}
        inbox_items:
          a_item: {{table: in_items}}
          d_item: {{retry_strategies: [slowly, {SHOP}.Missing], transports: [{{event_name: 5}}], source: kafka}}
        """,
        "b.yml",
    )
    folder.environ["BOXENGINE_CONFIG"] = "a.yml:b.yml:c.yml"
    with pytest.raises(ConfigurationError) as caught:
        load_and_resolve(None, env=None, environ=folder.environ, cwd=folder.path, builtin_transports=BUILT_IN)
    assert {(problem.file, problem.path) for problem in caught.value.problems} == {
        ("c.yml", ""),
        ("a.yml", "app[0]"),
        ("a.yml", "buckets"),
        ("a.yml", "bucket_size"),
        ("a.yml", "owner"),
        ("a.yml", "database.url"),
        ("a.yml", "redis.url"),
        ("a.yml", "redis.sentinels"),
        ("a.yml", "poller.tactic"),
        ("a.yml", "poller.min_queue_size"),
        ("a.yml", "processor.threads_count"),
        ("a.yml", "processor.cutoff_timeout"),
        ("a.yml", "metrics.port"),
        ("a.yml", "probes"),
        ("a.yml", "middlewares.poll[0]"),
        ("a.yml", "error_tracker"),
        ("a.yml", "outbox_items.a_item.max_retries"),
        ("a.yml", "outbox_items.a_item.retry_strategies"),
        ("a.yml", "outbox_items.a_item.retention"),
        ("a.yml", "outbox_items.a_item.retention_delivered_items"),
        ("a.yml", "outbox_items.a_item.minimal_retry_interval"),
        ("a.yml", "outbox_items.a_item.partition_strategy"),
        ("a.yml", "outbox_items.a_item.transports.log.lvl"),
        ("a.yml", "outbox_items.a_item.transports.kafka.topic"),
        ("a.yml", "outbox_items.a_item.transports.no_such.class"),
        ("a.yml", "outbox_items.BadName"),
        ("b.yml", "outbox_items.c_item.table"),
        ("b.yml", "outbox_items.c_item.model"),
        ("b.yml", "outbox_items.c_item.retention"),
        ("b.yml", "inbox_items.a_item"),
        ("b.yml", "inbox_items.d_item.retry_strategies[0]"),
        ("b.yml", "inbox_items.d_item.retry_strategies[1]"),
        ("b.yml", "inbox_items.d_item.transports[0].class"),
        ("b.yml", "inbox_items.d_item.transports[0].event_name"),
        ("b.yml", "inbox_items.d_item.source"),
    }
