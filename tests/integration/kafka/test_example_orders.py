"""``examples/orders``: outbox, Kafka, inbox and a handler that writes through ``session=``, with every worker killed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

from tests import prepared
from tests.conftest import ServerLookup
from tests.integration.kafka.inbox import produce, until
from tests.servers.databases import fresh_postgres_database

# Both use the topic and the consumer group that the example names, one after the other.
pytestmark = pytest.mark.xdist_group("example-orders")
EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"
ROUND = 300
"""Orders placed while one worker is killed."""
BOXENGINE = ["-m", "boxengine", "--log-level", "warning"]


class Service:
    """One folder of the example, and the environment its commands run in."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = os.environ | environment

    def run(self, *command: str) -> None:
        done = prepared.run(command, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()

    @contextmanager
    def running(self, *command: str) -> Iterator[prepared.Process]:
        """Killed at the end, if it still runs."""
        process = prepared.start(command, cwd=self._folder, env=self._environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def environment(server_lookup: ServerLookup, redis_url: str, real_kafka: str) -> Iterator[dict[str, str]]:
    postgres = server_lookup("postgres").address
    with fresh_postgres_database(postgres) as orders, fresh_postgres_database(postgres) as billing:
        yield {"ORDERS_DATABASE": orders, "BILLING_DATABASE": billing, "REDIS": redis_url, "KAFKA": real_kafka}


def number(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


# With a cold disk, Kafka alone needs more than a minute to start.
@pytest.mark.timeout(400)
def test_every_order_is_billed_exactly_once_and_in_order_though_each_worker_is_killed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    example = shutil.copytree(EXAMPLE, tmp_path / "example")
    orders, billing = Service(example / "orders", environment), Service(example / "billing", environment)
    database = create_engine(environment["BILLING_DATABASE"], poolclass=NullPool)
    for service in (orders, billing):
        service.run(*BOXENGINE, "db", "create")
    billing.run("invoices.py")
    placed = 3 * ROUND
    invoices = "SELECT count(*) FROM invoices"

    def billed() -> int:
        return number(database, invoices)

    with ExitStack() as stack:

        def start(service: Service, *command: str) -> prepared.Process:
            return stack.enter_context(service.running(*BOXENGINE, *command))

        places: list[tuple[Any, ...]] = [
            (orders, "start"),
            (billing, "consume"),
            (billing, "start", "-b", "order_inbox_item"),
        ]
        workers = [start(*place) for place in places]
        for victim, place in enumerate(places):
            before = billed()
            with orders.running("place_orders.py", str(ROUND)) as placing:
                until(lambda before=before: billed() > before, said=billed)  # type: ignore[misc]
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start(*place)
                assert placing.wait(120) == 0
        until(lambda: billed() >= placed, said=billed)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]

    assert billed() == placed
    assert number(database, "SELECT count(DISTINCT order_id) FROM invoices") == placed
    assert number(database, "SELECT sum(total) FROM accounts") == 3 * sum(range(1, ROUND + 1))
    overtaken = (
        "SELECT count(*) FROM invoices AS earlier JOIN invoices AS later USING (customer) "
        "WHERE earlier.id < later.id AND earlier.order_id > later.order_id"
    )
    assert number(database, overtaken) == 0
    assert number(database, "SELECT count(*) FROM order_inbox_items WHERE status <> 2") == 0


def test_a_message_that_cannot_be_read_waits_for_a_person_with_the_reason(
    environment: dict[str, str], tmp_path: Path
) -> None:
    billing = Service(shutil.copytree(EXAMPLE, tmp_path / "example") / "billing", environment)
    database = create_engine(environment["BILLING_DATABASE"], poolclass=NullPool)
    billing.run(*BOXENGINE, "db", "create")
    produce(environment["KAFKA"], "orders", [{"key": b"\xff", "value": b"{}"}])
    with billing.running(*BOXENGINE, "consume") as consumer:
        until(lambda: number(database, "SELECT count(*) FROM unreadable_inbox_items") > 0)
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(60) == 0
    reason = "options -> 'headers' ->> 'Dead-Letter-Reason' LIKE '%the key is not UTF-8%'"
    assert number(database, f"SELECT count(*) FROM unreadable_inbox_items WHERE status = 0 AND {reason}") == 1
