"""A Redis that allows no scripts, and one whose URL asks for another protocol."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from sqlalchemy.engine import make_url

from boxengine.adapters.redis.connection import connect, translated
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.system import SystemClock
from boxengine.app.boxes import load
from boxengine.app.checking.trying import try_out
from boxengine.errors import QueueUnavailable
from tests.conformance.coordination import job, make_box

BOX = make_box()
NEEDED = r"boxengine needs scripts \(EVAL, EVALSHA, SCRIPT LOAD\): allow them to its user \(\+@scripting\), and on the server"


@pytest.fixture
def without_scripts(redis_url: str) -> Iterator[str]:
    """The URL of a user who may do everything but run scripts."""
    with connect(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "plain", "on", ">plain", "~*", "&*", "+@all", "-@scripting")
        yield make_url(redis_url).set(username="plain", password="plain").render_as_string(hide_password=False)
        admin.execute_command("ACL", "DELUSER", "plain")


def test_a_user_who_may_run_no_scripts_is_told_what_to_allow(without_scripts: str) -> None:
    with connect(without_scripts) as client, pytest.raises(QueueUnavailable, match=NEEDED):
        RedisJobQueue(client, clock=SystemClock()).push(BOX, [job(3)])


def test_trying_the_configuration_finds_it(without_scripts: str, tmp_path: Path) -> None:
    file = tmp_path / "outbox.yml"
    file.write_text(
        f"redis: {{url: '{without_scripts}'}}\noutbox_items: {{order_outbox_item: {{transports: {{log: {{}}}}}}}}\n"
    )
    tried = {each.what: each for each in try_out(load(file).resolved, within=timedelta(seconds=5))}
    assert "boxengine needs scripts" in (tried["Redis"].problem or "")


def test_a_server_without_scripts_is_told_of_in_the_same_words() -> None:
    with pytest.raises(QueueUnavailable, match=NEEDED), translated("push", connect()):
        raise redis.ResponseError("unknown command 'EVALSHA', with args beginning with: '0beec7b5'")


def test_another_refusal_says_nothing_of_scripts() -> None:
    with pytest.raises(QueueUnavailable) as told, translated("push", connect()):
        raise redis.exceptions.NoPermissionError("User x has no permissions to run the 'set' command")
    assert "scripts" not in str(told.value)


def test_a_url_that_asks_for_resp3_works(redis_url: str) -> None:
    with connect(f"{redis_url}?protocol=3") as client:
        assert client.hgetall("nothing") == {}
        queue = RedisJobQueue(client, clock=SystemClock())
        queue.push(BOX, [job(3)])
        assert client.llen("order_outbox_item:job_queue") == 1
