"""``boxengine new``: writes first versions of models and transports with their configuration, and classes of contracts."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from boxengine.cli.context import notes, output
from boxengine.errors import BoxError

cli = typer.Typer(
    help="Write a first version of a model or a transport, or the classes of contracts.", no_args_is_help=True
)
Target = Annotated[
    Path | None,
    typer.Option("--file", help="Python file to write, below this folder; left out: named after the class."),
]

ITEM = '''\
"""Rows of the box {box}.

The table is {table}. Make it with `boxengine db create`, or put what `boxengine db ddl {box}` prints into a
migration of your own, together with what you change here.
"""

from sqlalchemy.orm import DeclarativeBase

from boxengine import {mixin}


class Base(DeclarativeBase):
    """Take your application's own base instead, if it has one."""


class {name}({mixin}, Base):
    """One item; its columns come from {mixin}."""

    __tablename__ = "{table}"
'''
ITEM_YAML = """\
{side}_items:
  {box}:
    model: {module}.{name}
    max_retries: 5
    transports:
      log: {{}}
"""
TRANSPORT = '''\
"""Where items go."""

import logging
from typing import Any

from boxengine import Failure

logger = logging.getLogger(__name__)


class {name}:
    """Delivers one item at a time. It is made once per worker and called by several threads at once."""

    def __init__(self, *, greeting: str) -> None:
        """Takes the arguments that the configuration has for this transport."""
        self._greeting = greeting

    def __call__(self, item: Any, payload: bytes) -> Failure | None:
        """Delivers it: what is returned counts as delivered, unless it is False or a Failure, or an error is raised.

        The same item may come again after a crash; item.uuid tells the receiver which it is.
        """
        if not payload:
            return Failure("there is nothing to send")
        logger.info("%s %s %s: %s", self._greeting, item.event_name, item.event_key, payload.decode(errors="replace"))
        return None
'''
TRANSPORT_YAML = """\
    transports:
      {module}.{name}: {{greeting: hello}}
"""


@cli.command("item")
def item(
    name: Annotated[str, typer.Argument(help="OrderOutboxItem, order_outbox_item, or just Order.", metavar="NAME")],
    *,
    inbox: Annotated[bool, typer.Option("--inbox", help="Of an inbox; also if NAME ends in InboxItem.")] = False,
    file: Target = None,
) -> None:
    """Write a model for a box, and print what to add to outbox.yml. Existing files are not overwritten.

    Examples: boxengine new item Order; boxengine new item PaymentInboxItem --file shop/items.py
    """
    from boxengine.domain.names import default_table, underscore  # noqa: PLC0415 - see Globals.boxes

    class_name = _class_name(name)
    if not class_name.endswith(("OutboxItem", "InboxItem")):
        class_name += "InboxItem" if inbox else "OutboxItem"
    side = "inbox" if class_name.endswith("InboxItem") else "outbox"
    if inbox and side == "outbox":
        raise typer.BadParameter(f"{class_name} is the name of an outbox", param_hint="--inbox")
    box = underscore(class_name)
    values = {"name": class_name, "box": box, "table": default_table(box), "side": side, "mixin": f"{side.title()}Item"}
    _write(ITEM, ITEM_YAML, values, file)
    notes().print(f"Next: add the lines above to outbox.yml, then\n  boxengine db create {box}", markup=False)


@cli.command("transport")
def transport(
    name: Annotated[str, typer.Argument(help="SendOrder, or send_order.", metavar="NAME")],
    *,
    file: Target = None,
) -> None:
    """Write a transport, and print what to add to a box in outbox.yml. Existing files are not overwritten.

    Examples: boxengine new transport SendOrder; boxengine new transport SendOrder --file shop/transports.py
    """
    _write(TRANSPORT, TRANSPORT_YAML, {"name": _class_name(name)}, file)
    notes().print("Next: add the lines above to a box in outbox.yml, then\n  boxengine config check", markup=False)


@cli.command("contract")
def contract(
    source: Annotated[Path, typer.Argument(help="The contracts.", metavar="FILE")] = Path("contracts.yml"),
    *,
    file: Annotated[
        Path | None, typer.Option("--file", help="Python file to write; left out: named after FILE.")
    ] = None,
) -> None:
    """Generate typed classes from contracts: the arguments of long jobs, checked when a job is created.

    Overwrites only a file that this command has generated.

    Examples: boxengine new contract; boxengine new contract shop/contracts.yml --file shop/contracts.py
    """
    from boxengine.settings.contracts import MADE, module, read  # noqa: PLC0415 - see Globals.boxes

    target = file or source.with_suffix(".py")
    try:
        contracts = read(source.read_text(), source.name)
        if target.exists() and MADE not in target.read_text().partition("\n")[0]:
            raise BoxError(f"{target} is there already, and this command did not make it; nothing was written")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(module(contracts, source.name))
    except OSError as error:
        raise BoxError(f"{error.filename}: {error.strerror}") from error
    notes().print(f"wrote {target}: {', '.join(each.name for each in contracts)}", markup=False)
    notes().print("Next: name the classes by task under the key contracts of a job box", markup=False)


def _write(template: str, yaml: str, values: dict[str, str], file: Path | None) -> None:
    from boxengine.domain.names import underscore  # noqa: PLC0415 - see Globals.boxes

    path = file or Path(f"{underscore(values['name'])}.py")
    if path.is_absolute() or path.suffix != ".py" or not all(map(_is_name, path.with_suffix("").parts)):
        expected = "expected a path below this folder that can be imported, such as shop/items.py"
        raise typer.BadParameter(expected, param_hint="--file")
    if path.exists():
        raise BoxError(f"{path} exists already; nothing was written")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template.format(**values))
    except OSError as error:
        raise BoxError(f"{path}: {error.strerror}") from error
    notes().print(f"wrote {path}", markup=False)
    output().print(yaml.format(**values, module=".".join(path.with_suffix("").parts)), end="", markup=False)


def _class_name(text: str) -> str:
    """``order_item`` and ``OrderItem`` -> ``OrderItem``."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[_-]+", text))
    if not _is_name(name) or not name.isascii():
        raise typer.BadParameter(f"expected the name of a class, such as SendOrder, got {text!r}", param_hint="NAME")
    return name


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
