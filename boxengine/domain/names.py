"""Names of boxes, and of their tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from boxengine.errors import InvalidItem

BOX_NAME = re.compile(r"[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)*")
"""Lower case with underscores, namespaces set off with a slash. Metrics, URLs and Redis keys are made of it."""

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ENDS_LIKE_BUS = ("s", "x", "z", "ch", "sh")


def url_name(name: str, *, twin: bool) -> str:
    """``combined/outbox_item`` is ``combined-outbox-item``; of ``twins`` each keeps its underscores."""
    apart = name.replace("/", "-")
    return apart if twin else apart.replace("_", "-")


def twins(names: Iterable[str]) -> frozenset[str]:
    """The names that differ from another one in nothing but ``/`` and ``_``: URLs have ``-`` for both, and would be the same.

    Example::

        twins(["shop/order_item", "shop_order_item", "invoice_item"])  # both of the shop's
    """
    names = frozenset(names)
    often = Counter(name.replace("/", "_") for name in names)
    return frozenset(name for name in names if often[name.replace("/", "_")] > 1)


def underscore(class_name: str) -> str:
    """``OrderOutboxItem`` -> ``order_outbox_item``; Ruby's ``Combined::OutboxItem`` -> ``combined/outbox_item``."""
    return "/".join(_WORD_STARTS.sub("_", part).lower() for part in class_name.split("::"))


def box_name(model: type | str) -> str:
    """The box of a model class: its ``__box_name__``, else its class name underscored. A name stays as it is.

    Raises:
        InvalidItem: it is neither a class nor a name.
    """
    if isinstance(model, str):
        return model
    if not isinstance(model, type):
        raise InvalidItem(f"a model class or the name of a box is needed, not {_object_of(model)}")
    name = getattr(model, "__box_name__", None)
    return str(name) if name else underscore(model.__name__)


def _object_of(given: object) -> str:
    kind = type(given).__name__
    advice = f"; pass the class itself: {kind}, not {kind}()" if hasattr(given, "__table__") else ""
    return f"an object of type {kind}{advice}"


def default_table(box_name: str) -> str:
    """``combined/outbox_item`` -> ``combined_outbox_items``: the plural, by the regular rules of English."""
    name = box_name.replace("/", "_")
    if name.endswith(_ENDS_LIKE_BUS):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}s"
