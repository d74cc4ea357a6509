"""The transport ``http``: each item becomes one request, and is delivered once the receiver answers with 2xx."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from threading import Lock, Semaphore
from typing import Any, NamedTuple

from boxengine.adapters.cloudevents import STRUCTURED_TYPE, CloudEvents, Format, demand_format
from boxengine.adapters.http.client_certificate import CERTIFICATE, ClientCertificate, demand_use
from boxengine.adapters.http.endpoint import Answer, BrokenOff, Endpoint, NotConnected, NotInTime
from boxengine.adapters.http.guard import AddressRefused
from boxengine.adapters.http.headers import CONTROL, of_an_item, of_the_configuration
from boxengine.adapters.http.pause import Pause, retry_after
from boxengine.adapters.http.signature import Signer
from boxengine.adapters.http.target import Target, method_of
from boxengine.adapters.serializers import SerializationContext, Serializer, serialized
from boxengine.adapters.serializers import loaded as loaded_serializer
from boxengine.adapters.serializers import serializer as find_serializer
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import WITHHELD, Withheld
from boxengine.engine.attempt import ends_the_worker, reason_of, text_of
from boxengine.engine.delivering.calls.transports import Withholding
from boxengine.engine.timing import TIMING
from boxengine.errors import BoxError, Unavailable

SHOWN = 200
"""Characters of an answer that go into the reason of a failure."""
PAUSING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses that say that the receiver did not look at the item."""
DOWN_BEHIND = frozenset({HTTPStatus.BAD_GATEWAY, 520, 521, 522, 523, 525, 526, 530})
"""Statuses of a proxy that gets no answer from the receiver; from 520 on, they are Cloudflare's."""
FROM_A_PROXY = PAUSING | DOWN_BEHIND | {HTTPStatus.GATEWAY_TIMEOUT, 524}
"""Statuses that do not show that the receiver is there: what stands in front of it may have answered."""
BREAKS = 3
"""After how many broken connections or 502s (``DOWN_BEHIND``) in a row an item is treated as the cause, if the receiver gave
answers between each two of them: it may crash its receiver."""
BREAKS_ALONE = 20
"""The same without answers in between. Most likely the receiver is away, and probes go on for as long; but an item that crashes
it and is alone must not be sent for ever. Doubled with each item that was treated so, until the receiver answers."""
REMEMBERED = 1_000
"""How many items with a broken connection or a 502 are remembered."""

LONGEST = 60.0
"""Seconds after which a batch behind another transport begins no more requests either. What it leaves out goes to that transport
once more; but a batch that lasts longer than ``processor.general_timeout`` is not recorded, and goes out once more as a whole."""

Result = Failure | Unavailable | Withheld | None


