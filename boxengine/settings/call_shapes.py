"""Whether users' code can be called as the engine calls it: found while the configuration is read, not at the first item."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import partial
from typing import Any

from boxengine.domain.signatures import signature_of


def misfit(call: Any, shape: str, *, by_name: Collection[str] = (), is_method_of: type | None = None) -> str | None:
    """Why ``call`` cannot be called in this shape; None if it can, or if it has no signature to look at.

    Args:
        call: a function, a method looked up in its class, or an object with ``__call__``.
        shape: positional arguments as the user reads them: ``(item, payload)``.
        by_name: further arguments, given by name to those that ask for them.
        is_method_of: the class in which ``call`` was looked up; its instance then comes first.
    """
    names = [name.strip() for name in shape.strip("()").split(",")]
    given = [name for name in names if name and not name.startswith("*")]
    if not (inspect.isroutine(call) or isinstance(call, partial | type)):
        # Of an instance its method: inspect compares what it is given, and a user's __eq__ may answer anything.
        call = call.__call__
    try:
        signature = signature_of(call)
    except (TypeError, ValueError):
        return None  # written in C
    if is_method_of is not None and inspect.isfunction(call) and not _is_static(is_method_of, call.__name__):
        given.insert(0, "self")
    asked_for = {name: None for name in by_name if name in signature.parameters}
    try:
        signature.bind(*given, **asked_for)
    except TypeError as error:
        return f"is called as {shape}, but takes {_shown(signature, without_self='self' in given[:1])}: {error}"
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    if names[-1].startswith("**") and not takes_any:
        shown = _shown(signature, without_self="self" in given[:1])
        return f"is called as {shape}, but takes {shown}: missing {names[-1]}"
    return None


def _is_static(owner: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name, None), staticmethod)


def _shown(signature: inspect.Signature, *, without_self: bool) -> str:
    """The parameters without their defaults and annotations, and with what says how they are given: ``(item, *, payload)``."""
    parameters = list(signature.parameters.values())
    bare = [each.replace(default=each.empty, annotation=each.empty) for each in parameters]
    return str(inspect.Signature(bare[1:] if without_self else bare))
