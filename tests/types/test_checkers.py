"""Type checkers find mistakes, and have nothing to say about right uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.types.checkers import ROOT, Findings, mypy, pyright

HERE = Path(__file__).parent
MISTAKES = HERE / "mistakes.py"
LEAST = 30
EXAMPLES = [
    file
    for name in ("django", "fastapi", "orders", "quickstart")
    for file in sorted((ROOT / "examples" / name).rglob("*.py"))
]
CHECKERS = {"mypy": mypy, "pyright": pyright}

pytestmark = pytest.mark.xdist_group("types")  # one run of each checker answers all questions


@pytest.fixture(scope="module", params=CHECKERS)
def findings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What a strict checker says about the mistakes, the right uses and the examples."""
    files = [MISTAKES, HERE / "right_uses.py", *EXAMPLES]
    return CHECKERS[request.param](tmp_path_factory.mktemp("types"), files)


def test_each_mistake_is_found(findings: Findings) -> None:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    expected = {number: line for number, line in enumerate(lines, start=1) if "# expect:" in line}
    assert len(expected) >= LEAST
    assert [line for number, line in expected.items() if ("mistakes.py", number) not in findings] == []


def test_nothing_else_is_found(findings: Findings) -> None:
    lines = ["", *MISTAKES.read_text(encoding="utf-8").splitlines()]
    others = {
        place: message
        for place, message in findings.items()
        if place[0] != MISTAKES.name or "# expect:" not in lines[place[1]]
    }
    assert others == {}


def test_a_misspelt_name_is_told_with_the_right_one_or_as_unknown(findings: Findings) -> None:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines, start=1) if "event_kye" in line)
    message = findings[MISTAKES.name, place]
    assert "event_kye" in message or "event_key" in message
