"""What ``config show`` and ``config schema`` print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boxengine.domain.masking import masked_text
from boxengine.settings import Row, explain, json_schema
from tests.unit.settings.folder import Folder


def rows(folder: Folder, *paths: str) -> dict[str, Row]:
    return {row.path: row for row in explain(folder.load(*paths))}


def test_each_value_is_shown_with_the_file_it_came_from(folder: Folder) -> None:
    folder.write("bucket_size: 8\npoller: {rate_limit: 1, rate_interval: PT1M}", "a.yml")
    folder.write("poller: {rate_limit: 2}", "b.yml")
    shown = rows(folder, "a.yml", "b.yml")
    assert shown["bucket_size"] == Row("bucket_size", 8, "a.yml")
    assert shown["poller.rate_limit"] == Row("poller.rate_limit", 2, "b.yml")
    assert shown["poller.rate_interval"] == Row("poller.rate_interval", 60, "a.yml")
    assert shown["poller.concurrency"] == Row("poller.concurrency", 6, "default")


def test_an_empty_section_is_not_the_source_of_its_defaults(folder: Folder) -> None:
    folder.write("metrics: {}\nprobes:")
    shown = rows(folder)
    assert (shown["metrics.port"].source, shown["probes.port"].source) == ("default", "default")


def test_a_value_from_the_environment_names_its_variables(folder: Folder) -> None:
    folder.environ["PORT"] = "99"
    folder.write("metrics: {port: '${PORT}'}")
    assert rows(folder)["metrics.port"] == Row("metrics.port", 99, "outbox.yml ($PORT)")


def test_what_a_box_leaves_out_is_shown_as_it_is_in_force(folder: Folder) -> None:
    boxes = "{a_item: {strict_order: key}, b_item: {retention: P2D}, c_item: {retry_strategies: latest_available}}"
    folder.write(f"bucket_size: 8\noutbox_items: {boxes}")
    shown = rows(folder)
    a, b, c = "outbox_items.a_item", "outbox_items.b_item", "outbox_items.c_item"
    assert shown[f"{a}.bucket_size"] == Row(f"{a}.bucket_size", 8, "bucket_size, outbox.yml")
    assert shown[f"{a}.table"] == Row(f"{a}.table", "a_items", "default")
    assert shown[f"{a}.max_retries"] == Row(f"{a}.max_retries", "no limit", "strict_order")
    assert shown[f"{a}.retry_strategies"] == Row(f"{a}.retry_strategies", [], "strict_order")
    assert shown[f"{b}.max_retries"] == Row(f"{b}.max_retries", 0, "default")
    assert shown[f"{b}.key_index"] == Row(f"{b}.key_index", False, "default")
    assert shown[f"{c}.key_index"] == Row(f"{c}.key_index", True, "default")
    assert shown[f"{b}.retention_delivered_items"] == Row(f"{b}.retention_delivered_items", "P2D", "retention")


def test_an_empty_list_of_strategies_shows_those_in_force(folder: Folder) -> None:
    folder.write("outbox_items: {a_item: {retry_strategies: []}}")
    path = "outbox_items.a_item.retry_strategies"
    assert rows(folder)[path] == Row(path, ["exponential_backoff"], "default")


def test_transports_are_shown_under_their_keys_in_the_file(folder: Folder) -> None:
    folder.write(
        """
        disposable_transports: true
        outbox_items:
          a_item: {transports: {log: {level: {of: debug}}}}
          b_item: {transports: [{class: x.Y, event_name: e, disposable: false}]}
        """
    )
    shown = rows(folder)
    log, listed = "outbox_items.a_item.transports.log", "outbox_items.b_item.transports[0]"
    assert shown[f"{log}.class"] == Row(f"{log}.class", "log", "the transport's name")
    assert shown[f"{log}.disposable"].source == "disposable_transports, outbox.yml"
    assert shown[f"{log}.level.of"] == Row(f"{log}.level.of", "debug", "outbox.yml")
    assert shown[f"{listed}.class"] == Row(f"{listed}.class", "x.Y", "outbox.yml")
    assert shown[f"{listed}.disposable"] == Row(f"{listed}.disposable", False, "outbox.yml")


def test_secrets_are_not_shown(folder: Folder) -> None:
    folder.write(
        """
        database: {url: 'postgresql+psycopg://me:hunter2@host/shop?sslpassword=hunter2'}
        redis: {url: 'redis://:hunter2@host/0'}
        kafka: {config: {sasl.password: hunter2, sasl.username: hunter2, ssl.key.password: hunter2, linger.ms: 5}}
        outbox_items:
          a_item:
            transports:
              log: {api_key: hunter2, nested: {auth_token: hunter2}, urls: ['http://u:hunter2@h'], secrets: [hunter2]}
        """
    )
    shown = rows(folder)
    assert "hunter2" not in str(list(shown.values()))
    assert shown["database.url"].value == "postgresql+psycopg://me:***@host/shop?sslpassword=***"
    assert shown["redis.url"].value == "redis://:***@host/0"
    assert shown["kafka.config.sasl.password"].value == "***"
    assert shown["kafka.config.linger.ms"].value == 5


def test_a_password_with_an_at_sign_is_masked_whole() -> None:
    assert masked_text("redis://u:p@ss@host/0") == "redis://u:***@host/0"


def test_keys_and_signatures_in_the_query_of_a_webhook_are_masked(folder: Folder) -> None:
    """As in those of Logic Apps, of Azure's functions, of Google Chat, and in presigned ones."""
    folder.environ["HOOK"] = "https://hooks.example/invoke?api-version=1&sig=abc&X-Amz-Signature=def&code=ghi==&key=jkl"
    folder.write("outbox_items: {a_item: {transports: {http: {url: '${HOOK}'}}}}")
    shown = "https://hooks.example/invoke?api-version=1&sig=***&X-Amz-Signature=***&code=***&key=***"
    assert rows(folder)["outbox_items.a_item.transports.http.url"].value == shown


