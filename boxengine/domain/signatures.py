"""What parameters users' functions have."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(call: Callable[..., Any]) -> inspect.Signature:
    """As ``inspect.signature``, but annotations may name what does not exist at run time.

    From Python 3.14 on, annotations are evaluated only when someone reads them. A name that is imported ``if TYPE_CHECKING`` then
    needs no quotes, and would raise a NameError here.

    Raises:
        TypeError, ValueError: it has no signature, as some of what is written in C.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(call, annotation_format=Format.FORWARDREF)
    return inspect.signature(call)
