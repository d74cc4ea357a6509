"""Every block of code in the documentation is one that boxengine takes, as far as this shows without a server.

Commands name commands and options that are there; YAML is a configuration, or a part of one, without a mistake; Python
compiles, and what it imports from boxengine is there. The tests of single pages run their blocks.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from boxengine.cli.main import cli
from boxengine.settings import load
from boxengine.settings.contracts import read

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")])
FENCED = re.compile(r"^( *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^\1```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(boxengine [^`\n]+)`")
BASE = """
database: {url: postgresql+psycopg://me@localhost/shop}
redis: {url: redis://localhost:6379/0}
kafka: {bootstrap_servers: localhost:9092}
outbox_items: {order_outbox_item: {transports: {log: {}}}}
"""
"""What the parts of a configuration that pages show are added to."""
BOXENGINE: Any = typer.main.get_command(cli)
VARIABLES = re.compile(r"\$\{(\w+)")
URLS = {"DATABASE_URL": "postgresql+psycopg://me@localhost/shop", "REDIS_URL": "redis://localhost:6379/0"}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCED.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            code = re.sub(rf"^{found[1]}", "", found["text"], flags=re.MULTILINE)
            yield Block(str(page.relative_to(ROOT)), line, found["language"], code)


ALL = list(blocks())


def written_in(*languages: str) -> list[Any]:
    return [pytest.param(each, id=str(each)) for each in ALL if each.language in languages]


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────


def commands(page: Path) -> Iterator[str]:
    """Each call of boxengine on the page, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    yield from INLINE.findall(FENCED.sub("", text))
    for block in FENCED.finditer(text):
        if block["language"] in ("", "console", "sh", "bash"):
            yield from re.findall(r"^ *(?:\$ )?(boxengine [^\n]+)", block["text"], re.MULTILINE)


def mistake(line: str) -> str | None:
    """What is wrong with a call of boxengine; None if it names only what is there."""
    words = shlex.split(line.partition(" #")[0].partition(" | ")[0].replace("'", ""))
    command = BOXENGINE
    options = {name for each in command.params for name in each.opts}
    for word in words[1:]:
        below = getattr(command, "commands", {})
        if word in below:
            command = below[word]
            options |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        elif below and re.fullmatch(r"[a-z][a-z-]*", word):
            if not {"|", "…"} & set(line) and words[words.index(word) - 1] not in options:
                return f"there is no command {word!r}"
        elif word.startswith("-") and word.partition("=")[0] not in options | {"--help", "-"}:
            return f"{command.name} has no option {word}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_the_page_are_there_with_their_options(page: Path) -> None:
    wrong = {line: why for line in commands(page) if (why := mistake(line))}
    assert wrong == {}


def test_a_command_that_is_not_there_is_found() -> None:
    assert mistake("boxengine item retry") == "there is no command 'item'"
    assert mistake("boxengine items retry --al BOX") == "retry has no option --al"
    assert mistake("boxengine --log-level debug items retry BOX --ids 1") is None


# ── configurations ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", written_in("yaml", "yml"))
def test_the_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    shown = yaml.safe_load(block.text)
    if {"spec", "apiVersion", "services"} & set(shown):
        return  # of Kubernetes or Docker: tests/deployment looks at those that we ship
    if set(shown) == {"contracts"}:
        read(block.text, "contracts.yml")
        return
    if set(shown) == {"transports"}:
        shown = {"outbox_items": {"order_outbox_item": shown}}
    (tmp_path / "base.yml").write_text(BASE, encoding="utf-8")
    (tmp_path / "shown.yml").write_text(yaml.safe_dump(shown), encoding="utf-8")
    variables = dict.fromkeys(VARIABLES.findall(block.text), "5555") | URLS
    load([tmp_path / "base.yml", tmp_path / "shown.yml"], env=None, environ=variables, cwd=tmp_path)


def test_the_address_of_kafka_has_one_name_everywhere() -> None:
    """Whoever copies a box from one page to the kit of another need not rename its variable."""
    shipped = [*ROOT.glob("examples/**/*.yml"), *ROOT.glob("boxengine/kits/**/*.yml"), ROOT / "outbox.yml.example"]
    texts = [path.read_text(encoding="utf-8") for path in [*PAGES, *shipped]]
    named = {name for text in texts for name in re.findall(r"bootstrap_servers: \"?\$\{(\w+)", text)}
    assert named == {"KAFKA"}
    assert "KAFKA: kafka:" in (ROOT / "boxengine" / "kits" / "compose" / "compose.yml").read_text(encoding="utf-8")


# ── Python ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", written_in("python", "py"))
def test_the_code_compiles_and_imports_what_is_there(block: Block) -> None:
    tree = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "boxengine":
                    importlib.import_module(each.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "boxengine":
            if "django" in (node.module or ""):
                continue  # it needs a project around it: tests/examples/test_django.py
            module = importlib.import_module(node.module or "")
            missing = [each.name for each in node.names if not hasattr(module, each.name)]
            assert missing == [], f"{block}: {node.module} has no {', '.join(missing)}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "boxengine":
            assert hasattr(importlib.import_module("boxengine"), node.attr), f"{block}: boxengine has no {node.attr}"


def test_no_page_is_forgotten() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/jobs.md"} <= {block.page for block in ALL}
