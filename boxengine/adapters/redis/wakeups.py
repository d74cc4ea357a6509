"""Wake-ups over Redis publish/subscribe: one channel, one short message per box and commit."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from datetime import timedelta
from threading import Event, Lock
from typing import Any

import redis
from redis.client import PubSub
from redis.exceptions import ConnectionError as ConnectionBroken
from redis.exceptions import RedisError, ResponseError

from boxengine.adapters.redis.connection import server_of, translated
from boxengine.ports import Clock, Signal

CHANNEL = "boxengine:wakeups"
"""Publish/subscribe knows no databases: applications that share a server and box names should each have their own."""

_SIGNALS_PER_WAIT = 1000  # A flood of commits must not keep the listener from handing on what it has.
_SILENCES_PER_LOOK = 3  # Sentinels that are all dead keep the listener waiting at each look.
_RENEWAL = 10.0  # Seconds after which a writer that nobody hears connects anew.
_LONGEST_READ = 1.0  # Seconds until a close is noticed when the server is too dead to answer the farewell.


class RedisNotifier:
    """Sends a writer's signals after its commit."""

    def __init__(self, client: redis.Redis, *, channel: str = CHANNEL) -> None:
        self._client = client
        self._channel = channel
        self._renewed_at = time.monotonic()

    def notify(self, signals: Iterable[Signal]) -> None:
        """Publishes each different signal once, those of one box together, in one round trip.

        A server that was replaced keeps its connections, and a replica takes what is published without an error. All that a
        writer notices is that nobody hears it, because the listeners have gone to another server; then it goes there, too.

        Raises:
            QueueUnavailable: the hints are lost, which costs one poll interval; the commit stands.
        """
        texts = Signal.encode_all(signals)
        if not texts:
            return
        with translated("publish wake-ups", self._client):
            if self._publish(texts) or time.monotonic() - self._renewed_at < _RENEWAL:
                return
            self._renewed_at = time.monotonic()
            self._client.connection_pool.disconnect(inuse_connections=False)
            self._publish(texts)

    def _publish(self, texts: Iterable[str]) -> bool:
        """Whether anybody has heard it."""
        pipeline = self._client.pipeline(transaction=False)
        for text in texts:
            pipeline.publish(self._channel, text)
        return any(pipeline.execute())


class RedisWakeups:
    """``Wakeups`` over a subscription, made at the first ``wait`` and again after each failure.

    Args:
        client: from ``connect``; the subscription keeps one connection of its own.
        clock: measures waits and silence.
        channel: that of the writers' ``RedisNotifier``.
        check_interval: after so much silence the server is asked for a sign of life; after as long again it is dead. After three
            times as long the listener looks whether writers are led to another server, as after a failover, and goes there.
    """

    reliable: bool = False
    beginnings: int = 0

    def __init__(
        self,
        client: redis.Redis,
        *,
        clock: Clock,
        channel: str = CHANNEL,
        check_interval: timedelta = timedelta(seconds=10),
    ) -> None:
        self._client = client
        self._clock = clock
        self._channel = channel
        self._check_interval = check_interval.total_seconds()
        self._closed = Event()
        self._waiting = Lock()
        self._subscription: PubSub | None = None
        self._heard_at = 0.0
        self._asked_at = 0.0
        self._looked_at = 0.0
        self._server: str | None = None
        """The run id of the subscription's server, if its user may ask for it."""

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks until at least one signal came or the time is over; at once empty when closed.

        Raises:
            QueueUnavailable: the server is gone; the next call connects anew. The caller paces its calls.
        """
        deadline = self._clock.monotonic() + timeout.total_seconds()
        with self._waiting:
            if self._closed.is_set():
                return []
            try:
                with translated("listen for wake-ups", self._client):
                    return self._listen(deadline)
            except BaseException:
                self._disconnect()
                raise

    def interrupt(self) -> None:
        """See ``Wakeups.interrupt``."""
        self._closed.set()
        subscription = self._subscription
        if subscription is not None:
            # The server's answer to this is what wakes the thread that reads.
            with contextlib.suppress(RedisError, OSError):
                subscription.unsubscribe()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def close(self) -> None:
        """Lets a blocked ``wait`` return, and frees the connection."""
        self.interrupt()
        subscription = self._subscription
        with self._waiting:
            self._disconnect()
            if subscription is not None:
                subscription.close()

    def _subscribe(self) -> PubSub:
        """Returns once the server has confirmed: what is published from then on arrives."""
        subscription: PubSub = self._client.pubsub()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        self._subscription = subscription
        patience = self._client.connection_pool.connection_kwargs.get("socket_timeout") or _LONGEST_READ
        self._server = self._server_at(subscription, patience)
        subscription.subscribe(self._channel)
        confirmation = subscription.get_message(timeout=patience)
        if confirmation is None:
            raise ConnectionBroken("no sign of life from the server")
        self._hear(confirmation)
        self._asked_at = self._looked_at = self._heard_at
        return subscription

    def _server_at(self, subscription: PubSub, patience: float) -> str | None:
        """Asks before it subscribes: afterwards the connection takes hardly any commands."""
        subscription.execute_command("INFO", "server")  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        try:
            answer = subscription.parse_response(block=False, timeout=patience)  # type: ignore[no-untyped-call]
        except ResponseError:
            return None
        if answer is None:
            raise ConnectionBroken("no sign of life from the server")
        found = re.search(rb"run_id:(\w+)", answer)
        return found[1].decode() if found else None

    def _listen(self, deadline: float) -> list[Signal]:
        before = self.beginnings
        subscription = self._subscription or self._subscribe()
        while not self._closed.is_set() and self.beginnings == before:
            if self._is_left_behind():
                self._disconnect()
                subscription = self._subscribe()
            remaining = deadline - self._clock.monotonic()
            message = subscription.get_message(timeout=min(max(remaining, 0.0), _LONGEST_READ))
            if message is not None:
                if signals := self._hear(message):
                    return [*signals, *self._more(subscription)]
            elif remaining <= 0:
                break
            else:
                self._check_silence(subscription)
        return []

    def _more(self, subscription: PubSub) -> list[Signal]:
        """The other signals that have arrived already."""
        signals: list[Signal] = []
        while len(signals) < _SIGNALS_PER_WAIT:
            message = subscription.get_message(timeout=0)
            if message is None:
                break
            signals += self._hear(message)
        return signals

    def _hear(self, message: dict[str, Any]) -> list[Signal]:
        self._heard_at = self._clock.monotonic()
        if message["type"] == "subscribe":
            self.reliable = True
            self.beginnings += 1
        return _decode(message["data"]) if message["type"] == "message" else []

    def _check_silence(self, subscription: PubSub) -> None:
        now = self._clock.monotonic()
        if now - self._heard_at > 2 * self._check_interval:
            raise ConnectionBroken("no sign of life from the server")
        if now - max(self._heard_at, self._asked_at) > self._check_interval:
            self._asked_at = now
            subscription.ping()

    def _is_left_behind(self) -> bool:
        """Whether writers are led to another server. One that was replaced keeps its connections, and may hear of nothing."""
        now = self._clock.monotonic()
        if self._server is None or now - self._looked_at <= _SILENCES_PER_LOOK * self._check_interval:
            return False
        self._looked_at = now
        return server_of(self._client) not in (None, self._server)

    def _disconnect(self) -> None:
        self.reliable = False
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(RedisError, OSError):
                subscription.close()


def _decode(data: bytes) -> list[Signal]:
    """The signals in a message; none if the message is not text."""
    try:
        return Signal.decode(data.decode())
    except UnicodeDecodeError:
        return []
