"""The transports and sources that come with boxengine, by the short name a configuration uses."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BUILTIN_TRANSPORTS: Mapping[str, str] = MappingProxyType(
    {
        "file": "boxengine.adapters.file.FileTransport",
        "http": "boxengine.adapters.http.transport.HttpTransport",
        "kafka": "boxengine.adapters.kafka.transport.KafkaTransport",
        "log": "boxengine.adapters.log.LogTransport",
        "redis_stream": "boxengine.adapters.redis_stream.RedisStreamTransport",
    }
)
"""Short name to dotted path; imported only where used, so a missing extra hurts nobody else."""
SOURCE_CHECKS: Mapping[str, str] = MappingProxyType({"kafka": "boxengine.adapters.kafka.consumer_config.checks"})
"""Short name to the dotted path of what looks at a source's arguments."""
