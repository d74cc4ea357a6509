"""Signatures according to the Standard Webhooks specification 1.0 (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from boxengine.errors import BoxError

PREFIX = "whsec_"
ASYMMETRIC = "whsk_"
FROM_URLS = str.maketrans("-_", "+/")


class Signer:
    """Signs with every secret it has, so that receivers can switch from one to the next.

    Args:
        secrets: base64 after ``whsec_``, as the specification writes them; any other secret is used as it is.

    Raises:
        BoxError: a secret with the prefix is no base64, or one is empty.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [_key(secret) for secret in secrets]

    def headers(self, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``; ``timestamp`` in unix seconds."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self._keys]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
        }


def _as_utf_8(secret: str) -> bytes:
    try:
        return secret.encode()
    except UnicodeEncodeError:
        # The error would show where in the secret, and what.
        raise BoxError("http: a secret has bytes that are no UTF-8: write it in base64, after whsec_") from None


def _key(secret: str) -> bytes:
    bare = secret.strip()
    if bare.startswith(ASYMMETRIC):
        raise BoxError(
            f"http: a secret that starts with {ASYMMETRIC} is for signatures v1a; expected one for v1: {PREFIX}..."
        )
    if not bare.startswith(PREFIX):
        key = _as_utf_8(secret) if bare else b""
    else:
        # Some people omit the padding, or use base64's URL-safe alphabet.
        encoded = bare.removeprefix(PREFIX).rstrip("=").translate(FROM_URLS)
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except binascii.Error as error:
            raise BoxError(f"http: a secret that starts with {PREFIX} must continue in base64") from error
    if not key:
        raise BoxError("http: an empty secret signs nothing")
    return key
