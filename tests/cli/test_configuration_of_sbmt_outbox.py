"""A configuration written for sbmt-outbox: loads unchanged, and its boxes deliver."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from boxengine.app.boxes import load
from tests import prepared
from tests.eventually import eventually
from tests.unit.transports.kafka_reader import headers_of, read_all

CONFIGURATION = """
default: &default
  owner: warehouse-team
  bucket_size: 16
  metrics:
    enabled: false
    port: 9090
  probes:
    enabled: false
    port: 5555

  outbox_items:
    parcel_outbox_item:
      owner: parcel-team
      retention: P2W
      min_retention_period: P1D
      retention_delivered_items: PT8H
      delivered_min_retention_period: PT1H
      deletion_batch_size: 1_000
      deletion_sleep_time: 0.25
      partition_size: 2
      max_retries: 2
      minimal_retry_interval: 5
      maximal_retry_interval: 500
      multiplier_retry_interval: 3
      partition_strategy: hash
      retry_strategies:
        - exponential_backoff
        - latest_available
      transports:
        write_label:
          class: write_label
          disposable: false
          paper: "A6"
    pallet_outbox_item:
      strict_order: false
      transports:
        - class: shipping/write_label
          event_name: "pallet_packed"
          paper: "A4"
        - class: sbmt/kafka_producer
          event_name: "pallet_sent"
          topic: TOPIC
          kafka:
            servers: BROKER
            required_acks: -1
            max_retries: 3
            ack_timeout: 2

  inbox_items:
    customs_inbox_item:
      owner: customs-team
      max_retries: 3
      transports:
        clear_customs:
          source: "kafka"

development:
  <<: *default

test:
  <<: *default
  bucket_size: 2

production:
  <<: *default
  bucket_size: 256
"""
CLASSES = """
import json, pathlib

class {name}:
    def __init__(self, **arguments):
        self.arguments = arguments
    def __call__(self, item, payload):
        with pathlib.Path("calls.jsonl").open("a") as calls:
            line = {{"who": "{name}", "box": item.box_name, "key": item.event_key, **self.arguments}}
            calls.write(json.dumps(line) + "\\n")
        return True
"""
BOXES = ("parcel_outbox_item", "pallet_outbox_item", "customs_inbox_item")


@pytest.fixture
def folder(tmp_path: Path, kafka_bootstrap: str, kafka_topic: str) -> Path:
    text = CONFIGURATION.replace("TOPIC", kafka_topic).replace("BROKER", kafka_bootstrap)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "outbox.yml").write_text(text)
    (tmp_path / "shipping").mkdir()
    (tmp_path / "write_label.py").write_text(CLASSES.format(name="WriteLabel"))
    (tmp_path / "shipping" / "write_label.py").write_text(CLASSES.format(name="WriteLabel"))
    (tmp_path / "clear_customs.py").write_text(CLASSES.format(name="ClearCustoms"))
    return tmp_path


def test_it_loads_unchanged_and_delivers(
    folder: Path, postgres_url: str, redis_url: str, kafka_bootstrap: str, kafka_topic: str
) -> None:
    environment = {**os.environ, "DATABASE_URL": postgres_url, "REDIS_URL": redis_url}

    def run(*arguments: str) -> str:
        done = prepared.run(["-m", "boxengine", *arguments], cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    checked = run("config", "check")
    assert "partition_size: ignored" in checked
    assert "3 boxes, all in order" in checked
    run("db", "create")
    for box, name in zip((*BOXES, BOXES[1]), ("", "pallet_packed", "", "pallet_sent"), strict=True):
        run("create", box, "--event-key", f"key-{name}", "--payload", "1", *(["--event-name", name] if name else []))

    log = (folder / "worker.log").open("w")
    command = ["-m", "boxengine", "start", *(part for box in BOXES for part in ("--box", box))]
    worker = prepared.start(command, cwd=folder, env=environment, stdout=log.fileno(), stderr=log.fileno())
    try:
        engine = create_engine(postgres_url)
        counting = " UNION ALL ".join(f"SELECT status FROM {box}s" for box in BOXES)

        def statuses() -> list[int]:
            with engine.connect() as connection:
                return list(connection.execute(text(counting)).scalars())

        eventually(lambda: statuses() == [2, 2, 2, 2], what="all four are delivered")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=30)
        engine.dispose()
        log.close()

    lines = (folder / "calls.jsonl").read_text().splitlines()
    calls = sorted(map(json.loads, lines), key=lambda call: str(call["box"]))
    assert calls == [
        {"who": "ClearCustoms", "box": "customs_inbox_item", "key": "key-", "source": "kafka"},
        {"who": "WriteLabel", "box": "pallet_outbox_item", "key": "key-pallet_packed", "paper": "A4"},
        {"who": "WriteLabel", "box": "parcel_outbox_item", "key": "key-", "paper": "A6"},
    ]
    [message] = read_all(kafka_bootstrap, kafka_topic)
    assert headers_of(message)["Outbox-Name"] == "pallet_outbox_item"
    assert "2 rows, 1 message: all in order" in run("audit", BOXES[1], "--kafka")


@pytest.mark.parametrize(("section", "size"), [("development", 16), ("test", 2), ("production", 256)])
def test_its_sections_inherit_by_merges(folder: Path, monkeypatch: pytest.MonkeyPatch, section: str, size: int) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert load(env=section).box("parcel_outbox_item").bucket_size == size
