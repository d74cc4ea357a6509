"""``python -m tests.web.fuzz [--minutes N] [--seed N]``: run after run against a console of its own, each of another seed."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import load
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.embedded.process import ServerProcess, free_port

TOKEN = "fuzz"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CONFIGURATION = """
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
console: {{operate_token: {token}, hide: {{order_outbox_item: [customer.email]}}}}
outbox_items:
  order_outbox_item: {{strict_order: key, max_retries: 3, transports: {{log: {{}}}}}}
inbox_items:
  payment_inbox_item: {{transports: {{log: {{}}}}}}
job_items:
  report_job: {{tasks: {{export: tests.web.console.reports.export}}}}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the first run that found something; 0 where none did."""
    parser = argparse.ArgumentParser(prog="python -m tests.web.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="boxengine-fuzz-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        postgres, valkey = EmbeddedPostgres(folder / "pg", durable=False), EmbeddedValkey(folder / "vk", durable=False)
        with postgres, valkey:
            config = folder / "outbox.yml"
            config.write_text(CONFIGURATION.format(database=postgres.url(), redis=valkey.url(), token=TOKEN))
            _furnish(config, postgres.url())
            return _against(config, folder, options.minutes, options.seed)


def _against(config: Path, folder: Path, minutes: float, seed: int) -> int:
    port = free_port()
    command = [sys.executable, "-m", "boxengine", "--config", str(config), "web", "--port", str(port)]
    console = ServerProcess(command, log_path=folder / "console.log", last_signal=signal.SIGTERM)
    try:
        console.wait_until(lambda: "console is at" in console.log(), patience=timedelta(seconds=60))
        ends, runs = time.monotonic() + 60 * minutes, 0
        while time.monotonic() < ends:
            code = _run(port, seed + runs, folder)
            runs += 1
            if code:
                sys.stdout.write(f"seed {seed + runs - 1} found something; the console's log ends:\n{console.log()}\n")
                return code
        sys.stdout.write(f"{runs} runs in {minutes:g} minutes, and nothing found\n")
        return 0
    finally:
        console.stop(signal.SIGTERM, patience=timedelta(seconds=20))


def _run(port: int, seed: int, folder: Path) -> int:
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/openapi.json", "--url", url]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--checks", CHECKS, "--seed", str(seed), "--no-color"]
    return subprocess.run(command, cwd=folder, check=False).returncode


def _furnish(config: Path, database: str) -> None:
    """A few items of each status, and a few long jobs."""
    boxes = load(config)
    engine = sa.create_engine(database)
    schema.create(engine, [pipeline.box for pipeline in boxes.resolved.pipelines.values()])
    job_schema.create(engine, [pipeline.box for pipeline in boxes.resolved.jobs.values()], {})
    with engine.begin() as connection:
        for number in range(20):
            boxes.create_job(connection, "report_job", task="export", args={"rows": number}, priority=number % 3)
        connection.execute(sa.text("UPDATE report_jobs SET status = 'failed', error = 'x' WHERE id % 3 = 0"))
        for name in ("order_outbox_item", "payment_inbox_item"):
            create = boxes.create_outbox_batch if "outbox" in name else boxes.create_inbox_batch
            create(connection, name, [{"event_key": str(number % 5), "payload": b"{}"} for number in range(40)])
            connection.execute(sa.text(f"UPDATE {name}s SET status = id % 4, error_log = 'x' WHERE id % 4 > 0"))
    engine.dispose()


if __name__ == "__main__":
    raise SystemExit(main())
