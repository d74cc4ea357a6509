"""Headers of a request: which ones an item may set, and what they may contain.

Whoever writes a row chooses its headers. Headers that mark where a message begins and ends on a connection would let a
row smuggle a request of its own into ours, whose answer would then go to the next item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime

CONNECTION_LEVEL = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
PROXY = "proxy-"
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
"""What an environment variable has for a byte that is no UTF-8."""
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_of_the_connection(name: str) -> bool:
    """Whether a header is about the connection. Some servers treat an underscore as a hyphen."""
    canonical = name.strip().lower().replace("_", "-")
    return canonical in CONNECTION_LEVEL or canonical.startswith(PROXY)


def of_an_item(headers: Iterable[tuple[object, object]]) -> dict[str, str]:
    """An item's headers in lower case, without those of the connection.

    Raises:
        ValueError: a name or a value that could be read as the end of its header.
    """
    checked: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if raw_value is None:
            continue
        name, value = str(raw_name), str(raw_value)
        if is_of_the_connection(name):
            continue
        if NAME.fullmatch(name) is None:
            raise ValueError(f"header name {name!r}: expected letters, digits and hyphens")
        if CONTROL.search(value) is not None:
            raise ValueError(f"header {name!r}: its value has a control character, such as a line break")
        checked[name.lower()] = value
    return checked


def of_the_configuration(given: Mapping[str, object]) -> dict[str, str]:
    """The transport's own headers in lower case. A header without a value is none.

    Raises:
        ValueError: a header cannot be sent, no receiver could accept it, or only the transport may set it.
    """
    headers = {str(name): _as_text(str(name), value) for name, value in given.items() if value is not None}
    for name in headers:
        if is_of_the_connection(name) and name.lower() not in {"host", "connection"}:
            raise ValueError(f"header {name!r} is for the transport to set")
    usual = {name: value for name, value in headers.items() if not is_of_the_connection(name)}
    checked = of_an_item(usual.items())
    rest = {name.lower(): value for name, value in headers.items() if is_of_the_connection(name)}
    if any(CONTROL.search(value) for value in rest.values()):
        raise ValueError("a header's value has a control character, such as a line break")
    return checked | rest


def _as_text(name: str, value: object) -> str:
    """The value of a header as the configuration has it.

    Raises:
        ValueError: it is neither text nor a number or a date, cannot be sent, or is no credentials.
    """
    # An interface's version is often a date. A moment would not be sent as it was written.
    if isinstance(value, bool | datetime) or not isinstance(value, str | int | float | date):
        raise ValueError(f"header {name!r}: expected text (put it in quotes), got {type(value).__name__}")  # noqa: TRY004 - see the caller
    text = str(value)
    if LONE_SURROGATE.search(text) is not None:
        raise ValueError(f"header {name!r}: its value has bytes that are no UTF-8")
    if name.lower() == "authorization" and not text.isascii():
        # It would be sent, and refused with each item.
        raise ValueError(
            f"header {name!r}: credentials have no characters beyond ASCII; was something else copied with them?"
        )
    return text
