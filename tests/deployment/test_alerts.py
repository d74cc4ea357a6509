"""Every alert rings for its cause and stops after the runbook's remedy: Prometheus's own evaluation, at its own pace."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ServerLookup
from tests.deployment.dashboard import queries

RULES = Path(__file__).parents[2] / "boxengine" / "kits" / "monitoring" / "alerts.yml"
BOX = 'type="outbox", name="order_outbox_item"'
JOBS = 'type="job", name="report_job"'


@dataclass(frozen=True, slots=True)
class Case:
    """What a worker exposes while the cause lasts and after its remedy: one value a minute, in Prometheus's notation."""

    alert: str
    series: dict[str, str]
    quiet: int
    """Minute at which it does not ring yet."""
    rings: int
    stopped: int
    labels: dict[str, str]
    """Those that it rings with, besides the severity."""


def _of_box(**more: str) -> dict[str, str]:
    return {"type": "outbox", "name": "order_outbox_item", **more}


def _now_and_then(*values: int) -> str:
    """A value each four minutes; between them the process is down."""
    return " ".join(f"{value} stale _x2" for value in values)


DYING_WORKERS = _now_and_then(*range(0, 2400, 240)) + " 0x20"
MEASURED = {f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0x60"}
CASES = [
    Case(
        "OutboxOldestPendingTooOld",
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0+60x20 0x40",  # the item is discarded after 20 minutes
            f'outbox_sent_total{{{BOX}, event_name="", partition="0"}}': "0+1x60",
        },
        quiet=9,
        rings=12,
        stopped=22,
        labels=_of_box(),
    ),
    Case(
        "OutboxOldestPendingTooOld",  # an item kills each worker within a minute; it is discarded after 40 minutes
        {f"outbox_oldest_pending_age_seconds{{{BOX}}}": DYING_WORKERS},
        quiet=9,
        rings=16,
        stopped=42,
        labels=_of_box(),
    ),
    Case(
        "OutboxOldestPendingTooOld",  # a worker dies with old items; the one that takes over delivers them, and later ones wait
        {
            f'outbox_oldest_pending_age_seconds{{{BOX}, instance="dead"}}': "0 400 stale",
            f'outbox_oldest_pending_age_seconds{{{BOX}, instance="next"}}': "_x3 0x6 900x10 0x20",
        },
        quiet=9,
        rings=16,
        stopped=22,
        labels=_of_box(),
    ),
    Case(
        "OutboxNobodyMeasures",
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0x3 stale _x20 0x20"
        },  # the workers are gone, and started again
        quiet=8,
        rings=10,
        stopped=26,
        labels={},
    ),
    Case(
        "OutboxNobodyMeasures",  # a worker of long jobs alone: none of its boxes has pending items; then it is gone
        {f"queue_running_workers{{{JOBS}}}": "1x20 stale _x20 1x20"},
        quiet=18,
        rings=28,
        stopped=44,
        labels={},
    ),
    Case(
        "OutboxNobodyMeasures",  # the workers of long jobs go on
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0x3 stale _x20 0x20",
            f"queue_running_workers{{{JOBS}}}": "1x60",
        },
        quiet=8,
        rings=10,
        stopped=26,
        labels={},
    ),
    Case(
        "OutboxNobodyMeasures",  # of two boxes, one has no worker for 20 minutes
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0x3 stale _x20 0x20",
            'outbox_oldest_pending_age_seconds{type="outbox", name="other_outbox_item"}': "0x60",
        },
        quiet=8,
        rings=10,
        stopped=26,
        labels=_of_box(),
    ),
    Case(
        "OutboxNobodyMeasures",  # of two boxes, one is there no more
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0x3 stale",
            'outbox_oldest_pending_age_seconds{type="outbox", name="other_outbox_item"}': "0x80",
        },
        quiet=8,
        rings=60,
        stopped=66,
        labels=_of_box(),
    ),
    Case(
        "BoxWorkerStrandedItems",
        {**MEASURED, f"box_worker_stranded_items{{{BOX}}}": "0x2 7x15 0x20"},
        quiet=6,
        rings=9,
        stopped=19,
        labels=_of_box(),
    ),
    Case(
        "OutboxNoDelivery",  # paused, and resumed after 20 minutes
        {
            f"outbox_oldest_pending_age_seconds{{{BOX}}}": "0 0 0+30x18 0x20",
            f'outbox_sent_total{{{BOX}, event_name="", partition="0"}}': "0 5 10x18 20+10x20",
        },
        quiet=6,
        rings=12,
        stopped=24,
        labels=_of_box(),
    ),
    Case(
        "OutboxNoDelivery",  # an item kills each worker within a minute; it is discarded after 40 minutes
        {f"outbox_oldest_pending_age_seconds{{{BOX}}}": DYING_WORKERS},
        quiet=5,
        rings=8,
        stopped=42,
        labels=_of_box(),
    ),
    Case(
        "OutboxItemsFailed",
        {**MEASURED, f'outbox_error_total{{{BOX}, event_name="", partition="0"}}': "_x5 1x40"},
        quiet=4,
        rings=7,
        stopped=17,
        labels=_of_box(),
    ),
    Case(
        "OutboxItemsDiscarded",
        {
            **MEASURED,
            f'outbox_discarded_total{{{BOX}, event_name="", partition="0", reason="overtaken"}}': "_x5 2x40",
            f'outbox_discarded_total{{{BOX}, event_name="", partition="0", reason="by_hand"}}': "_x5 9x40",
        },
        quiet=4,
        rings=7,
        stopped=17,
        labels=_of_box(reason="overtaken"),
    ),
    Case(
        "OutboxOrderViolated",
        {**MEASURED, f"outbox_order_violations_total{{{BOX}}}": "_x5 1x100"},
        quiet=4,
        rings=7,
        stopped=68,
        labels=_of_box(),
    ),
    Case(
        "OutboxManyRetries",
        {
            **MEASURED,
            f'outbox_retry_total{{{BOX}, event_name="", partition="0"}}': "0x5 0+30x20 600x40",
            f'outbox_sent_total{{{BOX}, event_name="", partition="0"}}': "0+60x70",
        },
        quiet=12,
        rings=22,
        stopped=38,
        labels=_of_box(),
    ),
    Case(
        "OutboxManyRetries",  # of a box that has delivered nothing yet
        {**MEASURED, f'outbox_retry_total{{{BOX}, event_name="", partition="0"}}': "_x5 0+30x20 600x40"},
        quiet=12,
        rings=22,
        stopped=38,
        labels=_of_box(),
    ),
    Case(
        "OutboxFetchErrors",
        {**MEASURED, f'outbox_fetch_error_total{{{BOX}, partition="0"}}': "0x5 0+2x10 20x40"},
        quiet=6,
        rings=12,
        stopped=28,
        labels=_of_box(),
    ),
    Case(
        "BoxWorkerQueueLag",
        {**MEASURED, f"box_worker_redis_job_queue_time_lag_seconds{{{BOX}}}": "0x3 90x12 1x20"},
        quiet=7,
        rings=10,
        stopped=17,
        labels=_of_box(),
    ),
    Case(
        "BoxWorkerJobTimeouts",
        {**MEASURED, f'box_worker_job_timeout_total{{{BOX}, partition="0"}}': "0x3 0+1x30 30x40"},
        quiet=16,
        rings=22,
        stopped=52,
        labels=_of_box(),
    ),
    Case(
        "BoxWorkerOutages",
        {**MEASURED, 'box_worker_outages_total{what="database"}': "0x3 0+1x6 6x40"},
        quiet=5,
        rings=9,
        stopped=26,
        labels={"what": "database"},
    ),
    Case(
        "BoxWorkerOutages",  # two workers of four processes each meet one outage; then one of them meets several
        {
            **MEASURED,
            'box_worker_outages_total{what="processor", instance="a"}': "0x4 4x11 5 6 7 8 8x40",
            'box_worker_outages_total{what="processor", instance="b"}': "0x4 4x60",
        },
        quiet=12,
        rings=21,
        stopped=36,
        labels={"what": "processor"},
    ),
    Case(
        "BoxWorkerOutageLasts",  # it began once, and is met at each try of retention; transports have an alert of their own
        {
            **MEASURED,
            'box_worker_outages_total{what="retention of order_outbox_item"}': "_x2 1x60",
            'box_worker_outage_seconds{what="retention of order_outbox_item"}': "_x2 0x9 600x9 1200x9 0x30",
            'box_worker_outage_seconds{what="transport kafka of order_outbox_item"}': "0+60x60",
        },
        quiet=14,
        rings=18,
        stopped=33,
        labels={"what": "retention of order_outbox_item"},
    ),
    Case(
        "BoxWorkerCircuitOpen",
        {**MEASURED, f'box_worker_circuit_open{{{BOX}, transport="kafka"}}': "0x3 1x20 0x20"},
        quiet=12,
        rings=15,
        stopped=25,
        labels=_of_box(transport="kafka"),
    ),
    Case(
        "BoxConsumerLag",
        {**MEASURED, f'box_consumer_lag_messages{{{BOX}, topic="orders", partition="0"}}': "0x3 20000x20 5x20"},
        quiet=12,
        rings=15,
        stopped=25,
        labels=_of_box(topic="orders"),
    ),
    Case(
        "BoxConsumerLag",  # the consumer dies again and again; of two partitions, together, too many messages wait
        {
            **MEASURED,
            f'box_consumer_lag_messages{{{BOX}, topic="orders", partition="0"}}': _now_and_then(*[6000] * 8) + " 5x20",
            f'box_consumer_lag_messages{{{BOX}, topic="orders", partition="1"}}': _now_and_then(*[6000] * 8) + " 5x20",
        },
        quiet=8,
        rings=15,
        stopped=34,
        labels=_of_box(topic="orders"),
    ),
    Case(
        "BoxConsumerGone",  # stopped, and started again after 20 minutes
        {**MEASURED, f'box_consumer_lag_messages{{{BOX}, topic="orders", partition="0"}}': "5x3 stale _x20 5x20"},
        quiet=12,
        rings=16,
        stopped=27,
        labels=_of_box(topic="orders"),
    ),
    Case(
        "BoxConsumerGone",  # for good: of two topics, one is read no more
        {
            **MEASURED,
            f'box_consumer_lag_messages{{{BOX}, topic="orders", partition="0"}}': "5x3 stale",
            f'box_consumer_lag_messages{{{BOX}, topic="payments", partition="0"}}': "0x80",
        },
        quiet=12,
        rings=60,
        stopped=65,
        labels=_of_box(topic="orders"),
    ),
    Case(
        "BoxConsumerDeadLetters",
        {**MEASURED, f'box_consumer_dead_letters_total{{{BOX}, topic="orders", reason="x"}}': "_x5 1x40"},
        quiet=4,
        rings=7,
        stopped=17,
        labels=_of_box(topic="orders"),
    ),
    Case(
        "LongJobsWaitTooLong",  # paused, and resumed after 40 minutes; the worker dies now and then
        {**MEASURED, f"queue_oldest_ready_age_seconds{{{JOBS}}}": DYING_WORKERS},
        quiet=18,
        rings=28,
        stopped=42,
        labels={"type": "job", "name": "report_job"},
    ),
    Case(
        "LongJobsNobodyWorks",  # of two boxes, one has no worker for 20 minutes
        {
            **MEASURED,
            f'queue_running_workers{{{JOBS}, process="0"}}': "1x3 stale _x20 1x20",
            'queue_running_workers{type="job", name="other_job", process="0"}': "1x60",
        },
        quiet=12,
        rings=16,
        stopped=27,
        labels={"type": "job", "name": "report_job"},
    ),
    Case(
        "LongJobsNobodyWorks",  # for good
        {**MEASURED, f"queue_running_workers{{{JOBS}}}": "1x3 stale"},
        quiet=12,
        rings=60,
        stopped=66,
        labels={"type": "job", "name": "report_job"},
    ),
    Case(
        "LongJobsFailed",
        {**MEASURED, f'queue_jobs_ended_total{{{JOBS}, end="failed"}}': "_x5 1x40"},
        quiet=4,
        rings=7,
        stopped=17,
        labels={"type": "job", "name": "report_job"},
    ),
    Case(
        "LongJobsFailed",  # of a box in which some had failed before; attempts that are repeated do not count
        {
            **MEASURED,
            f'queue_jobs_ended_total{{{JOBS}, end="failed"}}': "3x15 4x40",
            f'queue_jobs_ended_total{{{JOBS}, end="requeued"}}': "0+1x60",
        },
        quiet=14,
        rings=18,
        stopped=28,
        labels={"type": "job", "name": "report_job"},
    ),
    Case(
        "LongJobsLost",
        {
            **MEASURED,
            f'queue_jobs_reaped_total{{{JOBS}, state="lost"}}': "_x2 0x3 1x40",
            f'queue_jobs_reaped_total{{{JOBS}, state="requeued"}}': "_x2 1x40",
        },
        quiet=4,
        rings=8,
        stopped=19,
        labels={"type": "job", "name": "report_job"},
    ),
]


