from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from boxengine.engine.running.health import HealthVerdict
from boxengine.errors import PortTaken
from boxengine.web import metrics, probes
from boxengine.web.server import HttpService, Request, Response, Route, services
from tests.eventually import eventually

HERE = "127.0.0.1"


def get(port: int, path: str, *, method: str = "GET", accept: str = "*/*", host: str = HERE) -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"http://{host}:{port}{path}", method=method, headers={"Accept": accept})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


class Verdicts:
    def __init__(self) -> None:
        self.readiness = HealthVerdict(ok=True)
        self.liveness = HealthVerdict(ok=True)

    def routes(self) -> Mapping[str, Route]:
        return probes.routes(ready=lambda: self.readiness, alive=lambda: self.liveness)


@pytest.fixture
def verdicts() -> Verdicts:
    return Verdicts()


@pytest.fixture
def service(verdicts: Verdicts) -> Iterator[HttpService]:
    registry = CollectorRegistry()
    Counter("outbox_sent", "Items delivered.", registry=registry).inc(3)

    def broken(request: Request) -> Response:
        raise RuntimeError("a route's own trouble")

    routes = {**verdicts.routes(), **metrics.routes(registry), "/broken": broken}
    service = HttpService(routes, port=0, key="probes.port", host=HERE)
    service.start()
    yield service
    service.stop()


def body(answer: tuple[int, str, bytes]) -> tuple[int, Any]:
    return answer[0], json.loads(answer[2])


def test_probes_answer_200_while_all_is_well(service: HttpService) -> None:
    for path in ("/readiness/outbox", "/liveness/outbox"):
        assert body(get(service.port, path)) == (200, {"ok": True, "reasons": []})


def test_probes_answer_503_with_every_reason(service: HttpService, verdicts: Verdicts) -> None:
    verdicts.readiness = HealthVerdict(ok=False, reasons=("redis: refused", "database: refused"))
    readiness = body(get(service.port, "/readiness/outbox"))
    assert readiness == (503, {"ok": False, "reasons": ["redis: refused", "database: refused"]})
    assert body(get(service.port, "/liveness/outbox"))[0] == 200


def test_metrics_are_prometheus_text_and_openmetrics_where_asked_for(service: HttpService) -> None:
    status, content_type, text = get(service.port, "/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert b"outbox_sent_total 3.0" in text
    status, content_type, text = get(service.port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_a_query_string_is_no_part_of_the_path_and_head_has_no_body(service: HttpService) -> None:
    assert get(service.port, "/liveness/outbox?verbose=1")[0] == 200
    assert get(service.port, "/liveness/outbox", method="HEAD")[::2] == (200, b"")


def test_an_unknown_path_names_the_known_ones(service: HttpService) -> None:
    status, answer = body(get(service.port, "/nothing"))
    assert status == 404
    assert answer["paths"] == ["/broken", "/liveness/outbox", "/metrics", "/readiness/outbox"]


def test_a_route_that_raises_is_a_500_and_the_server_goes_on(service: HttpService) -> None:
    status, answer = body(get(service.port, "/broken"))
    assert (status, answer) == (500, {"error": "RuntimeError: a route's own trouble"})
    assert get(service.port, "/liveness/outbox")[0] == 200


def test_one_slow_answer_does_not_hold_back_the_others() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(request: Request) -> Response:
        entered.set()
        leave.wait(10)
        return Response.json({})

    service = HttpService({"/slow": slow, **Verdicts().routes()}, port=0, key="probes.port", host=HERE)
    service.start()
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(get(service.port, "/slow")[0]))
    client.start()
    assert entered.wait(10)
    assert get(service.port, "/liveness/outbox")[0] == 200
    leave.set()
    client.join()
    service.stop()
    assert answers == [200]


def test_its_threads_are_named_daemons_and_gone_after_the_stop(verdicts: Verdicts) -> None:
    service = HttpService(verdicts.routes(), port=0, key="metrics.port", host=HERE)
    service.start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "boxengine-http-metrics.port"]
    assert thread.daemon
    service.stop()
    assert not thread.is_alive()


def test_stop_before_start_and_stop_twice_and_start_twice_are_fine(verdicts: Verdicts) -> None:
    service = HttpService(verdicts.routes(), port=0, key="probes.port", host=HERE)
    service.stop()
    service.start()
    port = service.port
    service.start()
    assert service.port == port
    assert get(port, "/liveness/outbox")[0] == 200
    service.stop()
    service.stop()
    with pytest.raises(urllib.error.URLError):
        get(port, "/liveness/outbox")


