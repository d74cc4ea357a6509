"""From a line of ``transports`` to something that makes the transport: what it names, and whether its arguments fit."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType, ModuleType, NoneType, UnionType
from typing import Any

from boxengine.domain.signatures import signature_of
from boxengine.engine.answers import ASYNC, how_it_would_run, never_runs
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.settings.arguments import Misconfigured, examined, parsed
from boxengine.settings.boxes import RESERVED, TransportSettings
from boxengine.settings.call_shapes import misfit
from boxengine.settings.diagnosis import unknown_key
from boxengine.settings.dotted_paths import CannotImport, import_module
from boxengine.settings.kafka_arguments import kafka_arguments
from boxengine.settings.schema import Settings
from boxengine.settings.transport_names import KAFKA, CannotFind, find, short_name
from boxengine.settings.values.numbers import Amount, CountOrZero, Flag
from boxengine.settings.values.texts import Keys, Words, WordsOrMore
from boxengine.settings.values.times import Seconds

_WAYS = {"__call__": "(item, payload)", "call_batch": "(items)"}
"""How a transport may be called."""
_GIVEN = ("session", "decoded")
"""Arguments that the engine gives a function that asks for them."""
_GIVEN_AT_THE_START = ("producers",)
"""Arguments that the worker gives a constructor that asks for them; the file cannot."""
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_KINDS: Mapping[frozenset[Any], Any] = MappingProxyType(
    {
        frozenset({bool}): Flag,
        frozenset({int}): CountOrZero,
        frozenset({float}): Amount,
        frozenset({str}): Words,
        frozenset({str, Path}): Words,
        frozenset({str, Sequence[str]}): WordsOrMore,
        frozenset({Mapping[str, str]}): Keys,
        frozenset({Mapping[str, Any]}): Keys,
    }
)
"""By the types that a built-in transport's argument may have, what the file may say. No number goes below zero."""


def specify(transport: TransportSettings, settings: Settings, *, built_in: Mapping[str, str]) -> TransportSpec:
    """The transport, found and checked but not yet made.

    Raises:
        Misconfigured: there is no such class, it is no transport, or its arguments do not fit its signature.
    """
    name = short_name(transport.class_name)
    try:
        found = find(name, built_in=built_in, app=settings.app)
    except CannotFind as error:
        raise Misconfigured(("class", str(error))) from error
    arguments = dict(transport.arguments)
    timeout = _timeout(arguments, found, name)
    if name in built_in:
        arguments = _typed(arguments, found)
    if name == KAFKA:
        arguments = kafka_arguments(arguments, settings.kafka)
    build = _builder(found, transport.class_name, arguments)
    if name in built_in:
        mistakes = examined(arguments, getattr(found, "checks", None))
        if mistakes:
            raise Misconfigured(*mistakes)
    return TransportSpec(
        name=transport.name,
        build=build,
        event_name=transport.event_name,
        disposable=settings.disposable(transport),
        timeout=timeout,
    )


def _timeout(arguments: dict[str, Any], found: Any, name: str) -> timedelta | None:
    """How long the engine lets a call take. A transport that limits its calls itself is given the limit as an argument.

    Raises:
        Misconfigured: it is no length of time.
    """
    if "timeout" not in arguments or _takes(found, "timeout"):
        return None
    given = arguments.pop("timeout")
    if given is None:
        return None
    timeout: timedelta = parsed("timeout", given, Seconds)
    if name == KAFKA:
        arguments.setdefault("delivery_timeout", timeout.total_seconds())
        return None
    return timeout


def _typed(arguments: Mapping[str, Any], transport: type) -> dict[str, Any]:
    """The arguments of a built-in transport, with numbers and flags for texts: a value with ``${NAME}`` is always text.

    Raises:
        Misconfigured: a value that is not what its argument is annotated as.
    """
    annotations = typing.get_type_hints(transport.__init__)  # type: ignore[misc] # it is the class's own
    parameters = signature_of(transport).parameters
    typed: dict[str, Any] = {}
    mistakes: list[tuple[str | None, str]] = []
    for argument, given in arguments.items():
        types = _types(annotations[argument]) if argument in parameters else frozenset()
        if given is None and types and not (NoneType in types and parameters[argument].default is not None):
            # As everywhere, a key without a value is no key. Only where there is a default to be without, it is a choice.
            continue
        kind = None if given is None else _KINDS.get(types - {NoneType})
        try:
            typed[argument] = given if kind is None else parsed(argument, given, kind)
        except Misconfigured as error:
            mistakes += error.mistakes
    if mistakes:
        raise Misconfigured(*mistakes)
    return typed


def _types(annotation: Any) -> frozenset[Any]:
    return frozenset(typing.get_args(annotation) if isinstance(annotation, UnionType) else (annotation,))


