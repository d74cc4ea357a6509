from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.inbox import Inbox

MakeInbox = Callable[..., Inbox]


@pytest.fixture
def make_inbox(tmp_path: Path, postgres_url: str, real_kafka: str, kafka_topic: str) -> MakeInbox:
    """Makes an inbox on the session's servers; the arguments are keys of its source."""

    def make(**source: Any) -> Inbox:
        return Inbox(tmp_path, database=postgres_url, bootstrap=real_kafka, topic=kafka_topic, source=source)

    return make
