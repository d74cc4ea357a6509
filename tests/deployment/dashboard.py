"""A real Prometheus scrapes a real worker and a consumer: every query of the dashboard has data. ``make proof-dashboard``."""

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
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from confluent_kafka import Producer
from sqlalchemy import create_engine

from boxengine.app.boxes import load
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.embedded.process import free_port
from tests.deployment.scene import Traffic, write
from tests.eventually import eventually
from tests.servers.kafka import KafkaFromJars
from tests.servers.programs import find_program

DASHBOARD = Path(__file__).parents[2] / "boxengine" / "kits" / "monitoring" / "grafana-dashboard.json"


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
def running(command: list[str], folder: Path, name: str) -> Iterator[None]:
    """A process with a log in the folder; stopped at the end, killed if that fails."""
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=os.environ.copy(), stdout=log, stderr=log)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()


def scraping(folder: Path, metrics: tuple[int, int], web: int, **more: Any) -> list[str]:
    """Prometheus's command; its configuration goes into the folder.

    Args:
        more: further keys of the configuration.
    """
    program = find_program("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed; Debian: apt-get install prometheus")
    targets = [f"127.0.0.1:{port}" for port in metrics]
    scrape = {"job_name": "boxengine", "static_configs": [{"targets": targets}]}
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": [scrape], **more}
        )
    )
    here = f"--web.listen-address=127.0.0.1:{web}"
    return [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", here]


def prove(*, processes: int, postgres: str, redis: str, kafka: str, folder: Path, patience: float) -> list[str]:
    """The queries that have no data."""
    topic = f"arrived-{processes}"
    metrics, web = (free_port(), free_port()), free_port()
    write(folder, postgres=postgres, redis=redis, kafka=kafka, topic=topic, ports=metrics)
    cli = [sys.executable, "-m", "boxengine"]
    subprocess.run([*cli, "db", "create"], cwd=folder, check=True, capture_output=True)
    engine = create_engine(postgres, pool_pre_ping=True)
    traffic = Traffic(load(folder / "outbox.yml"), engine, Producer({"bootstrap.servers": kafka}), topic)
    missing = queries()
    pace = threading.Event()

    def everything_has_data() -> bool:
        nonlocal missing
        pace.wait(1.0)  # as often as Prometheus looks
        traffic.go_on()
        try:
            missing = without_data(f"http://127.0.0.1:{web}", missing)
        except OSError:
            return False  # Prometheus starts
        return not missing

    consume = [*cli, "--config", "outbox.yml", "--config", "consumer.yml", "consume"]
    several = ["--processes", str(processes)]
    with (
        running([*cli, "start", *several], folder, "worker"),
        running([*consume, *several], folder, "consumer"),
        running(scraping(folder, metrics, web), folder, "prometheus"),
    ):
        try:
            eventually(everything_has_data, patience=patience)
        except AssertionError:
            return missing
        finally:
            engine.dispose()
    return []


def main() -> int:
    """Without and with ``--processes``; 1 if a query has no data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=240.0, help="seconds for each")
    asked = parser.parse_args()
    missing = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        valkey = stack.enter_context(EmbeddedValkey(folder / "valkey", durable=False))
        kafka = KafkaFromJars(os.environ).start(folder, stack)
        if not kafka.address:
            raise SystemExit(f"a consumer needs a real Kafka: {kafka.detail}")
        for processes in (1, 2):
            found = prove(
                processes=processes,
                postgres=postgres.create_database(f"with_{processes}"),
                redis=valkey.url(),
                kafka=kafka.address,
                folder=folder / f"with-{processes}",
                patience=asked.patience,
            )
            print(f"{processes} process(es): {len(queries())} queries, {len(found)} without data", flush=True)
            missing += found
    print(*missing, sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
