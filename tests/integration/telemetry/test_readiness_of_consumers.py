"""``boxengine consume``: readiness tells that Kafka is out of reach, also where other processes find out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.error import URLError

import pytest

from boxengine.embedded.process import free_port
from tests.cli.project import Project
from tests.eventually import eventually
from tests.web.test_server import body, get

NOBODY = """
inbox_items:
  payment_inbox_item:
    transports: {{log: {{}}}}
    source: {{kafka: {{topics: [payments], group: shop, bootstrap_servers: "127.0.0.1:{port}"}}}}
"""


@pytest.mark.parametrize(("processes", "whose"), [("1", [""]), ("2", ["1: ", "2: "])])
def test_consumers_are_not_ready_while_no_broker_answers(
    tmp_path: Path, postgres_url: str, redis_url: str, processes: str, whose: list[str]
) -> None:
    port = free_port()
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=NOBODY.format(port=free_port()))
    project.call("db", "create")
    (tmp_path / "probes.yml").write_text(f"probes: {{enabled: true, port: {port}}}")
    command = ["--config", "outbox.yml", "--config", "probes.yml", "consume", "--processes", processes]

    def reasons() -> list[str]:
        try:
            status, answer = body(get(port, "/readiness/outbox"))
        except URLError:
            return []
        assert (status == 200) is answer["ok"]
        return list(answer["reasons"])

    with subprocess.Popen([sys.executable, "-m", "boxengine", *command], cwd=tmp_path) as worker:
        try:
            eventually(lambda: {reason.partition("kafka (payment_inbox_item)")[0] for reason in reasons()} >= {*whose})
        finally:
            worker.terminate()
    assert worker.returncode == 0
