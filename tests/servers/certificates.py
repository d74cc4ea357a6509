"""Certificates from a test's own authority, made with the ``openssl`` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.programs import find_program
from tests.servers.promised import ABSENT


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate, and the authority that a client must trust to accept it."""

    certificate: Path
    key: Path
    authority: Path


def certify(folder: Path, *, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    """A new authority, and its certificate for these names; skips the test if openssl is not installed."""
    openssl = find_program("openssl")
    if openssl is None:
        pytest.skip(f"{ABSENT}: openssl: no such program on PATH")
    folder.mkdir(parents=True)
    authority, authority_key = folder / "ca.pem", folder / "ca.key"
    certificate, key, request = folder / "server.pem", folder / "server.key", folder / "server.csr"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # From Python 3.13 on, clients refuse what RFC 5280 does not allow: an authority without keyUsage, and a certificate without
    # its authority's key.
    _run(openssl, "req", "-x509", *new_key, "-days", "2", "-subj", f"/CN=authority {folder.name}",
         "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", authority_key, "-out", authority)  # fmt: skip
    _run(openssl, "req", *new_key, "-subj", "/CN=server", "-keyout", key, "-out", request)
    extensions = folder / "extensions"
    extensions.write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
    _run(openssl, "x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial",
         "-days", "2", "-extfile", extensions, "-out", certificate)  # fmt: skip
    return Certificate(certificate, key, authority)


def _run(program: str, *arguments: str | Path) -> None:
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
