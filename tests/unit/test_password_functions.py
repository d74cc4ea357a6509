"""A user's function that returns a password: asked by many connections at once, and failing in every way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from uuid import uuid4

import pytest

from boxengine.app.servers import passwords
from boxengine.app.servers.passwords import redis_password
from boxengine.errors import ConfigurationError, Unavailable
from boxengine.ports.credentials import Ask
from boxengine.settings import Settings
from tests.eventually import PATIENCE, eventually

Asking = Callable[[Callable[[], object]], Ask]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Asking:
    """What asks a function for the password of Redis."""

    def made(function: Callable[[], object]) -> Ask:
        module = ModuleType(f"vault_{uuid4().hex}")
        vars(module)["password"] = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
        settings = Settings.model_validate({"redis": {"password_from": f"{module.__name__}.password"}})
        ask = redis_password(settings)
        assert ask is not None
        assert redis_password(settings) is ask, "all connections of a process share it"
        return ask

    return made


@pytest.mark.parametrize(
    ("returned", "login"), [("p", (None, "p")), (("u", "p"), ("u", "p")), (["u", "p"], ("u", "p"))]
)
def test_it_returns_a_password_or_user_and_password(asking: Asking, returned: object, login: tuple[str, str]) -> None:
    assert asking(lambda: returned)() == login


@pytest.mark.parametrize(
    ("returned", "kind"),
    [(None, "NoneType"), ("", "an empty text"), (b"hunter2", "bytes"), (("hunter2", 5), "tuple"), (("", "x"), "tuple")],
)
def test_all_else_is_refused_without_being_shown(asking: Asking, returned: object, kind: str) -> None:
    with pytest.raises(
        Unavailable, match=rf"^redis.password_from: vault_\w+\.password returned {kind}; expected "
    ) as it:
        asking(lambda: returned)()
    assert "hunter2" not in str(it.value)


@pytest.mark.parametrize("error", [OSError("vault is sealed"), SystemExit("vault is sealed")])
def test_what_it_raises_is_an_outage(asking: Asking, error: BaseException) -> None:
    def password() -> str:
        raise error

    ask = asking(password)
    for _ in range(2):
        with pytest.raises(Unavailable, match=f"raised {type(error).__name__}: vault is sealed"):
            ask()


def test_connections_that_are_made_at_once_share_one_call(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, waiting, calls = threading.Event(), threading.Semaphore(0), []

    class Answer(Future[object]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            waiting.release()
            return super().exception(timeout)

    def password() -> str:
        calls.append("call")
        go_on.wait()
        return str(len(calls))

    monkeypatch.setattr(passwords, "Future", Answer)
    ask = asking(password)
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ask) for _ in range(16)]
        all_wait = all(waiting.acquire(timeout=PATIENCE) for _ in answers)
        go_on.set()
    assert all_wait
    assert [each.result() for each in answers] == 16 * [(None, "1")]
    assert ask() == (None, "2"), "whoever comes later gets an answer of their own"


def test_a_call_that_hangs_is_left_behind_and_the_next_connection_calls_anew(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PATIENCE", 0.01)
    hang, calls = threading.Event(), []

    def password() -> str:
        calls.append("call")
        if len(calls) == 1:
            hang.wait()
        return "p"

    ask = asking(password)
    with pytest.raises(Unavailable, match=r"has not returned within 0\.01 s"):
        ask()
    monkeypatch.setattr(passwords, "PATIENCE", 60)
    assert ask() == (None, "p")
    hang.set()
    eventually(lambda: all(thread.name != "boxengine-password" for thread in threading.enumerate()))


def test_calls_that_hang_do_not_pile_up_and_it_heals_once_they_return(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PATIENCE", 0.01)
    monkeypatch.setattr(passwords, "MOST_HUNG", 2)
    hang, calls = threading.Event(), []

    def password() -> str:
        calls.append("call")
        hang.wait()
        return "p"

    ask = asking(password)
    for told in (*2 * ["has not returned within"], *2 * ["does not return: 2 calls hang"]):
        with pytest.raises(Unavailable, match=told):
            ask()
    assert len(calls) == 2
    monkeypatch.setattr(passwords, "PATIENCE", 60)
    hang.set()
    eventually(lambda: all(thread.name != "boxengine-password" for thread in threading.enumerate()))
    assert ask() == (None, "p")


def test_a_function_that_is_not_there_is_a_mistake_in_the_configuration() -> None:
    settings = Settings.model_validate({"redis": {"password_from": "os.no_such"}})
    with pytest.raises(ConfigurationError, match=r"^redis\.password_from: cannot import 'os\.no_such'"):
        redis_password(settings)
