"""Passwords that may change while the process runs: whoever makes a connection asks for the one in force."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any

from boxengine.errors import ConfigurationError, Problem, Unavailable, described
from boxengine.ports.credentials import Ask, Credentials
from boxengine.settings import passwords
from boxengine.settings.dotted_paths import CannotImport, load_object
from boxengine.settings.schema import DatabaseSettings, RedisSettings, Settings
from boxengine.settings.values.places import has_password

PATIENCE = 10.0
"""Seconds that a connection waits for a user's function. A call that hangs is left behind, and the next connection calls anew."""
MOST_HUNG = 20
"""So many calls may hang beside each other, each in a thread of its own. Beyond that no further one is made until one returns."""
_EXPECTED = "expected the password, or a pair of user and password"


def database_password(settings: Settings, url: str) -> Ask | None:
    """What is asked before each connection to this URL, which is one of the settings; None: it says all.

    Raises:
        ConfigurationError: the function cannot be imported.
    """
    return None if has_password(url) else _asked("database", settings.database)


def redis_password(settings: Settings) -> Ask | None:
    """The same for Redis, behind Sentinels for their master."""
    return _asked("redis", settings.redis)


def _asked(section: str, chosen: DatabaseSettings | RedisSettings) -> Ask | None:
    if chosen.password_file is not None:
        return _File(f"{section}.password_file", chosen.password_file)
    if chosen.password_from is None:
        return None
    key = f"{section}.password_from"
    try:
        return _function(key, chosen.password_from)
    except CannotImport as error:
        raise ConfigurationError([Problem("", key, str(error))]) from error


@cache
def _function(key: str, name: str) -> Ask:
    """Kept for all connections of the process, which must not call the function at once."""
    found = load_object(name)
    return _Function(f"{key}: {name}", found() if isinstance(found, type) else found)


class _File:
    def __init__(self, key: str, file: str) -> None:
        self._key = key
        self._file = file

    def __call__(self) -> Credentials:
        try:
            return None, passwords.read(self._file)
        except ValueError as error:
            raise Unavailable(f"{self._key}: {error}") from error


class _Function:
    """Calls a user's function in a thread of its own, for all who ask while the call is under way.

    The function need not be safe for threads, and sixteen connections that are made at once cost one call. One that hangs holds
    up nobody for ever, neither a loop nor the probes.
    """

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self._name = name
        self._call = call
        self._lock = threading.Lock()
        self._under_way: Future[Credentials] | None = None
        self._threads = 0
        """How many calls have not returned, those that were left behind among them."""

    def __call__(self) -> Credentials:
        with self._lock:
            answer = self._under_way
            if answer is None:
                answer = self._begun()
        try:
            error = answer.exception(PATIENCE)
        except TimeoutError as late:
            self._leave(answer)
            raise Unavailable(f"{self._name} has not returned within {PATIENCE:g} s") from late
        if error is not None:
            raise Unavailable(str(error)) from error  # each thread its own
        return answer.result()

    def _begun(self) -> Future[Credentials]:
        if self._threads == MOST_HUNG:
            raise Unavailable(f"{self._name} does not return: {MOST_HUNG} calls hang; give what it calls a time limit")
        answer: Future[Credentials] = Future()
        try:
            threading.Thread(target=self._answer, args=[answer], name="boxengine-password", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads, or the interpreter exits
            raise Unavailable(f"{self._name} was not called: {error}") from error
        self._threads += 1
        self._under_way = answer
        return answer

    def _answer(self, answer: Future[Credentials]) -> None:
        try:
            credentials = self._called()
        except Unavailable as error:
            self._leave(answer, ended=True)
            answer.set_exception(error)
        else:
            self._leave(answer, ended=True)
            answer.set_result(credentials)

    def _called(self) -> Credentials:
        try:
            found = self._call()
        except BaseException as error:  # also SystemExit: nobody else would see it in this thread
            raise Unavailable(f"{self._name} raised {described(error)}") from error
        match found:
            case str(password) if password:
                return None, password
            case (str(user), str(password)) if user and password:
                return user, password
            case _:
                kind = "an empty text" if isinstance(found, str) else type(found).__name__
                raise Unavailable(f"{self._name} returned {kind}; {_EXPECTED}")

    def _leave(self, answer: Future[Credentials], *, ended: bool = False) -> None:
        """Whoever asks from now on gets an answer of their own."""
        with self._lock:
            self._threads -= ended
            if self._under_way is answer:
                self._under_way = None
