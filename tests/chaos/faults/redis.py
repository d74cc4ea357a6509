"""What happens to Redis. It holds nothing that cannot be lost, so nothing may be delivered twice either."""

from __future__ import annotations

from redis import Redis
from redis.exceptions import OutOfMemoryError

from boxengine.embedded import EmbeddedValkey
from tests.chaos.fault import Fault, hire_two_behind_proxies
from tests.chaos.stage import Stage
from tests.eventually import eventually


def _kill(stage: Stage) -> None:
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.redis.kill()
        stage.pause(0.0, 3.0)
        stage.servers.redis.start()
    stage.wait_for_recovery()


def _flush(stage: Stage) -> None:
    stage.wait_for_work()
    with stage.injecting(), stage.redis() as client:
        client.flushall()
    stage.pause(0.5, 2.0)


def _pause_clients(stage: Stage) -> None:
    """From shorter than anybody's patience to longer than leases and time limits."""
    stage.wait_for_work()
    seconds = stage.randomness.uniform(1.0, 8.0)
    with stage.injecting(), stage.redis() as client:
        client.client_pause(round(1000 * seconds))
        stage.pause(seconds, seconds)
    stage.wait_for_recovery()


def _evict(stage: Stage) -> None:
    """By turns: keys vanish as others come, and no write is taken at all."""
    stage.wait_for_work()
    with stage.injecting(), stage.redis() as client:
        if len(stage.injections) % 2 == 0:
            client.config_set("maxmemory-policy", "allkeys-random")
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 50_000)
            for number in range(200):
                _crowd_out(client, number)
                stage.pause(0.01, 0.02)
        else:
            client.config_set("maxmemory", 1)
            stage.pause(2.0, 5.0)
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
    stage.wait_for_recovery()


def _crowd_out(client: Redis, number: int) -> None:
    try:
        client.set(f"foreign:{number}", b"x" * 2_000, ex=10)
    except OutOfMemoryError:
        return  # nothing was left to evict


def _promote_there_and_back(stage: Stage) -> None:
    main = stage.servers.redis
    with EmbeddedValkey(stage.folder / "replica", durable=False) as replica:
        _promote(stage, replica.url(), over=main)
        stage.wait_for_recovery()
        _promote(stage, main.url(), over=replica)
        stage.wait_for_recovery()


def _promote(stage: Stage, promoted: str, *, over: EmbeddedValkey) -> None:
    """What was written since the replica lost touch is gone after its promotion, and what was deleted is back."""
    with Redis.from_url(over.url()) as master:
        master.config_set("repl-diskless-sync-delay", 0)
    with Redis.from_url(promoted) as replica:
        replica.replicaof("127.0.0.1", str(over.port))
        eventually(lambda: replica.info("replication").get("master_link_status") == "up", what="replication")
        replica.replicaof("NO", "ONE")
        stage.pause(0.5, 3.0)
        stage.wait_for_work()
        with stage.injecting():
            stage.redis_proxy.redirect(promoted)


FAULTS = {
    "redis-kill": Fault(inject=_kill, times=6),
    "flushall": Fault(inject=_flush, times=15),
    "client-pause": Fault(inject=_pause_clients, times=5),
    "eviction": Fault(inject=_evict, times=6),
    "promotion-loses-writes": Fault(inject=_promote_there_and_back, times=3, hire=hire_two_behind_proxies),
}
