"""The port of probes and metrics, spoken to by anybody."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from boxengine.engine.running.health import HealthVerdict
from boxengine.web import metrics, probes
from boxengine.web.server import HttpService

HERE = "127.0.0.1"
VERDICT = HealthVerdict(ok=True)
METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"TRACE", b"get", b"", b"G\x00T", b"\xff"])
TARGETS = st.one_of(
    st.sampled_from(
        [b"/metrics", b"/liveness/outbox", b"/../../etc/passwd", b"//[", b"//[::1]:x/", b"http://[/", b"*", b""]
    ),
    st.binary(max_size=30),
)
VERSIONS = st.sampled_from(
    [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/x", b"HTTP/" + b"9" * 5000 + b".1", b"", b"\xff"]
)
HEADERS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"Host: x", b"Content-Length: 5", b"Content-Length: -1", b"Transfer-Encoding: chunked", b"Accept: " + b"a," * 500,
             b"Accept: application/openmetrics-text; version=" + b"9" * 5000, b"Expect: 100-continue", b": ", b"\x00: \x00"]
        ),
    ),
    max_size=5,
)  # fmt: skip
REQUESTS = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda method, target, version, headers: b"%s %s %s\r\n%s\r\n\r\n" % (method, target, version, b"\r\n".join(headers)),
        METHODS, TARGETS, VERSIONS, HEADERS,
    ),
)  # fmt: skip


@pytest.fixture
def port() -> Iterator[int]:
    routes = {**probes.routes(ready=lambda: VERDICT, alive=lambda: VERDICT), **metrics.routes(CollectorRegistry())}
    service = HttpService(routes, port=0, key="probes.port", host=HERE, patience=2.0)
    service.start()
    yield service.port
    service.stop()


def said(port: int, request: bytes) -> bytes:
    """All that comes back to these bytes, after which nothing more is sent."""
    with socket.create_connection((HERE, port), timeout=30) as client:
        answer = b""
        with suppress(OSError):  # a server that has heard enough hangs up
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while part := client.recv(65_536):
                answer += part
        return answer


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=REQUESTS)
@example(request=b"GET http://[/ HTTP/1.1\r\n\r\n")
@example(request=b"GET /metrics?" + b"a=b&" * 15_000 + b" HTTP/1.1\r\n\r\n")
@example(request=b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n")
@example(request=b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n")
def test_any_bytes_get_an_answer_of_http_or_none_and_the_next_request_is_served(
    port: int, caplog: pytest.LogCaptureFixture, request: bytes
) -> None:
    with caplog.at_level(logging.WARNING, "boxengine"):
        answer = said(port, request)
    first = answer.partition(b"\r\n")[0]
    assert (
        answer == b""
        or first.startswith(b"HTTP/1.")
        or b"Error response" in answer
        or b'"error"' in answer
        or b"ok" in answer
    )
    assert b"Traceback" not in answer
    assert caplog.records == []
    well = said(port, b"GET /liveness/outbox HTTP/1.0\r\n\r\n")
    assert json.loads(well.partition(b"\r\n\r\n")[2]) == {"ok": True, "reasons": []}


def test_a_path_that_is_no_path_is_a_bad_request(port: int) -> None:
    assert said(port, b"GET http://[/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 400 ")


def test_only_reading_is_allowed(port: int) -> None:
    for method in (b"POST", b"PUT", b"DELETE", b"OPTIONS"):
        assert b" 501 " in said(port, method + b" /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n")[0]


def test_an_answer_does_not_say_which_python_it_comes_from(port: int) -> None:
    assert b"Server: boxengine" in said(port, b"GET /metrics HTTP/1.1\r\n\r\n")
