"""The probes of running workers tell the truth: with a transport that hangs, and with servers that are dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.eventually import eventually
from tests.integration.engine.receivers import Gate, Receiver
from tests.integration.kafka.inbox import Inbox, numbered, produce
from tests.integration.telemetry.conftest import MakeSite
from tests.integration.telemetry.site import Running
from tests.integration.telemetry.test_metrics_of_a_consumer import consuming
from tests.servers.kafka import KafkaBroker

LIVENESS, READINESS = "/liveness/outbox", "/readiness/outbox"
FINE: tuple[int, list[str]] = (200, [])


def told(answer: tuple[int, list[str]]) -> tuple[int, list[str]]:
    """The status, and what each reason is about."""
    return answer[0], [reason.partition(":")[0] for reason in answer[1]]


def test_a_transport_that_hangs_longer_than_the_general_timeout_is_not_alive_until_it_goes_on(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(processor={"general_timeout": 1, "cutoff_timeout": 1, "threads_count": 2, "brpop_delay": 0.1})
    gate = Gate()
    site.carry(gate)
    site.create("1")
    with site.running() as running:
        assert gate.entered.wait(60)
        eventually(lambda: running.ask(LIVENESS)[0] == 503)
        status, reasons = told(running.ask(LIVENESS))
        assert (status, len(reasons)) == (503, 1)
        assert reasons[0].startswith("boxengine-processor-")
        assert told(running.ask(READINESS)) == (503, reasons)
        gate.open()
        eventually(lambda: running.ask(LIVENESS) == FINE)
        assert running.ask(READINESS) == FINE
        running.watcher.wait_for_settled(1)
    # An orchestrator restarts the worker and forgets why, so its log says so.
    hung, again = (line for line in caplog.messages if "liveness" in line)
    assert hung.startswith("liveness fails: boxengine-processor-")
    assert again.startswith("liveness passes again")


def test_threads_that_wait_for_their_turn_at_the_queue_are_alive(make_site: MakeSite) -> None:
    site = make_site(processor={"general_timeout": 1, "cutoff_timeout": 1, "threads_count": 16, "brpop_delay": 0.1})
    site.carry(Receiver())
    with site.running() as running:
        for _ in range(40):
            running.watcher.listen(0.1)
            assert running.ask(LIVENESS) == FINE


def outlives_its_servers(running: Running) -> None:
    """However long the loops wait, a restart would not help them: all of them must have said so again and again."""
    running.watcher.wait_for(lambda: bool(running.watcher.outages))
    for _ in range(30):
        running.watcher.listen(0.1)
        assert running.ask(LIVENESS) == FINE


def test_a_worker_whose_database_dies_is_not_ready_but_alive_and_ready_again_when_it_is_back(
    make_site: MakeSite, own_postgres: EmbeddedPostgres
) -> None:
    site = make_site(database=own_postgres.url(), processor={"general_timeout": 1, "cutoff_timeout": 1})
    site.carry(Receiver())
    with site.running() as running:
        eventually(lambda: running.ask(READINESS) == FINE)
        own_postgres.kill()
        eventually(lambda: told(running.ask(READINESS)) == (503, ["database"]))
        outlives_its_servers(running)
        own_postgres.start()
        eventually(lambda: running.ask(READINESS) == FINE)


def test_a_worker_whose_redis_dies_is_not_ready_but_alive_and_ready_again_when_it_is_back(
    make_site: MakeSite, own_redis: EmbeddedValkey
) -> None:
    site = make_site(redis=own_redis.url(), processor={"general_timeout": 1, "cutoff_timeout": 1})
    site.carry(Receiver())
    with site.running() as running:
        eventually(lambda: running.ask(READINESS) == FINE)
        own_redis.kill()
        eventually(lambda: told(running.ask(READINESS)) == (503, ["redis"]))
        outlives_its_servers(running)
        own_redis.start()
        eventually(lambda: running.ask(READINESS) == FINE)


def test_a_consumer_whose_broker_dies_is_not_ready_but_alive_and_ready_again_when_it_is_back(
    tmp_path: Path, postgres_url: str, own_kafka: KafkaBroker
) -> None:
    shown = {"probes": {"enabled": True, "port": 0}}
    inbox = Inbox(tmp_path, database=postgres_url, bootstrap=own_kafka.bootstrap, topic="t", source={}, **shown)
    produce(inbox.bootstrap, "t", numbered(10))
    with consuming(inbox) as running:
        eventually(lambda: inbox.count() == 10)
        assert running.ask(READINESS) == FINE
        own_kafka.kill()
        # It dies while the consumer polls, or while it waits for the answer to a commit.
        commit = f"kafka (commit of {inbox.box.label}-0)"
        eventually(lambda: told(running.ask(READINESS)) in [(503, ["kafka"]), (503, [commit])])
        for _ in range(10):
            running.watcher.listen(0.1)
            assert running.ask(LIVENESS) == FINE
        own_kafka.start()
        eventually(lambda: running.ask(READINESS) == FINE)
