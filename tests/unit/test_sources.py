"""What may stand in ``source.kafka``, and what is said of the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import boxengine
from boxengine.adapters.kafka.consumer_config import consumer_config
from boxengine.app.receiving import consuming
from boxengine.app.receiving.consuming import Consuming
from boxengine.app.receiving.sources import Source, sources
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.errors import BoxError, ConfigurationError, SchemaMismatch, UnknownBox


def written(folder: Path, **kafka: Any) -> Path:
    source = {"topics": "orders", "group": "billing", "bootstrap_servers": "127.0.0.1:9"} | kafka
    boxes = {"order_inbox_item": {"source": {"kafka": source}}, "dead_inbox_item": {}}
    path = folder / "outbox.yml"
    path.write_text(yaml.safe_dump({"database": {"url": "postgresql://h/d"}, "inbox_items": boxes}))
    return path


def found(folder: Path, *names: str, **kafka: Any) -> Source:
    return sources(boxengine.load(written(folder, **kafka)).resolved, names)["order_inbox_item"]


def test_a_source_with_all_its_keys(tmp_path: Path) -> None:
    source = found(tmp_path, batch_size="50", max_payload_bytes=1000, dead_letter={"box": "dead_inbox_item"})
    assert (source.topics, source.batch_size, source.max_payload_bytes) == (("orders",), 50, 1000)
    assert source.dead_letter_box is not None
    assert source.dead_letter_box.name == "dead_inbox_item"
    assert found(tmp_path, dead_letter={"topic": "dead"}).dead_letter_topic == "dead"


def test_every_mistake_is_told_at_once_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        found(tmp_path, batch_size=0, max_payload_bytes="much", dead_letter={"box": "order_inbox_item"}, batchsize=1)
    path = "inbox_items.order_inbox_item.source.kafka"
    told = {problem.path: problem.message for problem in caught.value.problems}
    assert told.keys() == {
        f"{path}.{key}" for key in ("batchsize", "batch_size", "max_payload_bytes", "dead_letter.box")
    }
    assert "dead_inbox_item" in told[f"{path}.dead_letter.box"]


@pytest.mark.parametrize("value", ["dead", {}, {"box": "dead_inbox_item", "topic": "dead"}, {"queue": "dead"}])
def test_a_dead_letter_is_one_box_or_one_topic(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected box: NAME or topic: NAME"):
        found(tmp_path, dead_letter=value)


def test_the_log_of_an_outbox_takes_no_dead_letters(tmp_path: Path) -> None:
    path = written(tmp_path, dead_letter={"box": "lost_outbox_item"})
    boxes = yaml.safe_load(path.read_text()) | {"outbox_items": {"lost_outbox_item": {"storage": "log"}}}
    path.write_text(yaml.safe_dump(boxes))
    with pytest.raises(ConfigurationError, match="lost_outbox_item is an outbox with storage: log, which cannot tell"):
        sources(boxengine.load(path).resolved, ())


@pytest.mark.parametrize("topics", [["orders", "orders.dead"], "^orders.*"])
def test_a_source_does_not_read_its_own_dead_letters(tmp_path: Path, topics: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"source\.kafka\.dead_letter\.topic.*the source itself reads 'orders.dead'"
    ):
        found(tmp_path, topics=topics, dead_letter={"topic": "orders.dead"})


@pytest.mark.parametrize("topics", ["orders", r"^orders\.[0-9]+$", "^orders(?<dead"])
def test_dead_letters_go_to_any_topic_that_the_source_does_not_read(tmp_path: Path, topics: str) -> None:
    assert found(tmp_path, topics=topics, dead_letter={"topic": "orders.dead"}).dead_letter_topic == "orders.dead"


def test_a_dead_letter_topic_is_a_topics_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source\.kafka\.dead_letter.*in the topic's name"):
        found(tmp_path, dead_letter={"topic": "dead.{topic}"})


@pytest.mark.parametrize("pattern", ["^[", "^orders("])
def test_a_pattern_that_is_none_is_refused_at_the_start_and_named(tmp_path: Path, pattern: str) -> None:
    resolved = boxengine.load(written(tmp_path, topics=["refunds", pattern])).resolved
    with pytest.raises(BoxError, match=re.escape(f"librdkafka refuses the topics refunds, {pattern}")):
        Consuming(resolved, observer=NullObserver(), tracer=NullTracer())


def test_a_topic_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    resolved = boxengine.load(written(tmp_path, topics=["orders", "orders"])).resolved
    process = Consuming(resolved, observer=NullObserver(), tracer=NullTracer())
    try:
        assert [each.kafka._topics for each in process._consumers] == [["orders"]]
    finally:
        process.close()


def test_a_group_id_among_librdkafkas_settings_does_not_make_two_boxes_one_group(tmp_path: Path) -> None:
    path = written(tmp_path)
    settings = yaml.safe_load(path.read_text())
    settings["kafka"] = {"config": {"group.id": "shop"}}
    orders = settings["inbox_items"]["order_inbox_item"]["source"]["kafka"]
    settings["inbox_items"]["refund_inbox_item"] = {"source": {"kafka": {**orders, "group": "refunds"}}}
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigurationError, match=r"group\.id 'shop' is not the source's group 'refunds'"):
        _ = boxengine.load(path).resolved


def test_a_box_without_a_source_cannot_be_consumed_for(tmp_path: Path) -> None:
    with pytest.raises(UnknownBox, match="known boxes: order_inbox_item"):
        found(tmp_path, "dead_inbox_item")


def test_the_command_names_the_boxes_that_it_knows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "boxengine", "--config", str(written(tmp_path)), "consume", "-b", "nope"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr == "boxengine: unknown box 'nope'; known boxes: order_inbox_item\n"


@pytest.mark.parametrize("key", ["enable.auto.commit", "enable.auto.offset.store"])
def test_offsets_are_never_committed_before_the_database(key: str) -> None:
    with pytest.raises(BoxError, match=f"{key} must be false"):
        consumer_config(bootstrap_servers="h:1", group="g", config={key: "true"}, slot="0.0")


def test_no_partition_is_left_unread_because_its_offset_is_not_valid() -> None:
    with pytest.raises(BoxError, match=r"auto\.offset\.reset must be earliest or latest"):
        consumer_config(bootstrap_servers="h:1", group="g", config={"auto.offset.reset": "error"}, slot="0.0")
    largest = consumer_config(bootstrap_servers="h:1", group="g", config={"auto.offset.reset": "largest"}, slot="0.0")
    assert largest["auto.offset.reset"] == "largest"


def test_the_users_config_goes_over_the_defaults_and_each_static_member_has_its_own_name() -> None:
    own = {"isolation.level": "read_uncommitted", "group.instance.id": "billing-1", "enable.auto.commit": "false"}
    made = consumer_config(bootstrap_servers="h:1", group="g", config=own, slot="0.1")
    assert made["isolation.level"] == "read_uncommitted"
    assert made["partition.assignment.strategy"] == "cooperative-sticky"
    assert made["group.instance.id"] == "billing-1-0.1"
    assert made["enable.auto.commit"] is False


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("shipping", {"host-0.0", "host-0.1"}),
        ("billing", {f"host-0.{box}_inbox_item.{number}" for box in ("order", "refund") for number in (0, 1)}),
    ],
)
def test_static_members_that_read_for_several_boxes_of_a_group_have_their_own_names(
    tmp_path: Path, group: str, members: set[str]
) -> None:
    path = written(tmp_path, concurrency=2)
    settings = yaml.safe_load(path.read_text())
    settings["kafka"] = {"config": {"group.instance.id": "host"}}
    orders = settings["inbox_items"]["order_inbox_item"]["source"]["kafka"]
    settings["inbox_items"]["refund_inbox_item"] = {
        "source": {"kafka": {**orders, "topics": "refunds", "group": group}}
    }
    path.write_text(yaml.safe_dump(settings))
    process = Consuming(boxengine.load(path).resolved, observer=NullObserver(), tracer=NullTracer())
    try:
        assert {each.kafka._config["group.instance.id"] for each in process._consumers} == members
    finally:
        process.close()


def test_a_process_that_waits_long_for_the_answer_to_a_commit_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "SILENCE", 0.0)
    process = Consuming(boxengine.load(written(tmp_path)).resolved, observer=NullObserver(), tracer=NullTracer())
    health = process.health()
    (source,) = (each.kafka for each in process._consumers)
    try:
        source._waiting("no answer")
        assert "kafka (commit of order_inbox_item-0): no answer" in health.ready().reasons
    finally:
        process.close()


def test_a_column_of_the_table_that_only_a_model_could_set_is_asked_for_at_start(tmp_path: Path) -> None:
    """Each message would be a dead letter."""
    path = written(tmp_path, attributes={"tenant": "x"})
    process = Consuming(boxengine.load(path).resolved, observer=NullObserver(), tracer=NullTracer())
    with pytest.raises(SchemaMismatch, match="its source sets tenant, which its model does not have"):
        process.worker(health=process.health())
