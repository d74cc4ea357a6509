"""``boxengine start --processes 2``: one ``/metrics`` over all, exact also after one was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from boxengine.embedded.process import free_port
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.telemetry.site import Samples, total
from tests.web.test_server import get

BOX = {"type": "outbox", "name": "order_outbox_item", "owner": ""}
COUNT = 3000


def scrape(port: int) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(get(port, "/metrics")[2].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_one_scrape_counts_what_all_processes_did_also_the_one_that_was_killed(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    port = free_port()
    project = Project(
        tmp_path, database=postgres_url, redis=redis_url, more=f"metrics: {{enabled: true, port: {port}}}"
    )
    project.call("db", "create")
    with project.worker("--processes", "2") as worker:
        started = eventually(lambda: [line["pid"] for line in worker.lines() if "started: " in line["message"]][1:2])
        project.fill(COUNT)
        eventually(lambda: project.counts() == {2: COUNT}, what="all delivered")
        eventually(lambda: total(scrape(port), "outbox_sent_total", BOX) == COUNT)
        ages = eventually(lambda: scrape(port).get("outbox_oldest_pending_age_seconds", []))
        assert [labels for labels, _ in ages] == [BOX], "two processes, one that looks"
        os.kill(started[0], signal.SIGKILL)
        eventually(lambda: any("another is started" in line["message"] for line in worker.lines()))
        project.fill(COUNT)
        eventually(lambda: total(scrape(port), "outbox_sent_total", BOX) == 2 * COUNT)
        samples = scrape(port)
        assert total(samples, "outbox_process_latency_seconds_count", BOX) == 2 * COUNT
        assert worker.stop() == 0
