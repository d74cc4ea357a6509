"""The Redis of a configuration, for code that needs nothing else: a pause or a wake-up imports no database driver."""

from __future__ import annotations

from urllib.parse import quote

import redis

from boxengine.adapters.redis.connection import connect as connect_redis
from boxengine.app.servers.passwords import redis_password
from boxengine.settings import Settings


def redis_client(settings: Settings) -> redis.Redis:
    """A client of the configured Redis; no connection is made yet.

    Raises:
        BoxError: the settings make no sense together.
    """
    chosen, changing = settings.redis, redis_password(settings)
    url = chosen.url
    if chosen.sentinels:
        scheme = "rediss" if chosen.ssl else "redis"
        user, password = chosen.username or "", chosen.password or ""
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password or changing else ""
        url = f"{scheme}://{credentials}sentinel/{chosen.db}"
    return connect_redis(
        url,
        sentinels=[
            (host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in chosen.sentinels)
        ],
        master_name=chosen.master_name,
        sentinel_username=chosen.sentinel_username,
        sentinel_password=chosen.sentinel_password,
        password=changing,
        cluster=chosen.cluster,
        tls={
            name: value
            for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
            if (value := getattr(chosen, name)) is not None
        },
    )
