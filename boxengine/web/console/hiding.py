"""What the console never shows: payloads that the configuration hides, and values whose names mark them as secrets."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boxengine.domain.legible import is_legible, legible
from boxengine.domain.masking import MASK, is_secret, masked_text

EVERY_BOX = "*"
LARGEST = 256 << 10
"""The most bytes of a payload that are shown."""
HEX_SHOWN = 4 << 10
DEEPEST = 200
"""Levels of JSON that are shown as such. Far more would exhaust Python's stack, at which a finalizer may fail, too."""
TOO_DEEP = "nested too deeply to be shown"
_KEY = re.compile(r'"((?:[^"\\]|\\.){1,255})"\s*:\s*', re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"?|[^\s,{}\[\]]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShownPayload:
    """A payload as it may be shown."""

    kind: str
    """json, text, hex or hidden."""
    text: str
    size: int
    cut: bool = False


class Hiding:
    """The rules of one configuration."""

    def __init__(self, rules: Mapping[str, Sequence[str] | None]) -> None:
        """Args:
        rules: by box, or ``*`` for all: None hides the whole payload; key paths hide the values there. A rule of a box is
            also one of its subscriptions, which deliver the same payloads.
        """
        self._whole = {box for box, paths in rules.items() if paths is None}
        self._paths = {
            box: [tuple(path.split(".")) for path in paths] for box, paths in rules.items() if paths is not None
        }

    def hides(self, box: str) -> bool:
        """Whether payloads of the box are hidden whole."""
        return not self._whole.isdisjoint(_covering(box))

    def payload(self, box: str, payload: bytes) -> ShownPayload:
        """The payload as JSON if it is JSON, else as text, else in hex."""
        size = len(payload)
        if self.hides(box):
            return ShownPayload("hidden", "", size)
        shown = self._as_json(box, payload) if size <= LARGEST else None
        if shown is not None:
            return ShownPayload("json", shown, size)
        if self._paths_of(box) and size:
            # Without JSON there are no keys that tell what may be shown.
            return ShownPayload("hidden", "", size)
        text = _as_text(payload)
        if text is None or not legible(text):
            return ShownPayload("hex", _hex(payload[:HEX_SHOWN]), size, cut=size > HEX_SHOWN)
        shown, whole = _without_secrets(text)
        return ShownPayload("text", masked_text(shown), size, cut=size > LARGEST or not whole)

    def _as_json(self, box: str, payload: bytes) -> str | None:
        """The payload as JSON, numbers as they are written; None if it is no object or list, or if it is nested too deeply."""
        mark = secrets.token_hex(8)  # nobody could write it into a payload
        number = f"{mark}{{}}".format
        try:
            value = json.loads(payload, parse_float=number, parse_int=number, parse_constant=number)
            shown = as_json(_masked((), value, self._paths_of(box))) if isinstance(value, dict | list) else None
        except (ValueError, RecursionError):
            return None
        return shown and re.sub(rf'"{mark}([^"]*)"', r"\1", shown)

    def stored(self, box: str, value: Any) -> Any:
        """A whole stored value: a bare text has no key that tells whether it may be shown, and a number needs none."""
        if self.hides(box) or (isinstance(value, str) and self._paths_of(box)):
            return MASK
        return self.value(box, value)

    def value(self, box: str, value: Any) -> Any:
        """JSON with ``***`` for what is hidden."""
        try:
            return _masked((), value, self._paths_of(box))
        except _TooDeep:
            return TOO_DEEP

    def _paths_of(self, box: str) -> list[tuple[str, ...]]:
        return [path for name in _covering(box) for path in self._paths.get(name, ())]


def as_json(value: Any) -> str:
    """The value as JSON, indented, with escapes for characters that cannot be sent or would reorder the page."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if legible(text) else "".join(each if is_legible(each) else json.dumps(each)[1:-1] for each in text)


def _covering(box: str) -> set[str]:
    """Names in rules that are about this box: ``order_outbox_item.billing`` is a subscription of ``order_outbox_item``."""
    return {box, box.partition(".")[0], EVERY_BOX}


def _as_text(payload: bytes) -> str | None:
    """The beginning of the payload as text; None if it is not text."""
    try:
        return payload[:LARGEST].decode()
    except UnicodeDecodeError as error:
        # The limit may have cut the last character in two.
        return payload[: error.start].decode() if len(payload) > LARGEST and error.start > LARGEST - 4 else None


class _TooDeep(ValueError):
    """A value has more than ``DEEPEST`` levels."""


def _masked(path: tuple[str, ...], value: Any, hidden: Sequence[tuple[str, ...]], *, levels: int = DEEPEST) -> Any:
    if not levels:
        raise _TooDeep
    if path and (path in hidden or is_secret(path[-1:])):
        return None if value is None else MASK
    if isinstance(value, dict):
        return {key: _masked((*path, str(key)), each, hidden, levels=levels - 1) for key, each in value.items()}
    if isinstance(value, list):
        # The path of a list covers all its entries.
        return [
            _masked(path, each, hidden, levels=levels - 1) if isinstance(each, dict | list) else _text(each)
            for each in value
        ]
    return _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # the database may keep 1e400, for which neither Python nor JSON has a number
    return masked_text(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> tuple[str, bool]:
    """The text with ``***`` for values whose JSON keys name a secret, for JSON that is too long or too deep to be parsed.

    If such a value is an object or a list, the text ends there, because nothing tells where the value does.

    Returns:
        The text, and whether it goes to the end.
    """
    parts, position = [], 0
    while key := _KEY.search(text, position):
        parts.append(text[position : key.end()])
        position = key.end()
        if is_secret((key[1],)):
            scalar = _SCALAR.match(text, position)
            parts.append(f'"{MASK}"')
            if scalar is None:
                return "".join(parts), position == len(text)
            position = scalar.end()
    return "".join((*parts, text[position:])), True


def _hex(payload: bytes) -> str:
    lines = []
    for start in range(0, len(payload), 16):
        part = payload[start : start + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "·" for each in part)  # noqa: PLR2004 - printable ASCII
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
