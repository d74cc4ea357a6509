"""A server that ``.ci/run`` promised may not be missed in silence."""

from __future__ import annotations

import pytest

from tests.servers.offer import How, Offer
from tests.servers.promised import broken_promises, promised_servers, require

_ALL = {
    "postgres": Offer("postgres", How.EMBEDDED, "wheel", "postgresql://"),
    "mariadb": Offer("mariadb", How.ABSENT, "no mariadbd"),
    "kafka": Offer("kafka", How.MOCK, "a mock"),
}


def test_promises_count_only_under_ci() -> None:
    promises = {"BOXENGINE_CI_PROMISES": "postgres, kafka,"}
    assert promised_servers(promises) == frozenset()
    assert promised_servers(promises | {"CI": "true"}) == {"postgres", "kafka"}


def test_an_absent_server_a_mock_and_an_unknown_name_break_a_promise() -> None:
    assert broken_promises(_ALL, frozenset({"postgres", "mariadb", "kafka", "oracle"})) == [
        "kafka was promised by .ci/run, but is mock: a mock",
        "mariadb was promised by .ci/run, but is absent: no mariadbd",
        "oracle was promised by .ci/run, but the tests know no such server",
    ]


def test_a_test_is_skipped_for_an_absent_server_that_nobody_promised() -> None:
    with pytest.raises(pytest.skip.Exception, match="server absent: mariadb: no mariadbd"):
        require(_ALL["mariadb"], frozenset({"postgres"}))


def test_a_test_fails_for_an_absent_server_that_was_promised() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"mariadb was promised by \.ci/run"):
        require(_ALL["mariadb"], frozenset({"mariadb"}))


def test_a_server_that_is_there_but_does_not_start_is_a_failure() -> None:
    with pytest.raises(pytest.fail.Exception, match="did not start: exit code 1"):
        require(Offer("mariadb", How.BROKEN, "exit code 1"), frozenset())


def test_a_server_that_is_there_is_handed_on() -> None:
    assert require(_ALL["postgres"], frozenset({"postgres"})) is _ALL["postgres"]
    assert require(_ALL["kafka"], frozenset()) is _ALL["kafka"]
