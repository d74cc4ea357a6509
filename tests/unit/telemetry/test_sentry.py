from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

sentry_sdk = pytest.importorskip("sentry_sdk", reason="the sentry extra is not installed")

from boxengine.adapters.telemetry import sentry  # noqa: E402 - after the check that it can be imported
from boxengine.ports import ErrorTracker  # noqa: E402 - as above


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """What is about to be sent; nothing is."""
    caught: list[dict[str, Any]] = []

    def keep(event: dict[str, Any], hint: object) -> None:
        caught.append(event)

    client = sentry_sdk.Client(
        dsn="http://key@127.0.0.1:9/1", before_send=keep, default_integrations=False, auto_enabling_integrations=False
    )
    with sentry_sdk.isolation_scope() as scope:
        scope.set_client(client)
        yield caught
    client.close(timeout=0)


def fail(message: str) -> None:
    raise ValueError(message)


def test_an_exception_is_reported_with_tags_and_context(events: list[dict[str, Any]]) -> None:
    tracker: ErrorTracker = sentry.report
    try:
        fail("boom")
    except ValueError as error:
        tracker(error, box_name="order_outbox_item", bucket=3, item_id=7, item_details={"a": 1})
    (event,) = events
    assert event["exception"]["values"][0]["type"] == "ValueError"
    assert event["exception"]["values"][0]["stacktrace"]["frames"]
    assert event["tags"] == {"boxengine.box_name": "order_outbox_item", "boxengine.bucket": "3"}
    assert event["contexts"]["boxengine"] == {
        "box_name": "order_outbox_item",
        "bucket": 3,
        "item_id": 7,
        "item_details": "{'a': 1}",
    }


def test_a_message_is_an_error_event_and_its_tags_do_not_stay(events: list[dict[str, Any]]) -> None:
    sentry.report("item failed for good", where="kafka")
    sentry.report("another")
    first, second = events
    assert (first["message"], first["level"]) == ("item failed for good", "error")
    assert first["tags"] == {"boxengine.where": "kafka"}
    assert not second.get("tags")


def test_without_the_extra_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['sentry_sdk'] = None; import boxengine.adapters.telemetry.sentry"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'boxengine[sentry]'" in done.stderr
