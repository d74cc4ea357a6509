"""The dashboard, the alert rules and the docs name metrics; they must name those that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.ports import events
from tests.conftest import ServerLookup
from tests.unit.telemetry.samples import BOX, EVENTS

ROOT = Path(__file__).parents[3]
METRIC = re.compile(r"\b(?:outbox|box_worker|box_consumer|queue)_[a-z_]+\b")


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Sample names with their labels, after one event of each kind (two outcomes of jobs)."""
    registry = CollectorRegistry()
    observer = PrometheusObserver(clock=ManualClock(), partitions=4, registry=registry)
    for event in EVENTS:
        observer.see(event)
    observer.see(events.HoldEnded(BOX, [1], events.Ending.TIMEOUT, seconds=1.0))
    return {sample.name: set(sample.labels) for metric in registry.collect() for sample in metric.samples}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "boxengine/kits/monitoring/grafana-dashboard.json").read_text())
    return loaded


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]] + [
        variable["query"]["query"] for variable in dashboard()["templating"]["list"] if variable["type"] == "query"
    ]


def alert_rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((ROOT / "boxengine/kits/monitoring/alerts.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def test_every_family_shows_up_once_its_event_has_happened(exposed: dict[str, set[str]]) -> None:
    suffixes = {families.Kind.COUNTER: "_total", families.Kind.GAUGE: "", families.Kind.HISTOGRAM: "_bucket"}
    missing = {family.name for family in families.ALL if family.name + suffixes[family.kind] not in exposed}
    assert missing == set()


@pytest.mark.parametrize("query", [*dashboard_queries(), *(rule["expr"] for rule in alert_rules())])
def test_every_metric_and_label_that_a_query_names_exists(exposed: dict[str, set[str]], query: str) -> None:
    names = set(METRIC.findall(query))
    assert names
    assert names <= set(exposed)
    labels = set().union(*(exposed[name] for name in names))
    grouped = {label.strip() for group in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in group.split(",")}
    assert grouped <= labels
    assert query.count("(") == query.count(")")


def test_the_alerts_watch_age_failures_queue_lag_and_missing_deliveries() -> None:
    assert {rule["alert"] for rule in alert_rules()} >= {
        "OutboxOldestPendingTooOld",
        "OutboxItemsFailed",
        "BoxWorkerQueueLag",
        "OutboxNoDelivery",
        "OutboxNobodyMeasures",
        "BoxConsumerLag",
        "BoxConsumerGone",
        "BoxConsumerDeadLetters",
    }
    for rule in alert_rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(rule["alert"] for rule in alert_rules())
    for rule in alert_rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_every_metric_that_the_docs_name_exists(exposed: dict[str, set[str]]) -> None:
    bases = {family.name for family in families.ALL} | set(exposed)
    for page in ("operations.md", "metrics.md", "tracing.md", "kafka.md"):
        named = set(
            re.findall(
                r"`((?:outbox|box_worker|box_consumer)_[a-z_]+)(?:\{[^`]*)?`", (ROOT / "docs" / page).read_text()
            )
        )
        assert named - bases - {"outbox_items", "outbox_item", "box_name"} == set(), page


def test_the_legends_of_the_dashboard_name_labels_of_their_queries() -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            grouped, *_ = re.findall(r"by \(([^)]*)\)", target["expr"])  # the outermost, whose labels remain
            labels = {label.strip() for label in grouped.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, panel["title"]


def test_grafanas_own_types_know_every_key_of_the_dashboard(server_lookup: ServerLookup) -> None:
    server_lookup("grafana-types")
    read = dashboard()
    assert [*lost(read, as_grafana_has_it(read))] == []
    read["panels"][1]["fieldConfig"]["defaults"]["units"] = "ops"
    assert [*lost(read, as_grafana_has_it(read))] == ["panels.1.fieldConfig.defaults.units"]


def as_grafana_has_it(document: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of Grafana's types, and without the keys that they do not have."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    written: dict[str, Any] = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    return written


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The places where the second value does not say what the first says."""
    match before:
        case dict() if isinstance(after, dict):
            for key, value in before.items():
                yield from lost(value, after.get(key), f"{path}.{key}")
        case list() if isinstance(after, list) and len(before) == len(after):
            for number, value in enumerate(before):
                yield from lost(value, after[number], f"{path}.{number}")
        case _ if before != after:
            yield path.removeprefix(".")


def test_the_panels_of_the_dashboard_have_their_own_ids_and_places() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def test_the_docs_tabulate_every_metric_with_its_kind_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|[^|]*\| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    expected = {
        family.name + ("_total" if family.kind is families.Kind.COUNTER else ""): family.kind.value
        for family in families.ALL
    }
    assert dict(rows) == expected
