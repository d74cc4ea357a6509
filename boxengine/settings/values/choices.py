"""Words of which one is chosen."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from boxengine.domain.box import Beginning, Storage, StrictOrder
from boxengine.domain.jobs import Executor
from boxengine.domain.schedules import Misfire
from boxengine.settings.values.numbers import FALSE, TRUE

_STRICT_ORDER = {
    # A plain yes is true to YAML; one that comes from a variable is text.
    **dict.fromkeys(TRUE, StrictOrder.BUCKET),
    **dict.fromkeys(FALSE, StrictOrder.NONE),
    "bucket": StrictOrder.BUCKET,
    "key": StrictOrder.KEY,
    "none": StrictOrder.NONE,
}


def _strict_order(value: object) -> StrictOrder:
    if isinstance(value, StrictOrder):
        return value
    found = _STRICT_ORDER.get(str(value).lower()) if isinstance(value, bool | str) else None
    if found is None:
        raise ValueError("expected true, false, bucket or key")
    return found


def _storage(value: object) -> Storage:
    try:
        return Storage(str(value))
    except ValueError:
        raise ValueError("expected table or log") from None


def _beginning(value: object) -> Beginning:
    try:
        return Beginning(str(value))
    except ValueError:
        raise ValueError("expected beginning or now") from None


def _misfire(value: object) -> Misfire:
    try:
        return Misfire(str(value))
    except ValueError:
        raise ValueError(f"expected {', '.join(Misfire)}") from None


def _executor(value: object) -> Executor:
    try:
        return Executor(str(value))
    except ValueError:
        raise ValueError(f"expected {' or '.join(Executor)}") from None


Order = Annotated[
    StrictOrder,
    BeforeValidator(_strict_order),
    WithJsonSchema({"enum": [True, False, "bucket", "key"]}),
]
StorageKind = Annotated[
    Storage,
    BeforeValidator(_storage),
    WithJsonSchema({"enum": ["table", "log"]}),
]
BeginningKind = Annotated[
    Beginning,
    BeforeValidator(_beginning),
    WithJsonSchema({"enum": [str(each) for each in Beginning]}),
]
MisfireKind = Annotated[
    Misfire,
    BeforeValidator(_misfire),
    WithJsonSchema({"enum": [str(each) for each in Misfire]}),
]
ExecutorKind = Annotated[
    Executor,
    BeforeValidator(_executor),
    WithJsonSchema({"enum": [str(each) for each in Executor]}),
]
