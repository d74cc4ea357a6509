import base64
import hashlib
import hmac
import json
import socket
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from boxengine.adapters.http import endpoint
from boxengine.adapters.http.endpoint import ADDRESSES
from boxengine.adapters.http.guard import Guard
from boxengine.adapters.http.pause import Pause
from boxengine.adapters.http.signature import Signer
from boxengine.adapters.http.transport import BREAKS_ALONE, HttpTransport
from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import WITHHELD
from boxengine.errors import Abandoned, BoxError, Unavailable
from tests.eventually import eventually
from tests.unit.transports.items import make_item
from tests.unit.transports.receiver import Receiver, Reply, Request, accept, receiver
from tests.unit.transports.tls_receiver import raw_receiver

Make = Callable[..., HttpTransport]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as state:
        yield state


@pytest.fixture
def make(hook: Receiver) -> Iterator[Make]:
    made: list[HttpTransport] = []

    def make(**arguments: Any) -> HttpTransport:
        clocks: dict[str, Any] = {
            name: staticmethod(arguments.pop(name)) for name in ("now", "monotonic") if name in arguments
        }
        settings: dict[str, Any] = {"url": hook.url, "allow_private": True}
        made.append(type("Clocked", (HttpTransport,), clocks)(**settings | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def reason(result: object) -> str:
    assert isinstance(result, Failure)
    return result.reason


def outage(result: object) -> str:
    assert isinstance(result, Unavailable)
    return str(result)


def test_the_version_of_an_interface_may_be_a_date(make: Make, hook: Receiver) -> None:
    """YAML reads 2022-11-28 as one, and many receivers name their versions so."""
    item = make_item()
    assert make(headers={"X-Api-Version": date(2022, 11, 28)})(item, item.payload) is None
    assert hook.requests[0].headers["x-api-version"] == "2022-11-28"


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


def test_blanks_around_the_url_are_not_a_part_of_it(make: Make, hook: Receiver) -> None:
    """As in a variable of the environment that was copied with one."""
    assert make(url=f" {hook.url}?tenant=a \n")(make_item(), b"{}") is None
    assert hook.requests[0].path == "/hook?tenant=a"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("/a%20b?next=%2Fc", "/a%20b?next=%2Fc"),
        ("/a%20b?discount=5%&next=%2Fc", "/a%20b?discount=5%25&next=%2Fc"),
        ("/a b/ü?x=1 2#part", "/a%20b/%C3%BC?x=1%202"),
    ],
)
def test_the_path_and_query_of_the_url_are_sent_as_they_are_meant(
    make: Make, hook: Receiver, given: str, sent: str
) -> None:
    assert make(url=f"http://127.0.0.1:{hook.port}{given}")(make_item(), b"") is None
    assert hook.requests[0].path == sent


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


@pytest.mark.parametrize(
    ("secret", "message_id", "timestamp", "body", "signature"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
    ],
)
def test_the_signature_is_that_of_the_specifications_example(
    secret: str, message_id: str, timestamp: int, body: bytes, signature: str
) -> None:
    headers = Signer([secret]).headers(message_id=message_id, timestamp=timestamp, body=body)
    assert headers == {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }


@pytest.mark.parametrize("size", [24, 32, 50, 64])
def test_a_secret_is_understood_with_its_padding_without_it_and_in_the_alphabet_for_urls(size: int) -> None:
    raw = bytes(255 - number for number in range(size))
    spellings = [base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
    spellings += [spelling.rstrip("=") for spelling in spellings]
    spellings.append(spellings[0] + "\n")
    secrets = [f"whsec_{spelling}" for spelling in spellings]
    secrets.append(f" {secrets[0]} ")
    headers = Signer(secrets).headers(message_id="m", timestamp=1, body=b"x")
    wanted = "v1," + base64.b64encode(hmac.digest(raw, b"m.1.x", "sha256")).decode()
    assert headers["webhook-signature"].split() == [wanted] * len(secrets)


def test_cloudevents_travel_in_binary_mode_with_percent_encoding(make: Make, hook: Receiver) -> None:
    make(format="cloudevents", source="/shop")(make_item(event_key='ä "%'), b"{}")
    headers = hook.requests[0].headers
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-type"] == "order_created"
    assert headers["ce-source"] == "/shop"
    assert headers["ce-subject"] == "%C3%A4%20%22%25"


def test_a_cloudevent_in_structured_mode_is_the_body_and_the_signature_is_of_it(make: Make, hook: Receiver) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    transport = make(format="cloudevents_structured", source="/shop", secret=secret)
    item = make_item(options={"headers": {"Content-Type": "text/plain"}})
    assert transport(item, b'{"total": 1.10}') is None
    request = hook.requests[0]
    assert request.body.endswith(b',"data":{"total": 1.10}}')
    assert json.loads(request.body)["id"] == item.uuid
    assert request.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert not [name for name in request.headers if name.startswith("ce-")]
    stamp = request.headers["webhook-timestamp"]
    signed = f"{item.uuid}.{stamp}.".encode() + request.body
    wanted = "v1," + base64.b64encode(hmac.digest(b"k" * 24, signed, "sha256")).decode()
    assert request.headers["webhook-signature"] == wanted


def test_a_batch_is_sent_concurrently(make: Make, hook: Receiver) -> None:
    together = Barrier(4)

    def reply(_request: Request) -> Reply:
        together.wait(10)
        return 200, {}, b"ok"

    hook.reply = reply
    assert make(concurrency=4).call_batch([make_item(number) for number in range(1, 9)]) == [None] * 8


@pytest.mark.parametrize("way", ["item by item", "in batches of one key"])
def test_the_threads_of_the_engine_together_make_no_more_requests_at_once_than_configured(
    make: Make, hook: Receiver, way: str
) -> None:
    at_once = [0]
    most = [0]

    def reply(_request: Request) -> Reply:
        with hook.lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        Event().wait(0.02)
        with hook.lock:
            at_once[0] -= 1
        return 200, {}, b""

    hook.reply = reply
    transport, together = make(concurrency=1), Barrier(4)

    def send(number: int) -> None:
        together.wait(10)
        item = make_item(number)
        results = [transport(item, item.payload)] if way == "item by item" else transport.call_batch([item])
        assert results == [None]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, range(1, 5)))
    assert most == [1]


AFTER_THE_MAIN_THREAD = """
import sys, threading
from boxengine.adapters.http.transport import HttpTransport
from tests.unit.transports.items import make_item

def go_on():
    threading.main_thread().join()
    transport = HttpTransport(url=sys.argv[1], allow_private=True)
    print(transport.call_batch([make_item(number) for number in range(1, 5)]))

threading.Thread(target=go_on).start()
"""