class HttpTransport(Withholding):
    """Sends items to a webhook, several at a time, those of one event key one after the other.

    Where an item fails, the later ones of its key in the same batch are not sent, nor are any after a second (``WITHHELD``).
    Redirects are not followed. A receiver that cannot be connected to, or answers 429 or 503, costs no attempt: the result
    is ``Unavailable``, for the rest of the batch, too. After ``Retry-After`` it is not called before that time, an hour at most.

    Args:
        url: absolute, http or https, without credentials.
        method: of the requests.
        headers: sent with each request, over the item's own.
        secret: signs each request after the Standard Webhooks specification; a list while secrets are being changed.
        timeout: seconds for connecting, and for the answer's status and headers.
        allow_private: whether the host may be on a private network, or this machine.
        concurrency: requests under way at once, over all threads of the process.
        format: ``plain``; ``cloudevents`` for CloudEvents in binary mode, ``cloudevents_structured`` in structured mode.
        source: of the CloudEvents.
        content_type: media type of the payload.
        serializer: ``json``, ``bytes`` or a dotted path; see ``boxengine.adapters.serializers``.
        ca_file: certificates to trust instead of the system's.
        cert_file: certificate to show to the receiver, in PEM, with the intermediate ones after it.
        key_file: its key; left out, it is in ``cert_file``.
        key_password: of an encrypted key.

    Raises:
        BoxError: ``urllib3`` is missing, or any of the above is wrong.
    """

    now = staticmethod(time.time)
    """Unix time in seconds."""
    monotonic = staticmethod(time.monotonic)
    """Seconds that never go back. Tests have clocks of their own; no argument, for no file could name one."""

    def __init__(
        self,
        *,
        url: str,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        secret: str | Sequence[str] | None = None,
        timeout: float = 10.0,
        allow_private: bool = False,
        concurrency: int = 8,
        format: Format = "plain",  # noqa: A002 - the name of the YAML key
        source: str | None = None,
        content_type: str = "application/json",
        serializer: str | Serializer = "json",
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        key_password: str | None = None,
    ) -> None:
        _demand_concurrency(concurrency)
        _demand_time(timeout)
        self._endpoint = Endpoint(
            url,
            method=method,
            timeout=timeout,
            connections=concurrency,
            allow_private=allow_private,
            ca_file=ca_file,
            certificate=ClientCertificate.of(
                {"url": url, "cert_file": cert_file, "key_file": key_file, "key_password": key_password}
            ),
            now=self.now,
        )
        self._url = url
        self._headers = _own_headers(headers)
        _demand_sendable(content_type)
        self._signer = _signer(secret)
        self._cloud_events = CloudEvents.of(format, transport="http", source=source, content_type=content_type)
        self._content_type = content_type
        self._serializer = find_serializer(serializer)
        self._pause = Pause()
        self._breaks: dict[str, _Breaks] = {}
        """By uuid, oldest first."""
        self._answers = 0
        """How often the receiver has answered."""
        self._breaks_alone = BREAKS_ALONE
        self._lock = Lock()
        self._threads = _Threads(concurrency)
        self._places = Semaphore(concurrency)
        """For requests: threads of the engine send, too, single items and batches of one key."""
        self._behind = False
        """Whether another transport has the items already."""

    @staticmethod
    def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
        """What shows that an argument is wrong before the transport is made; see ``boxengine.settings.transports``."""
        yield "url", partial(Target.of, arguments["url"], allow_private=arguments.get("allow_private", False))
        yield "method", partial(method_of, arguments.get("method", "POST"))
        yield "headers", partial(_own_headers, arguments.get("headers"))
        yield "secret", partial(_signer, arguments.get("secret"))
        yield "concurrency", partial(_demand_concurrency, arguments.get("concurrency", 1))
        yield "timeout", partial(_demand_time, arguments.get("timeout", 1))
        yield "content_type", partial(_demand_sendable, arguments.get("content_type", ""))
        for name in CERTIFICATE:
            yield name, partial(demand_use, arguments, name)
        yield "format", partial(demand_format, arguments.get("format", "plain"), transport="http")
        yield "serializer", partial(loaded_serializer, arguments.get("serializer", "json"))

    def __call__(self, item: Item, payload: Any) -> Result:
        with self._places:
            return self._sent(item, payload)

    def call_batch(self, items: Sequence[Item]) -> list[Result]:
        results: list[Result] = [WITHHELD] * len(items)
        by_key: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            by_key.setdefault(item.event_key, []).append(index)
        course = _Course(LONGEST if self._behind else TIMING.flush, self.monotonic)

        def deliver(indexes: Sequence[int]) -> None:
            for index in indexes:
                stop = course.stop()
                result = results[index] = self._safely(items[index]) if stop is None else stop
                if isinstance(result, Unavailable):
                    course.outage = result
                elif result is not None and not self._behind:
                    return

        if len(by_key) == 1:
            deliver(range(len(items)))
        else:
            self._threads.each(deliver, by_key.values())
        return results

    def to_the_end(self) -> HttpTransport:
        """See ``Withholding``: nearly a minute may pass, and where an item fails, the later ones of its key go on."""
        other = copy(self)
        other._behind = True  # noqa: SLF001 - of the same class
        return other

    def close(self) -> None:
        """Waits for requests under way and closes connections; a later delivery opens new ones."""
        self._threads.close()
        self._endpoint.close()

    def _sent(self, item: Item, payload: Any) -> Result:
        left = self._pause.left()
        host = self._endpoint.host
        if left > 0:
            reason = f"http: {host} asked to be left alone for another {left:.0f} s (Retry-After)"
            return Unavailable(reason, retry_after=left)
        try:
            body, headers = self._request(item, payload)
            answer = self._endpoint.send(body, headers)
        except (NotConnected, AddressRefused) as error:
            return Unavailable(f"http: nothing was sent to {host}: {error}")
        except BrokenOff as error:
            return self._broken(item, f"http: no answer from {host}; whether it got the request is unknown: {error}")
        except NotInTime as error:
            return Failure(f"http: no answer from {host}; whether it got the request is unknown: {error}")
        except (TypeError, ValueError) as error:
            return Failure(f"http: the request could not be built: {text_of(error)}")
        return self._judged(item, answer)

    def _safely(self, item: Item) -> Result:
        try:
            return self(item, item.payload)
        except Unavailable as outage:
            return outage
        except BaseException as error:  # a user's serializer may raise anything, and only this item fails
            if ends_the_worker(error):
                raise
            return Failure(f"http: {reason_of(error)}")

    def _request(self, item: Item, payload: Any) -> tuple[bytes, dict[str, str | bytes]]:
        own = list(item.headers.items())
        body = serialized(self._serializer, payload, SerializationContext(item, self._url, own)) or b""
        headers: dict[str, str] = {"content-type": self._content_type}
        headers |= of_an_item(own)
        if self._cloud_events is not None and self._cloud_events.structured:
            body = self._cloud_events.envelope(item, body)
            headers["content-type"] = STRUCTURED_TYPE
        elif self._cloud_events is not None:
            headers |= self._cloud_events.http_headers(item)
        headers |= self._headers
        if self._signer is not None:
            headers |= self._signer.headers(message_id=item.uuid, timestamp=int(self.now()), body=body)
        # As text, a header with characters beyond Latin-1 could not be sent at all.
        return body, {name: value if value.isascii() else value.encode() for name, value in headers.items()}

    def _judged(self, item: Item, answer: Answer) -> Result:
        status = answer.status
        if status not in FROM_A_PROXY:
            self._answers += 1
            self._breaks_alone = BREAKS_ALONE
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            if self._breaks:
                self._breaks.pop(item.uuid, None)
            return None
        reason = f"http: {status} {answer.reason} from {self._endpoint.host}"
        seconds = None
        if status in PAUSING:
            seconds = retry_after(answer.headers.get("retry-after"), now=datetime.fromtimestamp(self.now(), UTC))
            if seconds:
                self._pause.extend(seconds)
                reason += f", Retry-After {seconds:.0f} s"
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            reason += f" (redirects are not followed; location {answer.headers.get('location')})"
        if status == HTTPStatus.GONE:
            reason += " (the receiver wants no more of these)"
        shown = " ".join(answer.body.decode(errors="replace").split())[:SHOWN]
        if shown:
            reason += f": {shown}"
        if status in PAUSING:
            return Unavailable(reason, retry_after=seconds)
        return self._broken(item, reason) if status in DOWN_BEHIND else Failure(reason)

    def _broken(self, item: Item, reason: str) -> Failure | Unavailable:
        """A receiver that disappears in mid-request is usually being restarted; but the item itself may have crashed it."""
        with self._lock:
            known = self._breaks.pop(item.uuid, None)
            breaks = _Breaks(self._answers) if known is None else known.another(self._answers)
            alone = breaks.times >= self._breaks_alone
            if alone:
                self._breaks_alone *= 2
            if alone or breaks.between >= BREAKS - 1:
                return Failure(f"{reason} ({breaks.times} times in a row for this item)")
            self._breaks[item.uuid] = breaks
            if len(self._breaks) > REMEMBERED:
                del self._breaks[next(iter(self._breaks))]
        return Unavailable(reason)


