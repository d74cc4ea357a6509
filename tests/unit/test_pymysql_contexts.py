"""The tests' connections of PyMySQL share a TLS context, unless one asks for its own."""

from __future__ import annotations

import ssl
from typing import Any

from pymysql.connections import Connection


def _context(**options: Any) -> ssl.SSLContext:
    context: ssl.SSLContext = Connection(defer_connect=True, **options).ctx  # type: ignore[attr-defined]
    return context


def test_connections_that_ask_for_nothing_share_one_that_verifies_nothing() -> None:
    assert _context() is _context()
    assert _context().verify_mode is ssl.CERT_NONE


def test_a_connection_that_verifies_has_its_own() -> None:
    assert _context(ssl_verify_cert=True).verify_mode is ssl.CERT_REQUIRED
    assert _context(ssl_verify_cert=True) is not _context(ssl_verify_cert=True)
