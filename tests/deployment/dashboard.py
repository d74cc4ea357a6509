"""A real Prometheus scrapes a real worker: which queries of the dashboard have data. ``make proof-dashboard``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from sqlalchemy import create_engine

from boxengine.app.boxes import load
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.embedded.process import free_port
from tests.eventually import eventually
from tests.servers.programs import find_program

DASHBOARD = Path(__file__).parents[2] / "boxengine" / "kits" / "monitoring" / "grafana-dashboard.json"
ELSEWHERE = (
    "box_consumer_",
    "box_worker_job_timeout_total",
    "box_worker_outages_total",
    "outbox_deleted_total",
    "outbox_fetch_error_total",
)
"""Metrics whose causes are not played here: Kafka, calls of minutes, outages, items of weeks, batches that cannot be read."""
TRANSPORTS = '''
from boxengine import create_outbox_item


class Shaky:
    """Refuses every third item for ever, and another third once. Of each that it takes it tells the other box."""

    def __call__(self, item, payload, *, session):
        create_outbox_item(session, "good_outbox_item", event_key=item.event_key, payload=payload)
        return not (item.id % 3 == 0 or (item.id % 3 == 1 and item.errors_count == 0))
'''
BOXES = {
    "good_outbox_item": {"transports": {"log": {}}},
    "shaky_outbox_item": {
        "max_retries": 2,
        "minimal_retry_interval": "PT0.2S",
        "maximal_retry_interval": "PT0.2S",
        "retry_strategies": ["exponential_backoff", "latest_available"],
        "key_index": True,
        "transports": {"transports.Shaky": {}},
    },
}


def queries() -> list[str]:
    """All of the dashboard, for all boxes."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "15s").replace("$type", ".*").replace("$box", ".*") for query in found]


def without_data(prometheus: str, wanted: list[str]) -> list[str]:
    """Those that return nothing, or nothing but NaN."""
    return [query for query in wanted if not _has_data(prometheus, query)]


def _has_data(prometheus: str, query: str) -> bool:
    with urlopen(f"{prometheus}/api/v1/query?{urlencode({'query': query})}", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return any(each["value"][1] != "NaN" for each in found)


@contextmanager
def _running(command: list[str], folder: Path, name: str, **environ: str) -> Iterator[None]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environ}, stdout=log, stderr=log)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()


def prove(
    *, processes: int, postgres: str, redis: str, folder: Path, ports: tuple[int, int], patience: float
) -> list[str]:
    """The queries that ought to have data and have none."""
    folder.mkdir()
    metrics, web = ports
    (folder / "transports.py").write_text(TRANSPORTS)
    settings = {
        "database": {"url": postgres},
        "redis": {"url": redis},
        "metrics": {"enabled": True, "port": metrics},
        "probes": {"enabled": False},
        "outbox_items": BOXES,
    }
    (folder / "outbox.yml").write_text(yaml.safe_dump(settings))
    scrape = {"job_name": "boxengine", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]})
    )
    program = find_program("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed; Debian: apt-get install prometheus")
    cli = [sys.executable, "-m", "boxengine"]
    subprocess.run([*cli, "db", "create"], cwd=folder, check=True, capture_output=True)
    boxes = load(folder / "outbox.yml")
    engine = create_engine(postgres)
    scraping = [
        program,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{web}",
    ]
    wanted = [query for query in queries() if not any(name in query for name in ELSEWHERE)]
    missing = wanted
    pace, rounds = threading.Event(), count()

    def fed_and_answered() -> bool:
        nonlocal missing
        pace.wait(1.0)  # as often as Prometheus looks
        if next(rounds) % 40 < 20:  # polls are throttled where there is nothing to find
            with engine.begin() as connection:
                for name in BOXES:
                    boxes.create_outbox_batch(
                        connection, name, [{"event_key": n % 7, "payload": b"x"} for n in range(30)]
                    )
        try:
            missing = without_data(f"http://127.0.0.1:{web}", missing)
        except OSError:
            return False  # Prometheus starts
        return not missing

    with (
        _running([*cli, "start", "--processes", str(processes)], folder, "worker"),
        _running(scraping, folder, "prometheus"),
    ):
        try:
            eventually(fed_and_answered, patience=patience)
        except AssertionError:
            return missing
        finally:
            engine.dispose()
    return []


def main() -> int:
    """Without and with ``--processes``; 1 if a query that ought to have data has none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=240.0, help="seconds for each")
    asked = parser.parse_args()
    missing = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        valkey = stack.enter_context(EmbeddedValkey(folder / "valkey", durable=False))
        for processes in (1, 2):
            found = prove(
                processes=processes,
                postgres=postgres.url("postgres"),
                redis=valkey.url(),
                folder=folder / f"with-{processes}",
                ports=(free_port(), free_port()),
                patience=asked.patience,
            )
            print(
                f"{processes} process(es): {len(queries())} queries, {len(found)} without the data they ought to have"
            )
            missing += found
    print(*missing, sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