def test_it_starts_again_on_the_same_port_after_a_stop(verdicts: Verdicts) -> None:
    first = HttpService(verdicts.routes(), port=0, key="probes.port", host=HERE)
    first.start()
    port = first.port
    assert get(port, "/liveness/outbox")[0] == 200
    first.stop()
    second = HttpService(verdicts.routes(), port=port, key="probes.port", host=HERE)
    second.start()
    assert get(port, "/liveness/outbox")[0] == 200
    second.stop()


def test_a_port_in_use_is_told_with_its_key_and_what_to_do(service: HttpService, verdicts: Verdicts) -> None:
    other = HttpService(verdicts.routes(), port=service.port, key="probes.port", host=HERE)
    with pytest.raises(PortTaken, match=rf"^probes\.port: cannot listen on 127\.0\.0\.1:{service.port}: ") as taken:
        other.start()
    assert "one of the two needs another probes.port" in str(taken.value)
    other.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_answers_on_ipv4_and_ipv6(verdicts: Verdicts) -> None:
    service = HttpService(verdicts.routes(), port=0, key="probes.port")
    service.start()
    try:
        assert get(service.port, "/liveness/outbox")[0] == 200
        assert get(service.port, "/liveness/outbox", host="[::1]")[0] == 200
        with pytest.raises(PortTaken):
            HttpService(verdicts.routes(), port=service.port, key="probes.port").start()
    finally:
        service.stop()


def test_it_answers_on_ipv4_where_there_is_no_ipv6(verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    service = HttpService(verdicts.routes(), port=0, key="probes.port")
    service.start()
    try:
        assert get(service.port, "/liveness/outbox")[0] == 200
    finally:
        service.stop()


@pytest.fixture
def impatient(verdicts: Verdicts) -> Iterator[HttpService]:
    service = HttpService(verdicts.routes(), port=0, key="probes.port", host=HERE, patience=0.2)
    service.start()
    yield service
    service.stop()


def hung_up(client: socket.socket) -> bool:
    if client not in select.select([client], [], [], 0)[0]:
        return False
    try:
        return client.recv(1000) == b""
    except ConnectionError:
        return True


def nobody_is_served() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == "boxengine-http-answer"]


@pytest.mark.parametrize(("begun", "drip"), [(b"", b"G"), (b"GET /liveness/outbox HTTP/1.0\r\nA: ", b"b")])
def test_a_client_that_sends_its_request_in_drips_is_hung_up_on(
    impatient: HttpService, begun: bytes, drip: bytes
) -> None:
    """Each drip comes in time; all of them together do not."""
    pause = threading.Event()
    with socket.create_connection((HERE, impatient.port), timeout=30) as client:
        client.sendall(begun)
        for _ in range(300):
            if hung_up(client):
                break
            with contextlib.suppress(ConnectionError):
                client.sendall(drip)
            pause.wait(0.02)
        else:
            pytest.fail("every drip was waited for")
    assert get(impatient.port, "/liveness/outbox")[0] == 200
    eventually(nobody_is_served)


def test_a_client_that_sends_nothing_is_hung_up_on(impatient: HttpService) -> None:
    with socket.create_connection((HERE, impatient.port), timeout=30) as client:
        eventually(lambda: hung_up(client))


def test_a_client_that_does_not_take_its_answer_is_hung_up_on() -> None:
    service = HttpService(
        {"/long": lambda request: Response(200, "text/plain", b"x" * 50_000_000)},
        port=0,
        key="metrics.port",
        host=HERE,
        patience=0.2,
    )
    service.start()
    with socket.create_connection((HERE, service.port), timeout=30) as client:
        client.sendall(b"GET /long HTTP/1.0\r\n\r\n")
        assert client.recv(4) == b"HTTP"
        eventually(nobody_is_served)
    service.stop()


def test_endpoints_on_the_same_port_share_one_server(verdicts: Verdicts) -> None:
    endpoints = [
        ("probes.port", 0, verdicts.routes()),
        ("metrics.port", 0, metrics.routes(CollectorRegistry())),
    ]
    (service,) = services(endpoints, host=HERE)
    service.start()
    assert get(service.port, "/liveness/outbox")[0] == 200
    assert get(service.port, "/metrics")[0] == 200
    service.stop()


def test_endpoints_on_different_ports_have_a_server_each(verdicts: Verdicts) -> None:
    endpoints = [("probes.port", 5555, verdicts.routes()), ("metrics.port", 9090, {})]
    assert [service.port for service in services(endpoints, host=HERE)] == [5555, 9090]
