"""Values that JSON can hold, in Python as well as in the databases."""

from __future__ import annotations

import json
import re

# A backslash of the text itself is doubled, so an odd number of them begins an escape.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f]")
_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f]")

_encode = json.JSONEncoder(allow_nan=False).encode
"""Kept: ``json.dumps`` makes an encoder at every call with such an option."""


def json_text(value: object) -> str:
    """The value as JSON.

    PostgreSQL's ``jsonb`` holds neither NUL nor half a surrogate pair. Both are refused for every database, so that an
    application may change its database.

    Raises:
        ValueError: JSON cannot hold it; the message says which part, and what to give in its place.

    Example::

        json_text({"done": 3})           # '{"done": 3}'
        json_text("a\\0b")                # ValueError: a text with NUL (\\x00)
    """
    try:
        text = _encode(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ValueError(json_refusal(value, error)) from None
    if "\\u0000" in text and _NUL.search(text):
        raise ValueError(r"a text with NUL (\x00), which PostgreSQL does not store")
    if "\\ud" in text and _SURROGATE.search(_PAIR.sub("", text)):
        raise ValueError("a text with half a surrogate pair, which is no character")
    return text


def json_refusal(value: object, error: Exception) -> str:
    """Why ``json.dumps`` has refused the value with this error: in our words, if they are known, else in its own."""
    from boxengine.domain.json_advice import why_not_json  # noqa: PLC0415 - hardly a process needs it

    return why_not_json(value) or str(error)
