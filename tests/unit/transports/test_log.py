import logging

import pytest

from boxengine.adapters.log import LogTransport
from boxengine.errors import BoxError
from tests.unit.transports.items import make_item


def test_an_item_becomes_one_line_with_its_identity_and_payload(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        LogTransport()(make_item(7), b"hello")
    (line,) = caplog.messages
    assert line.startswith("order_outbox_item 7 delivered: event_name=order_created event_key=key-7 bucket=7")
    assert "payload='hello'" in line


def test_a_batch_has_one_result_and_one_line_per_item(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="boxengine.log"):
        assert LogTransport(level="debug").call_batch([make_item(1), make_item(2)]) == [None, None]
    assert len(caplog.records) == 2
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def test_a_long_payload_is_cut_and_a_limit_of_zero_hides_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        LogTransport(payload_limit=3)(make_item(), b"\xff23456")
        LogTransport(payload_limit=0)(make_item(), b"secret")
    cut, hidden = caplog.messages
    assert cut.endswith("...")
    assert "23456" not in cut
    assert "payload" not in hidden


def test_a_payload_that_cannot_say_what_it_is_spoils_no_line(caplog: pytest.LogCaptureFixture) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with caplog.at_level(logging.INFO):
        assert LogTransport().call_batch([make_item(1), make_item(2, payload=Mute())]) == [None, None]
    assert "says nothing: RuntimeError" in caplog.messages[1]


def test_an_unknown_level_is_refused_at_construction() -> None:
    with pytest.raises(BoxError, match="level 'loud' is unknown; expected one of"):
        LogTransport(level="loud")
