"""``redis.prefix``: two installations with the same box names on one Redis, each with its own queue, leases and pauses."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.job import Job
from boxengine.ports import Duty, Hold, LeaseName, RememberedFailure
from tests.conformance.coordination import NO_WAIT, TTL
from tests.conformance.test_workers import FIRST
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

pytestmark = ON_POSTGRESQL


@pytest.mark.parametrize("wakeup", ["redis", "none"])
def test_all_that_a_worker_keeps_in_redis_begins_with_the_prefix(
    make_rig: MakeRig, redis_url: str, wakeup: str
) -> None:
    rig, receiver = make_rig(coordinator={"prefix": "staging:"}, wakeup=wakeup), Receiver()
    rig.carry(receiver)
    client = redis.Redis.from_url(redis_url)
    with rig.worker() as watcher:
        ids = rig.create(1, 2, 3)
        watcher.wait_for_settled(3)
        names: Any = client.keys("*")
        assert names
        assert [name for name in names if not name.startswith(b"staging:")] == []
        if wakeup == "redis":
            assert b"staging:boxengine:wakeups" in client.pubsub_channels()
    assert sorted(receiver.ids) == ids
    client.close()


def test_what_one_installation_says_another_does_not_hear(make_rig: MakeRig) -> None:
    rigs = [make_rig(coordinator={"prefix": "a:"}), make_rig(tables=False)]
    (one, here), (two, there) = [(connect_servers(rig.boxes.resolved.settings), rig.box()) for rig in rigs]
    one.queue.push(here, [Job(1, 1_700_000_000, (7,))])
    assert two.queue.state(there).length == 0
    assert isinstance(one.queue.take([here], wait=NO_WAIT, ttl=TTL, share=1), Hold)
    assert two.queue.unattended(there, [1]) == [1]
    one.pauses.set(here, polling_enabled=False)
    assert two.pauses.polling_enabled([there]) == {}
    one.memory.remember(here, {1: RememberedFailure(1, "no")}, ttl=TTL)
    assert two.memory.recall(there, [1]) == {}
    lease = LeaseName(Duty.POLLING, here.name, 0)
    assert one.leases.acquire(lease, "token", ttl=TTL)
    assert two.leases.acquire(lease, "another", ttl=TTL)
    one.workers.announce(FIRST, ttl=TTL)
    assert (len(one.workers.living()), two.workers.living()) == (1, [])
    for each in (one, two):
        each.close()
