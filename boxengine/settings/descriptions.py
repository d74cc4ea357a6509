"""The strings below the keys, as descriptions in the JSON Schema.

Read when a schema is asked for. Pydantic's ``use_attribute_docstrings`` reads the source at every import: a tenth of a
second in every process, for what nobody but ``config schema`` shows.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Adds the descriptions; for ``json_schema_extra``."""
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            for name, text in _strings_below(cls):
                schema["properties"][model.model_fields[name].alias or name]["description"] = text


def _strings_below(cls: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    if isinstance(definition, ast.ClassDef):
        for statement, following in pairwise(definition.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    yield name, inspect.cleandoc(text)
                case _:
                    pass
