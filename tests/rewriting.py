"""Test files with their assertions rewritten, made once for all of xdist's workers.

In a fresh clone each of them would otherwise rewrite all, in the same order and at the same time: 15 s of processor time each.
"""

from __future__ import annotations

import ast
import compileall
import os
import re
import sys
from multiprocessing import get_context
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _write_pyc_fp, get_cache_dir, rewrite_asserts

ROOT = Path(__file__).parent
REWRITTEN = re.compile(r"/(test_[^/]*|conftest)\.py$")


def rewrite_once(root: Path = ROOT) -> None:
    """Leave in the folders ``__pycache__`` what pytest and Python would leave there as they import the tests."""
    if sys.dont_write_bytecode:
        return
    files = sorted(path for path in root.rglob("*.py") if REWRITTEN.search(str(path)))
    with get_context("fork").Pool() as pool:
        made = pool.map_async(rewrite, files, chunksize=4)
        compileall.compile_dir(root, quiet=2, rx=REWRITTEN)
        made.get()


def rewrite(source: Path) -> None:
    """One file, unless that is done."""
    folder = get_cache_dir(source)
    target = folder / f"{source.stem}{PYC_TAIL}"
    if _read_pyc(source, target) is not None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    found, text = source.stat(), source.read_bytes()
    tree = ast.parse(text, filename=str(source))
    rewrite_asserts(tree, text, str(source))
    code = compile(tree, str(source), "exec", dont_inherit=True)
    draft = target.with_suffix(f".{os.getpid()}")
    with draft.open("wb") as file:
        _write_pyc_fp(file, found, code)
    draft.replace(target)
