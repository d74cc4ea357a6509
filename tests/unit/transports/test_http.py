import base64
import hashlib
import hmac
import json
import socket
import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Event
from typing import Any

import pytest

from boxengine.adapters.http.pause import Pause
from boxengine.adapters.http.transport import HttpTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import BoxError
from tests.unit.transports.items import make_item
from tests.unit.transports.receiver import Receiver, Reply, Request, receiver

Make = Callable[..., HttpTransport]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as state:
        yield state


@pytest.fixture
def make(hook: Receiver) -> Iterator[Make]:
    made: list[HttpTransport] = []

    def make(**arguments: Any) -> HttpTransport:
        settings: dict[str, Any] = {"url": hook.url, "allow_private": True}
        made.append(HttpTransport(**settings | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def reason(result: object) -> str:
    assert isinstance(result, Failure)
    return result.reason


def test_an_item_arrives_with_its_headers_and_payload(make: Make, hook: Receiver) -> None:
    item = make_item(options={"headers": {"X-Own": "grün"}})
    assert make(headers={"Authorization": "Bearer t"}, method="put")(item, item.payload) is None
    (request,) = hook.requests
    assert (request.method, request.path, request.body) == ("PUT", "/hook", item.payload)
    assert request.headers["idempotency-key"] == str(item.uuid)
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{hook.port}"
    assert request.headers["x-own"].encode("latin-1").decode() == "grün"


def test_a_structure_is_sent_as_json(make: Make, hook: Receiver) -> None:
    make()(make_item(), {"a": 1})
    assert json.loads(hook.requests[0].body) == {"a": 1}


def test_a_request_is_signed_after_standard_webhooks_with_every_secret(make: Make, hook: Receiver) -> None:
    keys = [b"0123456789abcdef01234567", b"plain"]
    secrets = ["whsec_" + base64.b64encode(keys[0]).decode(), "plain"]
    item = make_item()
    make(secret=secrets, now=lambda: 1_700_000_000.9)(item, b"body")
    headers = hook.requests[0].headers
    assert headers["webhook-id"] == str(item.uuid)
    assert headers["webhook-timestamp"] == "1700000000"
    signed = f"{item.uuid}.1700000000.body".encode()
    expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    assert headers["webhook-signature"] == f"v1,{expected[0]} v1,{expected[1]}"


def test_the_signature_is_that_of_the_specifications_example() -> None:
    from boxengine.adapters.http.signature import Signer

    headers = Signer(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).headers(
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_cloudevents_travel_in_binary_mode_with_percent_encoding(make: Make, hook: Receiver) -> None:
    make(format="cloudevents", source="/shop")(make_item(event_key='ä "%'), b"{}")
    headers = hook.requests[0].headers
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-type"] == "order_created"
    assert headers["ce-source"] == "/shop"
    assert headers["ce-subject"] == "%C3%A4%20%22%25"


def test_a_batch_is_sent_concurrently(make: Make, hook: Receiver) -> None:
    together = Barrier(4)

    def reply(_request: Request) -> Reply:
        together.wait(10)
        return 200, {}, b"ok"

    hook.reply = reply
    assert make(concurrency=4).call_batch([make_item(number) for number in range(1, 9)]) == [None] * 8


def test_items_of_one_key_arrive_one_after_the_other_and_stop_at_the_first_failure(make: Make, hook: Receiver) -> None:
    def reply(request: Request) -> Reply:
        return (500 if request.headers["sequence-id"] == "3" else 200), {}, b"no"

    hook.reply = reply
    items = [make_item(number, event_key="even" if number % 2 == 0 else "odd") for number in range(1, 9)]
    results = make().call_batch(items)
    assert [result is None for result in results] == [True, True, False, True, False, True, False, True]
    assert reason(results[2]) == "http: 500 Internal Server Error from 127.0.0.1: no"
    assert reason(results[4]) == "http: held back, because item 3 of the same key failed"
    arrived = [int(request.headers["sequence-id"]) for request in hook.requests]
    assert [number for number in arrived if number % 2 == 0] == [2, 4, 6, 8]
    assert [number for number in arrived if number % 2] == [1, 3]


def test_connections_are_kept(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (200, {}, b"x" * 1000)
    transport = make()
    transport.call_batch([make_item(number, event_key="one") for number in range(1, 21)])
    assert (len(hook.requests), hook.connections) == (20, 1)


def test_an_answers_beginning_is_part_of_the_reason(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (410, {}, b"gone\n" + b"x" * 100_000)
    said = reason(make()(make_item(), b""))
    assert said.startswith("http: 410 Gone from 127.0.0.1 (the receiver wants no more of these): gone xxx")
    assert len(said) < 300


def test_redirects_are_not_followed(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (302, {"Location": "http://169.254.169.254/"}, b"")
    assert "redirects are not followed; location http://169.254.169.254/" in reason(make()(make_item(), b""))
    assert len(hook.requests) == 1


@pytest.mark.parametrize("value", ["30", "Thu, 01 Jan 1970 00:00:30 GMT"])
def test_a_receiver_that_says_retry_after_is_not_called_before(make: Make, hook: Receiver, value: str) -> None:
    hook.reply = lambda _request: (429, {"Retry-After": value}, b"slow down")
    transport = make(now=lambda: 0.0)
    assert "429 Too Many Requests from 127.0.0.1, Retry-After 30 s: slow down" in reason(transport(make_item(), b""))
    results = transport.call_batch([make_item(number) for number in range(1, 6)])
    assert all("asked to be left alone for another" in reason(result) for result in results)
    assert len(hook.requests) == 1


def test_a_pause_ends_and_is_never_made_shorter() -> None:
    clock = [100.0]
    pause = Pause(lambda: clock[0])
    pause.extend(30)
    pause.extend(5)
    clock[0] += 29
    assert pause.left() == 1
    clock[0] += 2
    assert pause.left() == 0


def test_a_receiver_that_does_not_answer_in_time_fails_the_item(make: Make, hook: Receiver) -> None:
    release = Event()

    def reply(_request: Request) -> Reply:
        release.wait(10)
        return 200, {}, b""

    hook.reply = reply
    try:
        said = reason(make(timeout=0.2)(make_item(), b""))
    finally:
        release.set()
    assert "no answer from 127.0.0.1; whether it got the request is unknown" in said


def test_a_receiver_that_is_not_there_fails_the_item(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = make(url=f"http://127.0.0.1:{taken.getsockname()[1]}/")
        assert "cannot be connected to" in reason(transport(make_item(), b""))


def test_a_header_that_cannot_be_sent_fails_its_own_item(make: Make, hook: Receiver) -> None:
    evil = make_item(1, options={"headers": {"x": "a\r\nInjected: yes"}})
    first, second = make().call_batch([evil, make_item(2)])
    assert "no request could be made" in reason(first)
    assert second is None
    assert len(hook.requests) == 1


def test_private_addresses_are_refused_unless_allowed(make: Make, hook: Receiver) -> None:
    for host in ("127.0.0.1", "localhost"):
        transport = make(url=f"http://{host}:{hook.port}/hook", allow_private=False)
        assert "not public; allow_private: true permits it" in reason(transport(make_item(), b""))
    assert hook.requests == []


def test_the_connection_goes_to_the_checked_address_whatever_the_name_resolves_to_later(
    make: Make, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rebinding(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if host == "127.0.0.1" or len(asked) == 1 else "203.0.113.9"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    transport = make(url=f"http://hooks.example:{hook.port}/hook")
    assert transport.call_batch([make_item(1), make_item(2, event_key="key-1")]) == [None, None]
    assert asked.count("hooks.example") == 1
    assert hook.requests[0].headers["host"] == f"hooks.example:{hook.port}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "ftp://a/b"}, "expected http://"),
        ({"url": "/relative"}, "expected http://"),
        ({"url": "https://me:secret@a/"}, "credentials in the url"),
        ({"concurrency": 0}, "at least 1"),
        ({"format": "soap"}, "expected plain or cloudevents"),
        ({"secret": "whsec_%%"}, "must go on in base64"),
        ({"secret": ""}, "an empty secret signs nothing"),
    ],
)
def test_what_is_wrong_is_said_when_the_transport_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BoxError, match=words):
        HttpTransport(**{"url": "https://a/"} | arguments)


def test_without_urllib3_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(BoxError, match=r'pip install "boxengine\[http\]"'):
        HttpTransport(url="https://a/")
