"""Whatever bytes a configuration file holds, reading it ends soon, with settings or with a list of problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS
from boxengine.errors import ConfigurationError, Problem
from boxengine.settings import Resolved, explain, files, load_and_resolve

EXAMPLE = (Path(__file__).parents[2] / "outbox.yml.example").read_bytes()
SNIPPETS = [
    b"&a ", b"*a", b"<<: *a", b"!!int ", b"!!bool x", b"!!timestamp x", b"!!set {a}", b"!!binary x", b"? ", b"{", b"}",
    b"[", b"]", b"- ", b"!!python/object/apply:os.abort []", b"!!str [a]: 1", b"|", b">", b"%", b"---\n", b"...\n", b"'",
    b'"', b"\t", b"\x00", b"\xff", b'"\\ud800"', b"${", b"${A:-", b"$${A}", b"<%= x %>", b"9" * 5000, b"1e999", b".inf",
    b".nan", b"0x", b"1:2", b"\xef\xbb\xbf", b"=", b"~",
]  # fmt: skip
Edit = Callable[[bytes], bytes]


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One change to a file, as a slip of the hand or a hostile one would make it."""
    place, other = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    length, snippet = draw(st.integers(1, 400)), draw(st.sampled_from(SNIPPETS))
    kind = draw(st.sampled_from(["insert", "delete", "replace", "copy", "cut", "indent", "line"]))

    def edit(text: bytes) -> bytes:
        at, there = int(place * len(text)), int(other * len(text))
        line = text.rfind(b"\n", 0, at) + 1
        return {
            "insert": text[:at] + snippet + text[at:],
            "delete": text[:at] + text[at + length :],
            "replace": text[:at] + snippet + text[at + len(snippet) :],
            "copy": text[:at] + text[there : there + length] + text[at:],
            "cut": text[:at],
            "indent": text[:line] + b" " * (length % 7) + text[line:],
            "line": text[:line] + snippet + b"\n" + text[line:],
        }[kind]

    return edit


def read(folder: Path, content: bytes) -> tuple[Resolved | None, tuple[Problem, ...]]:
    (folder / "outbox.yml").write_bytes(content)
    try:
        found = load_and_resolve(None, env=None, environ={}, cwd=folder, builtin_transports=BUILTIN_TRANSPORTS)
    except ConfigurationError as error:
        return None, error.problems
    return found, ()


def test_the_shipped_example_that_is_mutated_here_is_in_order(tmp_path: Path) -> None:
    found, problems = read(tmp_path, EXAMPLE)
    assert problems == ()
    assert found is not None
    assert found.pipelines


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(changes=st.lists(edits(), min_size=1, max_size=4))
def test_a_mutated_file_is_read_or_refused_with_all_its_problems(tmp_path: Path, changes: list[Edit]) -> None:
    content = EXAMPLE
    for change in changes:
        content = change(content)
    found, problems = read(tmp_path, content)
    if found is not None:
        shown = explain(found.settings)
        assert str([(row.path, row.value) for row in shown]).encode()
        return
    assert problems
    assert all(problem.file == "outbox.yml" and problem.message for problem in problems)
    assert "\n".join(map(str, problems)).encode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(SNIPPETS), max_size=12).map(b"".join)))
@example(content=b'owner: !!int ""')
@example(content=b"owner: !!bool maybe")
@example(content=b"owner: !!timestamp foo")
@example(content=b"!!str [a]: 1")
@example(content=b"\x00")
@example(content=b'owner: "\\ud800"')
@example(content=b'owner: "\\0"')
def test_rubbish_is_read_or_refused_with_problems(tmp_path: Path, content: bytes) -> None:
    found, problems = read(tmp_path, content)
    assert found is not None or "\n".join(map(str, problems)).encode()


def test_problems_in_several_places_of_a_mutated_file_are_all_reported(tmp_path: Path) -> None:
    content = EXAMPLE.replace(b"rate_limit: 60", b"rate_limit: many").replace(b"port: 9090", b"prt: 9090")
    _, problems = read(tmp_path, content)
    assert {problem.path for problem in problems} == {"poller.rate_limit", "metrics.prt"}


# ── what a file may cost ─────────────────────────────────────────────────────────────────────────────