def test_a_batch_is_sent_after_the_main_thread_has_ended(hook: Receiver) -> None:
    command = [sys.executable, "-c", AFTER_THE_MAIN_THREAD, hook.url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "[None, None, None, None]\n", said.stderr
    assert len(hook.requests) == 4


@pytest.mark.parametrize("granted", [0, 1])
def test_a_batch_for_which_the_system_has_no_threads_is_sent_with_those_there_are(
    make: Make, hook: Receiver, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    start, left = Thread.start, iter(range(granted))

    def refused(thread: Thread) -> None:
        if thread.name.startswith("boxengine-http") and next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", refused)
    items = [make_item(number) for number in range(1, 9)]
    assert make().call_batch(items) == [None] * 8
    assert len(hook.requests) == 8


def test_items_of_one_key_arrive_one_after_the_other_and_stop_at_the_first_failure(make: Make, hook: Receiver) -> None:
    def reply(request: Request) -> Reply:
        return (500 if request.headers["sequence-id"] == "3" else 200), {}, b"no"

    hook.reply = reply
    items = [make_item(number, event_key="even" if number % 2 == 0 else "odd") for number in range(1, 9)]
    results = make().call_batch(items)
    assert [result is None for result in results] == [True, True, False, True, False, True, False, True]
    assert reason(results[2]) == "http: 500 Internal Server Error from 127.0.0.1: no"
    assert results[4] is results[6] is WITHHELD, "never sent, so it is no attempt"
    arrived = [int(request.headers["sequence-id"]) for request in hook.requests]
    assert [number for number in arrived if number % 2 == 0] == [2, 4, 6, 8]
    assert [number for number in arrived if number % 2] == [1, 3]


def test_behind_another_transport_the_later_items_of_a_failed_ones_key_go_on(make: Make, hook: Receiver) -> None:
    hook.reply = lambda request: (500 if request.headers["sequence-id"] == "1" else 200, {}, b"")
    results = make().to_the_end().call_batch([make_item(number, event_key="one") for number in (1, 2, 3)])
    assert [type(result) for result in results] == [Failure, type(None), type(None)]


def test_once_the_receiver_cannot_be_reached_the_rest_of_the_batch_is_not_sent(make: Make, hook: Receiver) -> None:
    hook.reply = lambda request: (503 if request.headers["sequence-id"] == "3" else 200, {}, b"")
    for transport in (make(concurrency=1), make(concurrency=1).to_the_end()):
        hook.requests.clear()
        results = transport.call_batch([make_item(number) for number in range(1, 100)])
        assert results[:2] == [None, None]
        assert {id(result) for result in results[2:]} == {id(results[2])}
        assert isinstance(results[2], Unavailable)
        assert len(hook.requests) == 3


@pytest.mark.parametrize(
    ("behind", "seconds", "sent"),
    [(False, 0.6, 2), (True, 0.6, 9), (True, 25.0, 3)],
    ids=["alone", "behind another", "behind another and slow"],
)
@pytest.mark.parametrize("keys", [1, 9])
def test_a_batch_that_takes_too_long_leaves_the_rest_out(
    make: Make, hook: Receiver, behind: bool, seconds: float, sent: int, keys: int
) -> None:
    clock = ManualClock()

    def reply(_request: Request) -> Reply:
        clock.advance(timedelta(seconds=seconds))
        return 200, {}, b""

    hook.reply = reply
    transport = make(concurrency=1, monotonic=clock.monotonic)
    items = [make_item(number, event_key=f"key {number % keys}") for number in range(1, 10)]
    results = (transport.to_the_end() if behind else transport).call_batch(items)
    assert results == [None] * sent + [WITHHELD] * (9 - sent)
    assert len(hook.requests) == sent


class Mute(Exception):
    """Says nothing about itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SystemExit(1), "http: SystemExit: 1"),
        (CancelledError(), "http: CancelledError"),
        (Mute(), "http: Mute: (says nothing: RuntimeError)"),
        (type("MuteValue", (Mute, ValueError), {})(), "could not be built: (says nothing: RuntimeError)"),
    ],
    ids=["exit", "cancelled", "mute", "mute-value"],
)
def test_whatever_a_serializer_raises_fails_its_own_item_alone(
    make: Make, hook: Receiver, error: BaseException, words: str
) -> None:
    def serializer(payload: Any, _context: Any) -> Any:
        if payload == b"bad":
            raise error
        return payload

    items = [make_item(number, payload=b"bad" if number == 2 else b"good") for number in range(1, 5)]
    first, bad, *others = make(serializer=serializer).call_batch(items)
    assert [first, *others] == [None] * 3
    assert words in reason(bad)
    assert len(hook.requests) == 3


@pytest.mark.parametrize("made", [{"a": 1}, {}, False, ["a"], 5, iter(["a"])], ids=lambda made: type(made).__name__)
def test_an_item_of_which_the_serializer_makes_no_bytes_fails_alone(make: Make, hook: Receiver, made: Any) -> None:
    transport = make(serializer=lambda payload, _context: made if payload == b"bad" else payload)
    first, bad = transport.call_batch([make_item(1), make_item(2, payload=b"bad")])
    assert first is None
    assert f"the serializer returned {type(made).__name__}, not bytes or text" in reason(bad)
    assert len(hook.requests) == 1


def test_what_ends_the_worker_passes_through(make: Make) -> None:
    def serializer(_payload: Any, _context: Any) -> Any:
        raise Abandoned("as in a crash")

    with pytest.raises(Abandoned):
        make(serializer=serializer).call_batch([make_item(1), make_item(2)])


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
    first = transport(make_item(), b"")
    assert "429 Too Many Requests from 127.0.0.1, Retry-After 30 s: slow down" in outage(first)
    assert isinstance(first, Unavailable)
    assert first.retry_after == 30
    results = transport.call_batch([make_item(number) for number in range(1, 6)])
    assert all("asked to be left alone for another" in outage(result) for result in results)
    assert len(hook.requests) == 1


@pytest.mark.parametrize(
    "value",
    ["", "-5", "1.5", "soon", "Thu, 01 Jan 1970 00:00:30 +99999999999999", "1 Jan 99999999999999999999 00:00 GMT"],
)
def test_a_retry_after_that_is_not_understood_is_none(make: Make, hook: Receiver, value: str) -> None:
    hook.reply = lambda _request: (503, {"Retry-After": value}, b"")
    result = make()(make_item(), b"")
    assert isinstance(result, Unavailable)
    assert result.retry_after is None


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
    assert said == "http: no answer from 127.0.0.1; whether it got the request is unknown: timed out after 0.2 s"


def test_a_receiver_that_is_not_there_costs_no_attempt(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = outage(make(url=f"http://127.0.0.1:{port}/")(make_item(), b""))
    assert said == f"http: nothing was sent to 127.0.0.1: no connection to port {port}: [Errno 111] Connection refused"


def test_a_name_that_cannot_be_resolved_costs_no_attempt(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: Any, **_options: Any) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "hooks.example cannot be resolved" in outage(make(url="http://hooks.example/")(make_item(), b""))


def test_503_without_retry_after_costs_no_attempt_and_the_next_item_is_tried(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (503, {}, b"restarting")
    transport = make()
    for _ in range(2):
        assert "503 Service Unavailable from 127.0.0.1: restarting" in outage(transport(make_item(), b""))
    assert len(hook.requests) == 2


def test_a_retry_after_of_days_is_an_hour(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (503, {"Retry-After": "999999999"}, b"")
    result = make()(make_item(), b"")
    assert isinstance(result, Unavailable)
    assert result.retry_after == 3600


def test_followers_of_an_item_whose_receiver_is_away_cost_no_attempt_either(make: Make, hook: Receiver) -> None:
    hook.reply = lambda _request: (503, {}, b"")
    results = make().call_batch([make_item(number, event_key="one") for number in (1, 2, 3)])
    assert [type(result) for result in results] == [Unavailable] * 3
    assert len(hook.requests) == 1


def test_a_kept_connection_that_the_receiver_closes_meanwhile_costs_nothing(make: Make) -> None:
    bodies: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        request = b""
        while request.endswith(b"\r\n\r\n") or b"\r\n\r\n" not in request:
            request += connection.recv(65_536)
        bodies.append(request.rpartition(b"\n")[2])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.recv(65_536)  # the next request, while the connection is being closed

    with raw_receiver(serve) as port:
        transport = make(url=f"http://127.0.0.1:{port}/", serializer="bytes")
        assert [transport(make_item(number), b"%d" % number) for number in range(1, 6)] == [None] * 5
        transport.close()
    assert bodies == [b"1", b"2", b"3", b"4", b"5"]


def test_a_connection_that_was_idle_for_long_is_not_used_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is between may have forgotten it, and drop what comes over it without a word."""
    monkeypatch.setattr(endpoint, "REUSED_WITHIN", 0.0)

    def answer_once(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        while connection.recv(65_536):
            pass

    with raw_receiver(answer_once) as port:
        transport = make(url=f"http://127.0.0.1:{port}/", timeout=2.0)
        assert [transport(make_item(number), b"") for number in (1, 2)] == [None, None]
        transport.close()


def test_a_kept_connection_that_says_408_as_it_closes_costs_nothing(make: Make, hook: Receiver) -> None:
    """So do some servers and load balancers when a connection was idle for long, in the moment of the next request."""
    answered: set[int] = set()

    def reply(request: Request) -> Reply:
        first = request.connection not in answered
        answered.add(request.connection)
        return (204, {}, b"") if first else (408, {"Connection": "close"}, b"idle")

    hook.reply = reply
    transport = make()
    assert [transport(make_item(number), b"%d" % number) for number in (1, 2, 3)] == [None] * 3
    hook.reply = lambda _request: (408, {}, b"too slow")
    assert "408 Request Timeout from 127.0.0.1: too slow" in reason(transport(make_item(4), b"4"))


def test_an_answer_that_comes_byte_by_byte_is_not_there_in_time(make: Make) -> None:
    """Each wait for a byte is shorter than the timeout."""
    given_up = Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Patience: ")
        with suppress(OSError):
            while not given_up.wait(0.02):
                connection.sendall(b"x")

    with raw_receiver(serve) as port, ThreadPoolExecutor(1) as pool:
        result = pool.submit(make(url=f"http://127.0.0.1:{port}/", timeout=0.2), make_item(), b"")
        try:
            said = reason(result.result(10))
        finally:
            given_up.set()
    assert "whether it got the request is unknown" in said


def test_a_receiver_that_ends_in_the_middle_of_a_request_may_have_it_on_a_kept_connection_too(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = make(url=f"http://127.0.0.1:{listener.getsockname()[1]}/")

        def end_with_the_second() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                connection.recv(65_536)
                listener.close()

        thread = Thread(target=end_with_the_second)
        thread.start()
        assert transport(make_item(1), b"") is None
        assert "whether it got the request is unknown" in outage(transport(make_item(2), b""))
        thread.join(30)


def goes_away(request: Request) -> Reply:
    """The receiver behind a proxy (items 1 and 3), or without one (2), in the middle of these; all others get their answer."""
    number = json.loads(request.body)["number"]
    if number == 2:
        raise ConnectionResetError  # the server closes the connection
    status = {1: 502, 3: 521}.get(number, 200)
    return status, {}, b"" if status == 200 else b"no upstream"


@pytest.mark.parametrize("number", [1, 2, 3], ids=["502", "connection-broken", "521-of-cloudflare"])
def test_an_item_in_whose_middle_the_receiver_goes_away_fails_the_third_time_if_others_get_answers_meanwhile(
    make: Make, hook: Receiver, number: int
) -> None:
    hook.reply = goes_away
    transport, crashing = make(), make_item(number)
    results = []
    for innocent in (10, 11, 12):
        results.append(transport(crashing, crashing.payload))
        assert transport(make_item(innocent), make_item(innocent).payload) is None
    assert [type(result) for result in results] == [Unavailable, Unavailable, Failure]
    assert "3 times in a row for this item" in reason(results[-1])
    assert isinstance(transport(crashing, crashing.payload), Unavailable), "counted anew"


def test_an_answer_that_comes_while_the_receiver_goes_away_does_not_show_that_it_stays(
    make: Make, hook: Receiver
) -> None:
    hook.reply = goes_away
    transport, item, answered = make(), make_item(1), make_item(10)
    results = [transport(item, item.payload)]
    assert transport(answered, answered.payload) is None
    results += [transport(item, item.payload) for _ in range(2)]
    assert [type(result) for result in results] == [Unavailable] * 3


@pytest.mark.parametrize("meanwhile", [None, 502, 503, 504, 429, 522, 524])
def test_a_receiver_that_is_away_for_long_costs_hardly_an_attempt(
    make: Make, hook: Receiver, meanwhile: int | None
) -> None:
    def reply(request: Request) -> Reply:
        if meanwhile is None or request.body == b"first":
            raise ConnectionResetError
        return meanwhile, {}, b""  # a proxy's word, which does not show that the receiver is there

    hook.reply = reply
    transport, first = make(), make_item(1)
    results = []
    for number in range(2 * BREAKS_ALONE):
        results.append(transport(first, b"first"))
        if meanwhile is not None:
            assert isinstance(transport(make_item(10 + number), b"another"), Unavailable | Failure)
    assert [place for place, result in enumerate(results, 1) if isinstance(result, Failure)] == [BREAKS_ALONE]
    results = [transport(first, b"first") for _ in range(BREAKS_ALONE)]
    assert [type(result) for result in results] == [*[Unavailable] * (BREAKS_ALONE - 1), Failure], (
        "twice as many as before"
    )
    hook.reply = accept
    assert transport(first, b"first") is None


@pytest.mark.parametrize("status", [400, 404, 408, 409, 422, 500, 504])
def test_other_answers_are_failed_attempts(make: Make, hook: Receiver, status: int) -> None:
    hook.reply = lambda _request: (status, {}, b"")
    assert f"http: {status} " in reason(make()(make_item(), b""))


# ── headers of an item ───────────────────────────────────────────────────────────────────────────────

SMUGGLING = {
    "Content-Length": "0",
    "content_length": "0",
    "TRANSFER-ENCODING": "chunked",
    "Host": "internal.example",
    "Connection": "keep-alive, x-own",
    "Keep-Alive": "timeout=1",
    "TE": "trailers",
    "Trailer": "x",
    "Upgrade": "h2c",
    "Expect": "100-continue",
    "Proxy-Authorization": "x",
}


def test_headers_of_the_connection_are_not_taken_from_items(make: Make, hook: Receiver) -> None:
    smuggled = b"POST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    transport = make()
    first = make_item(1, options={"headers": {**SMUGGLING, "X-Own": "stays"}})
    assert transport(first, smuggled) is None
    assert transport(make_item(2), b"next") is None
    assert [(request.path, request.body) for request in hook.requests] == [("/hook", smuggled), ("/hook", b"next")]
    headers = hook.requests[0].headers
    assert headers["host"] == f"127.0.0.1:{hook.port}"
    assert headers["content-length"] == str(len(smuggled))
    assert headers["x-own"] == "stays"
    assert not headers.keys() & {"transfer-encoding", "te", "trailer", "upgrade", "expect", "proxy-authorization"}
    assert not headers.keys() & {"content_length", "connection", "keep-alive"}


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nInjected: yes"},
        {"x": "a\r\n folded"},
        {"x": "a\nb"},
        {"x": "a\x00b"},
        {"x\r\ny": "a"},
        {"x: y": "a"},
        {"x ": "a"},
        {"": "a"},
    ],
)
def test_a_header_with_a_line_break_in_it_fails_its_own_item(
    make: Make, hook: Receiver, headers: dict[str, str]
) -> None:
    first, second = make().call_batch([make_item(1, options={"headers": headers}), make_item(2)])
    assert "the request could not be built" in reason(first)
    assert second is None
    assert len(hook.requests) == 1


def test_a_configured_header_without_a_value_is_not_sent(make: Make, hook: Receiver) -> None:
    assert make(headers={"X-Tenant": None, "X-Number": 7})(make_item(), b"") is None
    assert "x-tenant" not in hook.requests[0].headers
    assert hook.requests[0].headers["x-number"] == "7"


def test_the_configuration_may_set_the_host_and_not_the_length(make: Make, hook: Receiver) -> None:
    assert make(headers={"Host": "other.example"})(make_item(), b"") is None
    assert hook.requests[0].headers["host"] == "other.example"
    with pytest.raises(BoxError, match="'Content-Length' is for the transport to set"):
        make(headers={"Content-Length": "0"})


@pytest.mark.parametrize(
    "answers",
    [
        b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["another-protocol", "204-with-a-body", "two-lengths"],
)
def test_an_answer_that_may_go_on_closes_the_connection_so_that_no_item_takes_the_answer_of_another(
    make: Make, answers: bytes
) -> None:
    with scripted([answers, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]) as url:
        transport = make(url=url)
        transport(make_item(1), b"")
        assert "500 No" in reason(transport(make_item(2), b""))


def test_interim_answers_are_passed_over_and_the_connection_is_kept(make: Make) -> None:
    """As every client must (RFC 9110, 15.2): the item would arrive again and again, and fail after the twentieth time."""
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        for final in (b"200 OK", b"500 No"):
            requests.append(connection.recv(65_536))
            for interim in (b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>"):
                connection.sendall(b"HTTP/1.1 " + interim + b"\r\n\r\n")
            connection.sendall(b"HTTP/1.1 " + final + b"\r\nContent-Length: 0\r\n\r\n")

    with raw_receiver(serve) as port:
        transport = make(url=f"http://127.0.0.1:{port}/")
        assert transport(make_item(1), b"") is None
        assert "500 No" in reason(transport(make_item(2), b""))
    assert len(requests) == 2


@contextmanager
def scripted(answers: list[bytes]) -> Iterator[str]:
    """A receiver that sends the first answer on its first connection, however many requests come, and so on.

    Each answer is sent in two parts, so that its end is not there yet when its beginning is read.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    head, mark, rest = answer.partition(b"\r\n\r\n")
                    connection.sendall(head + mark)
                    connection.settimeout(0.3)
                    with suppress(TimeoutError):
                        connection.recv(65536)  # the next request, or the end
                    connection.sendall(rest)
                    with suppress(TimeoutError):
                        connection.recv(65536)

        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join(10)


def test_a_header_that_cannot_be_sent_fails_its_own_item(make: Make, hook: Receiver) -> None:
    evil = make_item(1, options={"headers": {"x": "a\r\nInjected: yes"}})
    first, second = make().call_batch([evil, make_item(2)])
    assert "the request could not be built" in reason(first)
    assert second is None
    assert len(hook.requests) == 1


def test_names_of_private_addresses_are_not_called_unless_allowed(make: Make, hook: Receiver) -> None:
    transport = make(url=f"http://localhost:{hook.port}/hook", allow_private=False)
    assert "not public; allow_private: true permits it" in outage(transport(make_item(), b""))
    assert hook.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"])
def test_a_url_with_a_private_address_is_refused_by_the_configuration(make: Make, host: str) -> None:
    with pytest.raises(BoxError, match=r"is not a public address; allow_private: true permits it"):
        make(url=f"http://{host}/hook", allow_private=False)


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


def test_connections_are_kept_to_a_few_addresses_however_many_the_name_has_had(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [f"127.0.0.{number}" for number in range(1, 2 * ADDRESSES)]
    with receiver(host="0.0.0.0") as hook:
        transport = make(url=f"http://hooks.example:{hook.port}/hook")
        for address in addresses:
            monkeypatch.setattr(Guard, "addresses", lambda _self, address=address: (address,))
            assert transport(make_item(), b"{}") is None
        eventually(lambda: hook.open == ADDRESSES)
        assert transport(make_item(), b"{}") is None
        assert hook.connections == len(addresses), "that of the last address is kept"
        transport.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "ftp://a/b"}, "expected http://"),
        ({"url": "/relative"}, "expected http://"),
        ({"url": "https://me:secret@a/"}, "credentials in the url"),
        ({"url": "https://@a/"}, "credentials in the url"),
        ({"url": "https://a/b\nc"}, "a line break or a tab"),
        ({"concurrency": 0}, "at least 1"),
        ({"format": "soap"}, "expected plain, cloudevents or cloudevents_structured"),
        ({"secret": "whsec_%%"}, "must continue in base64"),
        ({"secret": ""}, "an empty secret signs nothing"),
        ({"secret": " \t"}, "an empty secret signs nothing"),
        ({"secret": "whsk_abc"}, "expected one for v1: whsec_"),
    ],
)
def test_what_is_wrong_is_said_when_the_transport_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BoxError, match=words):
        HttpTransport(**{"url": "https://a/"} | arguments)


def test_without_urllib3_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(BoxError, match=r'pip install "boxengine\[http\]"'):
        HttpTransport(url="https://a/")