@pytest.mark.parametrize(
    "text", ["http://host:80/a@b redis://host", "key=5, code=7 in http://host/?sort_key=1&design=2"]
)
def test_text_without_a_password_is_shown_as_it_is(text: str) -> None:
    assert masked_text(text) == text


def test_all_that_is_shown_can_be_printed_as_json(folder: Folder) -> None:
    folder.write("outbox_items: {a_item: {transports: {log: {since: 2024-01-01, raw: !!binary aGk=}}}}")
    shown = json.loads(json.dumps([row.value for row in explain(folder.load())]))
    assert "2024-01-01" in shown


def test_the_schema_knows_every_key_flat_and_under_an_environment() -> None:
    schema: Any = json_schema()
    assert {"app", "poller", "outbox_items", "wakeup", "development", "production"} <= set(schema["properties"])
    assert {"logging", "tracing"} <= set(schema["properties"])
    assert schema["$defs"]["LoggingSettings"]["properties"]["format"]["enum"] == ["auto", "json", "text"]
    box = schema["$defs"]["BoxSettings"]
    assert {"transports", "strict_order", "retention", "jitter_retry_interval"} <= set(box["properties"])
    assert box["properties"]["strict_order"]["enum"] == [True, False, "bucket", "key"]
    assert box["additionalProperties"] is False
    assert "source" in schema["$defs"]["InboxSettings"]["properties"]
    json.dumps(schema)


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    names = {part.split('"')[0] for part in json.dumps(schema).split("#/$defs/")[1:]}
    assert names <= set(schema["$defs"])


def test_the_schema_describes_keys_to_editors() -> None:
    poller: Any = json_schema()["$defs"]["PollerSettings"]
    assert poller["properties"]["concurrency"]["description"] == "Partitions."
    assert poller["properties"]["concurrency"]["default"] == 6
