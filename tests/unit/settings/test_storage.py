"""``storage: log``: what it goes with, and what is refused beside it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.app.assembly import choose
from boxengine.domain.box import Beginning, Storage, StrictOrder
from boxengine.settings import load_for_creating
from tests.unit.settings.folder import Folder

BOX = "outbox_items: {a_item: {transports: {log: }%s}}"


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", Storage.TABLE), (", storage: table", Storage.TABLE), (", storage: log", Storage.LOG)],
)
def test_a_box_has_the_storage_that_the_file_names(folder: Folder, key: str, expected: Storage) -> None:
    assert folder.resolved(BOX % key).pipelines["a_item"].box.storage is expected


def test_an_inbox_box_may_have_a_log(folder: Folder) -> None:
    resolved = folder.resolved("inbox_items: {a_item: {transports: {log: }, storage: log}}")
    assert resolved.pipelines["a_item"].box.storage is Storage.LOG


def test_another_storage_is_refused_with_what_there_is(folder: Folder) -> None:
    assert "expected table or log" in folder.problems(BOX % ", storage: tape")["outbox_items.a_item.storage"]


@pytest.mark.parametrize(
    ("file", "path", "words"),
    [
        (BOX % ", storage: log, sequence: true", "outbox_items.a_item.sequence", "no place for the numbers"),
        (
            BOX % ", storage: log, retry_strategies: [latest_available]",
            "outbox_items.a_item.retry_strategies",
            "not latest_available with storage: log",
        ),
        (
            BOX % ", storage: log, retry_strategies: [compacted_log]",
            "outbox_items.a_item.retry_strategies",
            "not compacted_log with storage: log",
        ),
        (
            "inbox_items: {a_item: {storage: log, subscriptions: {b: {transports: {log: }}}}}",
            "inbox_items.a_item.subscriptions",
            "for outbox boxes",
        ),
        (
            "inbox_items: {a_item: {transports: {log: }, storage: log, log_partitions: P1D}}",
            "inbox_items.a_item.log_partitions",
            "an index over the whole log",
        ),
        (BOX % ", log_partitions: P1D", "outbox_items.a_item.log_partitions", "only with storage: log"),
        (
            BOX % ", storage: log, log_partitions: PT59M",
            "outbox_items.a_item.log_partitions",
            "expected at least PT3H21M36S",
        ),
        (
            BOX % ", storage: log, log_partitions: PT59M, retention_delivered_items: P1D",
            "outbox_items.a_item.log_partitions",
            "expected at least PT1H",
        ),
        (
            "database: {url: 'mysql+pymysql://u@h/n'}\n" + BOX % ", storage: log",
            "outbox_items.a_item.storage",
            "log needs PostgreSQL",
        ),
    ],
)
def test_what_a_log_cannot_keep_is_refused_with_the_reason(folder: Folder, file: str, path: str, words: str) -> None:
    problems = folder.problems(file)
    assert list(problems) == [path]
    assert words in problems[path]


@pytest.mark.parametrize(("key", "expected"), [("", None), (", log_partitions: PT6H", timedelta(hours=6))])
def test_a_new_log_has_the_partitions_that_the_file_asks_for(
    folder: Folder, key: str, expected: timedelta | None
) -> None:
    box = folder.resolved(BOX % f", storage: log{key}").pipelines["a_item"].box
    assert box.log_partitions == expected


def test_a_numbered_model_is_refused(folder: Folder) -> None:
    model = "model: tests.integration.test_sequence.OrderOutboxItem, storage: log"
    problems = folder.problems(f"outbox_items: {{order_outbox_item: {{transports: {{log: }}, {model}}}}}")
    assert list(problems) == ["outbox_items.order_outbox_item.storage"]


SHARED = "outbox_items: {a_item: {storage: log, max_retries: 3, %s}}"
TWO = (
    "subscriptions: {billing: {transports: {log: }, strict_order: key}, "
    "search: {from: now, max_retries: 9, transports: {http: {url: 'http://h/'}}}}"
)


def test_each_subscription_is_a_box_over_the_log_of_its_box(folder: Folder) -> None:
    resolved = folder.resolved(SHARED % TWO)
    billing, search = (resolved.pipelines[f"a_item.{name}"] for name in ("billing", "search"))
    assert list(resolved.pipelines) == ["a_item.billing", "a_item.search"]
    assert [each.name for each in search.transports] == ["http"]
    assert (billing.box.table, billing.box.source.table) == ("a_items_billing", "a_items")
    assert (billing.box.strict_order, search.box.strict_order) == (StrictOrder.KEY, StrictOrder.NONE)
    assert (billing.box.max_retries, search.box.max_retries) == (3, 9)
    assert search.box.subscription is not None
    assert search.box.subscription.begins is Beginning.NOW


def test_items_are_created_under_the_name_of_the_box_and_delivered_by_its_subscriptions(folder: Folder) -> None:
    resolved = folder.resolved(SHARED % TWO)
    assert list(resolved.written) == ["a_item"]
    assert resolved.readers("a_item") == ["a_item.billing", "a_item.search"]
    assert list(choose(resolved, ["a_item"])) == ["a_item.billing", "a_item.search"]
    assert list(choose(resolved, ["a_item.search"])) == ["a_item.search"]


@pytest.mark.parametrize(
    ("file", "path", "words"),
    [
        (
            "outbox_items: {a_item: {subscriptions: {billing: {transports: {log: }}}}}",
            "subscriptions",
            "needs storage: log",
        ),
        (SHARED % (TWO + ", transports: {log: }"), "transports", "contradicts subscriptions"),
        (SHARED % "subscriptions: {Billing: {transports: {log: }}}", "subscriptions.Billing", "lower case"),
        (SHARED % "subscriptions: {a.b: {transports: {log: }}}", "subscriptions.a.b", "lower case"),
        (SHARED % "subscriptions: {audit_log: {transports: {log: }}}", "subscriptions.audit_log", "end in log"),
        (SHARED % "subscriptions: {billing: {from: then}}", "subscriptions.billing.from", "beginning or now"),
        (SHARED % "subscriptions: {billing: {table: t}}", "subscriptions.billing.table", "unknown"),
        (
            SHARED % "strict_order: key, subscriptions: {billing: {retry_strategies: [no_delay]}}",
            "subscriptions.billing.retry_strategies",
            "contradicts strict_order",
        ),
        (
            SHARED % "subscriptions: {billing: {retry_strategies: [latest_available]}}",
            "subscriptions.billing.retry_strategies",
            "not latest_available",
        ),
        (SHARED % "transports: {log: }, retain_at_most: P30D", "retain_at_most", "only beside subscriptions"),
        (SHARED % (TWO + ", retain_at_most: P1D"), "retain_at_most", "shorter than delivered items stay"),
    ],
)
def test_subscriptions_that_cannot_be_are_refused_with_the_reason(
    folder: Folder, file: str, path: str, words: str
) -> None:
    problems = folder.problems(file)
    assert list(problems) == [f"outbox_items.a_item.{path}"]
    assert words in problems[f"outbox_items.a_item.{path}"]


def test_a_box_on_the_table_of_a_subscription_is_refused(folder: Folder) -> None:
    file = SHARED.replace("}}", "}, other: {table: a_items_billing, transports: {log: }}}") % TWO
    assert "works on table 'a_items_billing'" in folder.problems(file)["outbox_items.other.table"]


def test_what_only_a_subscriptions_transports_need_is_not_needed_to_create_items(folder: Folder) -> None:
    folder.write(SHARED % "subscriptions: {billing: {transports: {http: {url: '${UNSET}'}}}}")
    resolved = load_for_creating(None, env=None, environ={}, cwd=folder.path)
    assert list(resolved.written) == ["a_item"]
