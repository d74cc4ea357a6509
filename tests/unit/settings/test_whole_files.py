"""Files as people have them: the example that the project ships, and one written for sbmt-outbox."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from boxengine.settings import Settings, load, notices, resolve
from boxengine.settings.boxes import InboxSettings, KafkaSettings, KafkaSource
from boxengine.settings.schema import (
    DatabaseSettings,
    LoggingSettings,
    MetricsSettings,
    MiddlewaresSettings,
    PollerSettings,
    ProbesSettings,
    ProcessorSettings,
    RedisSettings,
    TracingSettings,
)
from tests.unit.settings.folder import BUILT_IN, Folder

EXAMPLE = Path(__file__).parents[3] / "outbox.yml.example"
SECTIONS = (
    Settings,
    DatabaseSettings,
    RedisSettings,
    PollerSettings,
    ProcessorSettings,
    MiddlewaresSettings,
    MetricsSettings,
    ProbesSettings,
    LoggingSettings,
    TracingSettings,
    KafkaSettings,
    InboxSettings,
    KafkaSource,
)

FOR_SBMT_OUTBOX = """
default: &default
  owner: billing-team
  bucket_size: 16
  metrics:
    enabled: true
    port: 9090
  probes:
    enabled: false
    port: 5555
  kafka:
    required_acks: -1
    max_retries: 1
  outbox_items:
    invoice_outbox_item:
      owner: invoices-team
      partition_size: 2
      partition_strategy: number
      retention: P1W
      min_retention_period: P1D
      retention_delivered_items: PT6H
      delivered_min_retention_period: PT1H
      deletion_batch_size: 1_000
      deletion_sleep_time: 0.5
      max_retries: 3
      strict_order: false
      minimal_retry_interval: 10
      maximal_retry_interval: 600
      multiplier_retry_interval: 2
      retry_strategies:
        - exponential_backoff
        - compacted_log
      transports:
        send_invoice:
          class: {transport}
          disposable: false
          topic: "invoices"
          kafka:
            required_acks: -1
    combined/outbox_item:
      partition_strategy: hash
      transports:
        - class: {transport}
          event_name: "invoice_opened"
          topic: "invoices-opened"
        - class: {transport}
          event_name: "invoice_paid"
          disposable: true
          topic: "invoices-paid"
  inbox_items:
    payment_inbox_item:
      max_retries: 3
      transports:
        {transport}:
          source: "kafka"

development:
  <<: *default

test:
  <<: *default
  bucket_size: 2

staging:
  <<: *default

production:
  <<: *default
  bucket_size: 256
""".replace("{transport}", "tests.unit.settings.shop.Anything")


def test_the_example_that_the_project_ships_is_valid(tmp_path: Path) -> None:
    settings = load([EXAMPLE], env=None, environ={}, cwd=tmp_path)
    assert notices(settings) == []
    assert set(resolve(settings, builtin_transports=BUILT_IN).pipelines) == set(settings.boxes)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_example_names_every_key(section: type) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\s*(?:# *)?([a-z_]+):", text, re.MULTILINE))
    assert set(section.model_fields) - {"partition_size"} <= named  # type: ignore[attr-defined]


def test_the_examples_commented_keys_are_valid_too(folder: Folder) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    sentinel = (
        r"^  # (?=sentinel|master_name|db|username|password:|ssl)(.*)$"  # password_file would contradict password
    )
    commented = "\n".join(re.findall(sentinel, text, re.MULTILINE)).replace("ssl: false", "ssl: true")
    folder.environ.update(REDIS_PASSWORD="x", SENTINEL_PASSWORD="y")
    settings = folder.settings("redis:\n" + "\n".join(f"  {line}" for line in commented.splitlines()))
    assert len(settings.redis.sentinels) == 2
    assert yaml.safe_load(commented)["db"] == settings.redis.db


@pytest.mark.parametrize(
    ("environment", "buckets"), [("development", 16), ("test", 2), ("staging", 16), ("production", 256)]
)
def test_a_file_for_sbmt_outbox_is_read_unchanged_apart_from_class_names(
    folder: Folder, environment: str, buckets: int
) -> None:
    folder.write(FOR_SBMT_OUTBOX)
    settings = folder.load(env=environment)
    resolved = resolve(settings, builtin_transports=BUILT_IN)
    assert list(resolved.pipelines) == ["invoice_outbox_item", "combined/outbox_item", "payment_inbox_item"]

    invoice, combined, payment = resolved.pipelines.values()
    assert (invoice.box.owner, invoice.box.bucket_size, invoice.box.max_retries) == ("invoices-team", buckets, 3)
    assert (invoice.box.retention.delivered, invoice.box.retention.batch_size) == (timedelta(hours=6), 1000)
    assert invoice.transports[0].build().arguments == {"topic": "invoices", "kafka": {"required_acks": -1}}
    assert [(spec.event_name, spec.disposable) for spec in combined.transports] == [
        ("invoice_opened", False),
        ("invoice_paid", True),
    ]
    assert combined.box.table == "combined_outbox_items"
    assert payment.transports[0].build().arguments == {"source": "kafka"}
    assert (settings.metrics.enabled, settings.probes.enabled) == (True, False)


def test_partition_size_of_the_old_worker_is_ignored_with_a_warning(folder: Folder) -> None:
    folder.write(FOR_SBMT_OUTBOX)
    assert [notice.path for notice in notices(folder.load())] == ["outbox_items.invoice_outbox_item.partition_size"]
