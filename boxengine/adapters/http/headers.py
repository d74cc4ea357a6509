"""Headers of a request: which ones an item may set, and what they may contain.

Whoever writes a row chooses its headers. Headers that mark where a message begins and ends on a connection would let a
row smuggle a request of its own into ours, whose answer would then go to the next item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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


def of_the_configuration(headers: Mapping[str, str]) -> dict[str, str]:
    """The transport's own headers in lower case.

    Raises:
        ValueError: a header cannot be sent, or only the transport may set it.
    """
    for name in headers:
        if is_of_the_connection(name) and name.lower() not in {"host", "connection"}:
            raise ValueError(f"header {name!r} is for the transport to set")
    usual = {name: value for name, value in headers.items() if not is_of_the_connection(name)}
    checked = of_an_item(usual.items())
    rest = {name.lower(): value for name, value in headers.items() if is_of_the_connection(name)}
    if any(CONTROL.search(value) for value in rest.values()):
        raise ValueError("a header's value has a control character, such as a line break")
    return checked | rest
