"""The shop on FastAPI: from an empty database to Kafka and a webhook, as its README says."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer

from boxengine.embedded.process import free_port
from tests.eventually import eventually

MIGRATE = """
from alembic.config import main
main(["revision", "--autogenerate", "-m", "orders"])
main(["upgrade", "head"])
main(["check"])
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi"


def test_the_guide_shows_the_files_of_the_example() -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "fastapi.md").read_text()
    shown = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', guide, re.DOTALL))
    others = {"outbox.yml", "alembic.ini", "migrations/env.py", "migrations/script.py.mako"}
    assert shown.keys() == {"store.py", "test_store.py", *others}
    assert shown == {name: (EXAMPLE / name).read_text() for name in shown}


class Billing:
    """Receives what the webhook sends."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        billing = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                billing.orders.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def billing() -> Iterator[Billing]:
    billing = Billing()
    thread = threading.Thread(target=billing.server.serve_forever)
    thread.start()
    yield billing
    billing.server.shutdown()
    thread.join()
    billing.server.server_close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg_async"])
def test_an_order_reaches_kafka_and_the_webhook(
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    kafka_bootstrap: str,
    kafka_topic: str,
    billing: Billing,
    driver: str,
) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    url = sa.make_url(postgres_url).set(drivername=f"postgresql+{driver}", query={})
    environment = {
        **os.environ,
        "DATABASE_URL": url.render_as_string(hide_password=False),
        "REDIS_URL": redis_url,
        "KAFKA": kafka_bootstrap,
        "KAFKA_TOPIC": kafka_topic,
        "BILLING_URL": f"http://127.0.0.1:{billing.server.server_address[1]}",
    }

    # One process: starting Python costs more than all that it does here.
    subprocess.run([sys.executable, "-c", MIGRATE], cwd=folder, env=environment, check=True, timeout=120)
    port = free_port()
    log = folder / "log"
    with log.open("wb") as output:
        shop = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "store:app", "--port", str(port)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            eventually(lambda: _is_ready(client))
            answer = client.post("/orders", json={"title": "a bicycle"})
            assert answer.status_code == 201, log.read_text()
            eventually(lambda: billing.orders == [{"title": "a bicycle"}])
            with suppress(httpx.TransportError):  # uvicorn drops the connection of a request that raised
                too_long = client.post("/orders", json={"title": "x" * 200}, headers={"connection": "close"})
                assert too_long.status_code == 500
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            assert client.get("/boxengine/").status_code in (401, 403)
            assert "order_outbox_item" in client.get("/boxengine/", headers={"x-staff": "letmein"}).text
        shop.send_signal(signal.SIGTERM)
        assert shop.wait(timeout=60) in (0, -signal.SIGTERM), log.read_text()
    finally:
        shop.kill()
        shop.wait()
    engine = sa.create_engine(postgres_url)
    with engine.connect() as connection:
        statuses = connection.execute(sa.text("SELECT status FROM order_outbox_items")).scalars().all()
        titles = connection.execute(sa.text("SELECT title FROM orders")).scalars().all()
    engine.dispose()
    assert (list(statuses), list(titles)) == ([2], ["a bicycle"]), log.read_text()
    assert _messages(kafka_bootstrap, kafka_topic) == [{"title": "a bicycle"}]
    if driver == "asyncpg":
        assert "asyncpg is the application's driver" in log.read_text()


def test_the_test_of_the_guide_passes_and_sends_nothing(tmp_path: Path, postgres_url: str) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(EXAMPLE, folder)
    url = sa.make_url(postgres_url).set(drivername="postgresql+asyncpg", query={})
    nowhere = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "DATABASE_URL": url.render_as_string(hide_password=False),
        "REDIS_URL": f"redis://{nowhere}/0",
        "KAFKA": nowhere,
        "BILLING_URL": f"http://{nowhere}",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(folder)]),
    }
    for code in (MIGRATE, "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"):
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, timeout=120)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readiness/outbox").status_code == 200
    except httpx.TransportError:
        return False


def _messages(bootstrap: str, topic: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []

    def look() -> bool:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(json.loads(message.value() or b"null"))
        return bool(found)

    eventually(look)
    consumer.close()
    return found
