"""The model of a box, and what the engine takes from it: payloads, codec, hooks, numbering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from boxengine.domain.box import BoxType, Storage
from boxengine.domain.codec import Codec
from boxengine.domain.names import box_name
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.call_shapes import misfit
from boxengine.settings.origin import Path
from boxengine.settings.resolution.named import Named

_COLUMNS = ("event_key", "bucket", "status")
"""What no table of items lacks."""


class Models:
    """Loads the models of item boxes, and reads what they say."""

    def __init__(self, named: Named) -> None:
        self._named = named

    def load(self, path: Path, dotted_path: str | None, box: str) -> type | None:
        """The class, if it is a model of this box: anything else would be found out when the first item is created."""
        if dotted_path is None:
            return None
        found = self._named.load(path, dotted_path)
        if found is None:
            return None
        fault = _fault_of_model(found, box, outbox=path[0] == "outbox_items")
        if fault is None:
            return cast("type", found)
        self._named.report(path, f"{dotted_path} {fault}")
        return None

    def payload_builder(self, path: Path, model: type | None) -> Any:
        found = getattr(model, "build_payload", None)
        if found is None or callable(found):
            return self._called(path, "build_payload", found)
        message = f"its build_payload is {type(found).__name__}; expected a method of the item"
        self._named.report(path, message)
        return None

    def codec(self, path: Path, model: type | None) -> Codec | None:
        found = getattr(model, "__payload__", None)
        if found is None or isinstance(found, Codec):
            return found
        message = f"its __payload__ is {found!r:.100}; expected a codec, such as boxengine.Payload.json()"
        self._named.report(path, message)
        return None

    def hook(self, path: Path, model: type | None, name: str) -> Callable[..., object] | None:
        """A model's method of the item, its property, or a mapping that is the same for all items."""
        found = getattr(model, name, None)
        match found:
            case property(fget=get) if get is not None:
                found = get
            case Mapping():
                return lambda _item: found
            case None:
                return None
        if callable(found):
            return self._called(path, name, found)
        message = f"its {name} is {type(found).__name__}; expected a method of the item, a property, or a mapping"
        self._named.report(path, message)
        return None

    def _called(self, path: Path, name: str, found: Any) -> Callable[..., object] | None:
        """The method, if it can be called with the item alone."""
        if found is None or not self._named.runs(path, f"its {name}", found):
            return None
        mistake = misfit(found, "(item)")
        if mistake is None:
            return cast("Callable[..., object]", found)
        self._named.report(path, f"its {name} {mistake}; expected a @staticmethod that takes the item")
        return None

    def sequence(self, path: Path, settings: BoxSettings, model: type | None) -> bool:
        if settings.sequence and model is not None and not hasattr(model, "seq"):
            message = (
                f"{settings.model} has no column for it; expected the mixin boxengine.SequencedItem among its bases"
            )
            self._named.report(path, message)
        numbered = bool(getattr(model, "__box_sequence__", False))
        if numbered and settings.storage is Storage.LOG:
            message = (
                f"{settings.model} is a SequencedItem, and storage: log has no place for its numbers; expected table"
            )
            self._named.report((*path[:-1], "storage"), message)
        return settings.sequence or numbered


def has_key_index(settings: BoxSettings, model: type | None) -> bool:
    """Whether the table's index leads from a key to its rows."""
    if settings.key_index is not None:
        return settings.key_index
    return settings.reads_keys or bool(getattr(model, "__box_key_index__", False))


def _fault_of_model(found: Any, box: str, *, outbox: bool) -> str | None:
    """Why this is no model of the box; None if it is one."""
    mixin = "boxengine.OutboxItem" if outbox else "boxengine.InboxItem"
    if not isinstance(found, type):
        return f"is {type(found).__name__}; expected a model class"
    columns = getattr(getattr(found, "__table__", None), "columns", None)
    if columns is None:
        return f"is a class without a table; expected a SQLAlchemy model with the mixin {mixin} and a __tablename__"
    fault = _fault_of_columns(columns, mixin)
    if fault is not None:
        return fault
    side = getattr(found, "__box_type__", None)
    if side is not None and (side == BoxType.OUTBOX) != outbox:
        return f"is an {side} model; expected the mixin {mixin} among its bases, or the box under {side}_items"
    own = box_name(found)
    if own != box:
        return f"belongs to the box {own}; rename this box, or write __box_name__ = {box!r} in the class"
    return None


def _fault_of_columns(columns: Any, mixin: str) -> str | None:
    lacking = [name for name in _COLUMNS if name not in columns]
    if lacking:
        return f"has no {', '.join(lacking)}; expected the mixin {mixin} among its bases"
    if "id" in columns and not has_numbers(columns["id"]):
        return "has an id that is no whole number; expected the mixin's own: items go out in the order of their ids"
    return None


def has_numbers(column: Any) -> bool:
    """Whether a column of a model is of whole numbers."""
    try:
        return issubclass(column.type.python_type, int)
    except NotImplementedError:  # a type of the application's own
        return True
