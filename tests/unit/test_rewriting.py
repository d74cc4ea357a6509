"""What the tests make of themselves before the first of them is imported."""

from __future__ import annotations

from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, get_cache_dir

from tests.rewriting import REWRITTEN, rewrite


def test_pytest_takes_what_is_left_for_it_with_rewritten_assertions_until_the_file_changes(tmp_path: Path) -> None:
    source = tmp_path / "test_sums.py"
    source.write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    rewrite(source)
    left = get_cache_dir(source) / f"test_sums{PYC_TAIL}"
    found = _read_pyc(source, left)
    assert found is not None
    assert "@pytest_ar" in found.co_names
    source.write_text("def test_sum():\n    assert 2 + 2 == 4 == 4\n")
    assert _read_pyc(source, left) is None
    rewrite(source)
    assert _read_pyc(source, left) is not None


def test_only_files_of_tests_and_fixtures_are_rewritten() -> None:
    names = ["/a/test_sums.py", "/a/conftest.py", "/test_a/sums.py", "/a/latest_sums.py"]
    assert [name for name in names if REWRITTEN.search(name)] == names[:2]