def _rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_every_alert_has_a_case() -> None:
    assert list(dict.fromkeys(case.alert for case in CASES)) == list(_rules())


def test_every_alert_rings_for_its_cause_and_stops_after_the_remedy(
    tmp_path: Path, server_lookup: ServerLookup
) -> None:
    severities = {name: rule["labels"]["severity"] for name, rule in _rules().items()}
    tests = []
    for case in CASES:
        ringing = [{"exp_labels": {"severity": severities[case.alert], **case.labels}}]
        told = [(case.quiet, []), (case.rings, ringing), (case.stopped, [])]
        tests.append(
            {
                "name": case.alert,
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
                    for minute, alerts in told
                ],
            }
        )
    bare = yaml.safe_load(RULES.read_text())
    for rule in bare["groups"][0]["rules"]:
        del rule["annotations"]  # their values are for people; what is compared are labels
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(bare))
    _pass(tests, tmp_path, server_lookup)


def test_the_dashboard_counts_the_first_outage_of_a_worker(tmp_path: Path, server_lookup: ServerLookup) -> None:
    (query,) = (query for query in queries() if "box_worker_outages_total" in query)
    outages = {"a": "_x5 1x100", "b": "3x75 4x100"}  # one that appears with its first outage, and one with another
    told = [("30m", 1.0), ("100m", 0.0)], [("70m", 0.0), ("100m", 1.0)]
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": f'box_worker_outages_total{{what="database", instance="{name}"}}', "values": outages[name]}
            ],
            "promql_expr_test": [
                {"expr": query, "eval_time": when, "exp_samples": [{"labels": '{what="database"}', "value": value}]}
                for when, value in values
            ],
        }
        for name, values in zip(outages, told, strict=True)
    ]
    (tmp_path / "alerts.yml").write_text("groups: []")
    _pass(tests, tmp_path, server_lookup)


def test_the_dashboard_counts_a_partition_once_while_it_moves_between_consumers(
    tmp_path: Path, server_lookup: ServerLookup
) -> None:
    """The one that gave it up shows its last measurement for another minute."""
    (query,) = (query for query in queries() if "box_consumer_lag_messages" in query)
    lag = f'box_consumer_lag_messages{{{BOX}, topic="orders", '
    series = {'partition="0", instance="a"}': "70 70", 'partition="0", instance="b"}': "70 70", 'partition="1"}': "5 5"}
    sample = {"labels": '{name="order_outbox_item", topic="orders"}', "value": 75}
    test = {
        "interval": "1m",
        "input_series": [{"series": lag + labels, "values": values} for labels, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "1m", "exp_samples": [sample]}],
    }
    (tmp_path / "alerts.yml").write_text("groups: []")
    _pass([test], tmp_path, server_lookup)


def _pass(tests: list[dict[str, Any]], folder: Path, server_lookup: ServerLookup) -> None:
    (folder / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool = server_lookup("promtool").address
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
