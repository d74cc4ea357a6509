"""What the URL and the method of a webhook say, and what is wrong with them."""

from __future__ import annotations

import re
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from boxengine.adapters.http.guard import is_private_literal
from boxengine.adapters.http.headers import CONTROL, NAME
from boxengine.domain.masking import masked_text
from boxengine.errors import BoxError

_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


class Target(NamedTuple):
    """What a URL names."""

    host: str
    host_header: str
    port: int
    path: str
    """With the query."""
    secure: bool

    @classmethod
    def of(cls, url: str, *, allow_private: bool) -> Self:
        """The target of this URL.

        Raises:
            BoxError: it is no absolute http(s) URL, carries credentials, has a control character or braces, or has a private
                address that is not allowed.
        """
        # A blank that was copied along would be sent as a part of the path, or be looked up as a part of the name.
        url = url.strip()
        if CONTROL.search(url) is not None or "\t" in url:
            # Python would leave it out without a word.
            raise BoxError(f"http: url {masked_text(url)!r}: it has a control character, such as a line break or a tab")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # The error would quote what it took for the port, which may be a part of a password.
            raise BoxError(
                "http: url is not understood: expected https://host:port/path, without credentials"
            ) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BoxError(f"http: url {masked_text(url)!r}: expected http://... or https://...")
        if "@" in parts.netloc:
            raise BoxError("http: credentials in the url end up in logs; send them with `headers`")
        if not parts.netloc.isascii():
            raise BoxError(f"http: url: the host {parts.hostname} has letters beyond ASCII: write it as xn--...")
        if "{" in url or "}" in url:
            raise BoxError(
                f"http: url {masked_text(url)!r}: no template is filled in here; write a brace as %7B or %7D"
            )
        if not allow_private and is_private_literal(parts.hostname):
            raise BoxError(f"http: url: {parts.hostname} is not a public address; allow_private: true permits it")
        secure = parts.scheme == "https"
        # A % that begins no code means itself. For one such, urllib3 would write each % as %25, also those of codes.
        path = _STRAY_PERCENT.sub("%25", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        return cls(parts.hostname, parts.netloc, port or (443 if secure else 80), path, secure)


def method_of(method: str) -> str:
    """The method as it is sent.

    Raises:
        BoxError: no request can have it.
    """
    if NAME.fullmatch(method) is None:
        raise BoxError(f"http: method {method!r}: expected a word such as POST")
    return method.upper()
