"""What the console never shows: payloads that the configuration hides, and values whose names mark them as secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boxengine.domain.masking import MASK, is_secret, masked_text

EVERY_BOX = "*"
LARGEST = 256 << 10
"""The most bytes of a payload that are shown."""
HEX_SHOWN = 4 << 10


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
        try:
            value = json.loads(payload) if size <= LARGEST else None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return ShownPayload("json", json.dumps(self.value(box, value), indent=2, ensure_ascii=False), size)
        if self._paths_of(box) and size:
            # Without JSON there are no keys that tell what may be shown.
            return ShownPayload("hidden", "", size)
        text = _as_text(payload)
        if text is not None and all(each.isprintable() or each in "\r\n\t" for each in text):
            return ShownPayload("text", masked_text(text), size, cut=size > LARGEST)
        return ShownPayload("hex", _hex(payload[:HEX_SHOWN]), size, cut=size > HEX_SHOWN)

    def stored(self, box: str, value: Any) -> Any:
        """A whole stored value: a bare text has no key that tells whether it may be shown, and a number needs none."""
        if self.hides(box) or (isinstance(value, str) and self._paths_of(box)):
            return MASK
        return self.value(box, value)

    def value(self, box: str, value: Any) -> Any:
        """JSON with ``***`` for what is hidden."""
        return _masked((), value, self._paths_of(box))

    def _paths_of(self, box: str) -> list[tuple[str, ...]]:
        return [path for name in _covering(box) for path in self._paths.get(name, ())]


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


def _masked(path: tuple[str, ...], value: Any, hidden: Sequence[tuple[str, ...]]) -> Any:
    if path and (path in hidden or is_secret(path[-1:])):
        return None if value is None else MASK
    if isinstance(value, dict):
        return {key: _masked((*path, str(key)), each, hidden) for key, each in value.items()}
    if isinstance(value, list):
        # The path of a list covers all its entries.
        return [_masked(path, each, hidden) if isinstance(each, dict | list) else _text(each) for each in value]
    return _text(value)


def _text(value: Any) -> Any:
    return masked_text(value) if isinstance(value, str) else value


def _hex(payload: bytes) -> str:
    lines = []
    for start in range(0, len(payload), 16):
        part = payload[start : start + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "·" for each in part)  # noqa: PLR2004 - printable ASCII
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
