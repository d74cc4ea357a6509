"""Where a password comes from: one place for each server, and one that holds a password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boxengine.settings import check_for_worker, explain
from boxengine.settings.passwords import read
from tests.unit.settings.folder import Folder

BEHIND = "sentinels: ['a:1'], master_name: m"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            "database: {url: 'postgresql://me:hunter2@h/n', password_file: f}",
            "database.password_file",
            "contradicts the password in database.url; take that one out",
        ),
        (
            "database: {url: 'postgresql://me@h/n?passfile=x', password_from: os.getcwd}",
            "database.password_from",
            "contradicts the password in database.url; take that one out",
        ),
        (
            "database: {url: 'mysql://me@h/n', password_file: f, password_from: os.getcwd}",
            "database.password_from",
            "contradicts password_file; expected one of the two",
        ),
        (
            "redis: {url: 'redis://:hunter2@h/0', password_file: f}",
            "redis.password_file",
            "contradicts the password in redis.url; take that one out",
        ),
        (
            "redis: {url: 'redis://h/0?password=hunter2', password_file: f}",
            "redis.password_file",
            "contradicts the password in redis.url; take that one out",
        ),
        (
            f"redis: {{{BEHIND}, password: hunter2, password_from: os.getcwd}}",
            "redis.password_from",
            "contradicts the password in redis.password; take that one out",
        ),
        (
            "redis: {password_from: os.no_such}",
            "redis.password_from",
            "cannot import 'os.no_such': module 'os' has no 'no_such'",
        ),
        (
            "database: {password_from: os.path.basename}",
            "database.password_from",
            "os.path.basename is called as (), but takes (p): missing a required argument: 'p'",
        ),
    ],
)
def test_a_password_comes_from_one_place_that_can_be_asked(folder: Folder, text: str, path: str, message: str) -> None:
    assert folder.problems(text) == {path: message}


@pytest.mark.parametrize(
    "text",
    [
        "database: {url: 'postgresql://me@h/n', replica_url: 'postgresql://me:other@h/n', password_file: f}",
        "database: {url: 'mysql://me:@h/n', password_from: os.getcwd}",
        "database: {password_file: f}",
        "redis: {url: 'redis://me@h/0', password_file: f}",
        f"redis: {{{BEHIND}, username: me, password_file: f, sentinel_password: other}}",
    ],
)
def test_an_address_without_a_password_goes_with_either(folder: Folder, text: str) -> None:
    assert folder.problems(text) == {}


def test_a_worker_does_not_start_without_the_password_that_a_file_should_hold(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.path)
    (folder.path / "empty").write_text("\n")
    settings = folder.settings("database: {password_file: no_such}\nredis: {password_file: empty}")
    assert {(finding.path, finding.message) for finding in check_for_worker(settings)} == {
        (("database", "password_file"), "cannot read no_such: No such file or directory"),
        (("redis", "password_file"), "empty is empty; expected the password"),
    }


@pytest.mark.parametrize(
    ("content", "password"), [(b" a b ", " a b "), ("grün\n".encode(), "grün"), (b"x\r\n", "x"), (b"\na", "\na")]
)
def test_only_the_end_of_the_line_does_not_belong_to_the_password(
    tmp_path: Path, content: bytes, password: str
) -> None:
    (tmp_path / "password").write_bytes(content)
    assert read(str(tmp_path / "password")) == password


def test_what_is_no_text_is_said_without_being_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(ValueError, match=f"^{file} is not text in UTF-8$") as caught:
        read(str(file))
    assert caught.value.__cause__ is None


def test_the_places_are_no_secrets(folder: Folder) -> None:
    folder.write("database: {password_file: /run/db}\nredis: {password_from: os.getcwd}")
    shown = {row.path: row.value for row in explain(folder.load())}
    assert shown["database.password_file"] == "/run/db"
    assert shown["redis.password_from"] == f"{os.__name__}.getcwd"