def _own_headers(headers: Mapping[str, object] | None) -> dict[str, str]:
    try:
        return of_the_configuration(headers or {})
    except ValueError as error:
        raise BoxError(f"http: {error}") from error


def _demand_concurrency(concurrency: int) -> None:
    if concurrency < 1:
        raise BoxError("http: concurrency must be at least 1")


def _demand_time(seconds: float) -> None:
    if seconds <= 0:
        raise BoxError("http: timeout must be more than 0 seconds")


def _demand_sendable(content_type: str) -> None:
    if CONTROL.search(content_type) is not None:
        raise BoxError("http: content_type has a control character, such as a line break")


def _signer(secret: str | Sequence[str] | None) -> Signer | None:
    secrets = [secret] if isinstance(secret, str) else list(secret or ())
    return Signer(secrets) if secrets else None


class _Breaks(NamedTuple):
    """How often an item met a broken connection or a 502."""

    answers: int
    """How often the receiver had answered others by then."""
    times: int = 1
    between: int = 0
    """How often the receiver answered others between two of them."""

    def another(self, answers: int) -> _Breaks:
        return _Breaks(answers, self.times + 1, self.between + (answers > self.answers))


class _Course:
    """How long a batch goes on. Its threads share it."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._until: float | None = None
        self.outage: Unavailable | None = None
        """Set once the receiver cannot be reached: the others would wait for it in vain as well."""

    def stop(self) -> Unavailable | Withheld | None:
        """The answer for an item that is not sent any more; None: it may be."""
        if self.outage is not None:
            return self.outage
        now = self._monotonic()
        if self._until is None:
            # From the first request on: a batch that waits for threads that others use would otherwise send nothing.
            self._until = now + self._seconds
        return WITHHELD if now >= self._until else None


class _Threads:
    """The threads that send, made at first use."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def each(self, deliver: Callable[[Sequence[int]], None], keys: Collection[Sequence[int]]) -> None:
        """Calls it for each, and waits."""
        waiting = iter(list(keys))  # the threads share it: each takes the next key

        def work() -> None:
            for indexes in waiting:
                deliver(indexes)

        at_work: list[Future[None]] = []
        try:
            while len(at_work) < min(self._number, len(keys)):
                at_work.append(self._started().submit(work))
        except RuntimeError:
            # Python's pools take no more work once the main thread has ended, and the system may refuse a thread.
            work()
        for each in at_work:
            each.result()

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._number, thread_name_prefix="boxengine-http")
            return self._pool

    def close(self) -> None:
        """Waits for those at work."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