def _takes(found: Any, argument: str) -> bool:
    """Whether what is to be called with the arguments takes this one."""
    target = _factory(found) or found
    try:
        parameters = signature_of(target).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.name == argument or each.kind is each.VAR_KEYWORD for each in parameters)


def _builder(found: Any, name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    factory = _factory(found)
    if factory is not None:
        _check(factory, f"{name}.OutboxTransportFactory.build", arguments)
        return functools.partial(factory, **arguments)
    if isinstance(found, type):
        if not _instances_deliver(found):
            raise Misconfigured(("class", f"{name} has neither __call__(item, payload) nor call_batch(items)"))
        lacking: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
        if lacking:
            missing = ", ".join(sorted(lacking))
            raise Misconfigured(("class", f"{name} is abstract, so nothing can be made of it: it lacks {missing}"))
        ways = {each: getattr(found, each) for each in _WAYS if _has(found, each)}
        _refuse_what_never_runs(name, ways)
        _refuse_other_shapes(name, ways, is_method_of=found)
        _check(found, name, arguments)
        return functools.partial(found, **arguments)
    if isinstance(found, ModuleType) or not (callable(found) or hasattr(found, "call_batch")):
        kind = (
            "a module without OutboxTransportFactory.build" if isinstance(found, ModuleType) else type(found).__name__
        )
        raise Misconfigured(("class", f"{name} is {kind}; expected a class or a callable (item, payload)"))
    return _ready_made(found, name, arguments)


def _factory(found: Any) -> Callable[..., Any] | None:
    factory = getattr(found, "OutboxTransportFactory", None)
    if factory is None and isinstance(found, ModuleType) and hasattr(found, "__path__"):
        try:
            factory = import_module(f"{found.__name__}.OutboxTransportFactory")
        except CannotImport:
            return None
    build = getattr(factory, "build", None)
    return build if callable(build) else None


def _instances_deliver(cls: type) -> bool:
    return any(_has(cls, name) for name in _WAYS)


def _has(cls: type, name: str) -> bool:
    # Looked up in the classes themselves: every class has a __call__ from its metaclass, the one that makes instances.
    return any(name in vars(base) for base in cls.__mro__)


def _refuse_what_never_runs(name: str, ways: Mapping[str, Any]) -> None:
    for way, call in ways.items():
        kind = never_runs(call)
        if kind not in (None, ASYNC):
            advice = how_it_would_run(awaited=True)
            raise Misconfigured(("class", f"{way} of {name} is {kind}, whose code would never run; {advice}"))


def _refuse_other_shapes(name: str, ways: Mapping[str, Any], *, is_method_of: type | None = None) -> None:
    for way, call in ways.items():
        mistake = misfit(call, _WAYS[way], by_name=_GIVEN, is_method_of=is_method_of)
        if mistake is not None:
            raise Misconfigured(("class", f"{way} of {name} {mistake}"))


def _ready_made(found: Any, name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """A function, or an object that delivers, is the transport itself; arguments are given at each call."""
    ways = {"call_batch": getattr(found, "call_batch", None), "__call__": found if callable(found) else None}
    there = {way: call for way, call in ways.items() if call is not None}
    _refuse_what_never_runs(name, there)
    if not arguments:
        _refuse_other_shapes(name, there)
        return lambda: found
    if not callable(found):
        raise Misconfigured((None, f"{name} is an object and takes no arguments"))
    _check(found, name, arguments, given=2)
    transport = functools.partial(found, **arguments)
    return lambda: transport


def _check(target: Callable[..., Any], name: str, arguments: Mapping[str, Any], *, given: int = 0) -> None:
    try:
        parameters = list(signature_of(target).parameters.values())[given:]
    except (TypeError, ValueError):
        # Some classes written in C have no signature to hold the arguments against.
        return
    mistakes = [*_missing(parameters, name, arguments), *_unknown(parameters, name, arguments)]
    if mistakes:
        raise Misconfigured(*mistakes)


def _missing(parameters: list[Parameter], name: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    for parameter in parameters:
        required = parameter.default is parameter.empty and parameter.name not in (*_GIVEN, *_GIVEN_AT_THE_START)
        if parameter.kind in _BY_NAME and required and parameter.name not in arguments:
            yield parameter.name, f"missing: {name} requires this argument"
        if parameter.kind is parameter.POSITIONAL_ONLY and required:
            yield None, f"{name} takes {parameter.name} by position only; arguments are given by name"


def _unknown(parameters: list[Parameter], name: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    given = (*_GIVEN, *_GIVEN_AT_THE_START)
    taken = [parameter.name for parameter in parameters if parameter.kind in _BY_NAME and parameter.name not in given]
    for argument in arguments:
        if argument not in taken:
            # The file may also have keys of boxengine's own here.
            known = unknown_key(argument, taken, also=(*RESERVED, "timeout"))
            yield argument, f"{known} (the arguments of {name})"