def layers(first: str, layer: str) -> bytes:
    """Nine layers, each of which names the one before ten times."""
    lines = [f"x-a: &a {first}"]
    for before, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"x-{name}: &{name} " + layer.format(", ".join([f"*{before}"] * 10)))
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("first", "layer"), [("[1, 1]", "[{}]"), ("{k: 1}", "{{<<: [{}]}}")], ids=["aliases", "merges"]
)
def test_aliases_and_merges_that_stand_for_a_billion_values_are_refused_unread(
    tmp_path: Path, first: str, layer: str
) -> None:
    _, problems = read(tmp_path, layers(first, layer))
    assert [problem.message for problem in problems] == [
        "more than 20,000 values, those that aliases stand for included"
    ]


@pytest.mark.parametrize("unit", ["1, ", "{k: v}, "])
def test_a_file_of_too_many_values_is_given_up_before_its_end(tmp_path: Path, unit: str) -> None:
    _, problems = read(tmp_path, f"a: [{unit * 50_000} }} and no YAML any more".encode())
    assert [problem.message for problem in problems] == [
        "more than 20,000 values, those that aliases stand for included"
    ]


def test_an_anchor_used_in_many_boxes_is_no_bomb(tmp_path: Path) -> None:
    boxes = "".join(f"  box{number}: {{<<: *defaults}}\n" for number in range(200))
    found, problems = read(
        tmp_path, f"x-d: &defaults {{strict_order: key, transports: {{log: }}}}\noutbox_items:\n{boxes}".encode()
    )
    assert problems == ()
    assert found is not None
    assert len(found.pipelines) == 200


def test_environments_that_are_copies_of_one_are_counted_apart(tmp_path: Path) -> None:
    keys = "max_retries: 3, retention: P1W, minimal_retry_interval: 5, maximal_retry_interval: 60, multiplier_retry_interval: 3"
    more = "deletion_batch_size: 100, deletion_sleep_time: 1, owner: shop, bucket_size: 4, partition_strategy: hash"
    boxes = "".join(f"    box{number}: {{<<: *box}}\n" for number in range(400))
    sections = "".join(f"{name}: {{<<: *all}}\n" for name in ("development", "test", "staging", "production"))
    found, problems = read(
        tmp_path,
        f"x-box: &box {{{keys}, {more}, transports: {{log: }}}}\ndefault: &all\n  outbox_items:\n{boxes}{sections}".encode(),
    )
    assert problems == ()
    assert found is not None
    assert len(found.pipelines) == 400


def test_a_file_that_never_ends_is_refused_after_a_megabyte(tmp_path: Path) -> None:
    document = files.read(Path("/dev/zero"), env="test", cwd=tmp_path)
    assert [problem.message for problem in document.problems] == [
        "larger than 1,048,576 bytes; expected a configuration"
    ]


@pytest.mark.parametrize("text", ["[" * 100_000, "a: {" * 100_000, "- " * 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    _, problems = read(tmp_path, text.encode())
    assert "nested too deeply" in problems[0].message


def long_text(unit: str) -> bytes:
    text = unit * (900_000 // len(unit))
    return f"owner: '{text}'\noutbox_items: {{a_item: {{transports: {{log: }}}}}}".encode()


@pytest.mark.parametrize("unit", ["${A:-", "${A"])
def test_a_long_text_of_half_variables_is_refused_in_one_go(tmp_path: Path, unit: str) -> None:
    found, problems = read(tmp_path, long_text(unit))
    assert found is None
    assert len(problems[0].message) < 500


@pytest.mark.parametrize("unit", ["$${", "postgresql://a:", "?password", "http://a/"])
def test_a_long_text_of_escapes_or_urls_is_read_in_one_go(tmp_path: Path, unit: str) -> None:
    found, _ = read(tmp_path, long_text(unit))
    assert found is not None
    rows: list[Any] = [row for row in explain(found.settings) if row.path == "owner"]
    assert rows[0].value


def test_a_tag_that_would_run_code_is_refused(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    _, problems = read(tmp_path, f"owner: !!python/object/apply:pathlib.Path.touch [{trap}]".encode())
    assert "could not determine a constructor" in problems[0].message
    assert not trap.exists()
