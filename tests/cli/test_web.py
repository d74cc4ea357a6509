"""``boxengine web`` as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.eventually import eventually

TOKEN = "a-token-of-the-configuration"


@contextmanager
def serving(project: Project, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """The process, its address, and what it has written; killed at the end if it still runs."""
    log = project.folder / "web.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "boxengine", "web", "--port", "0", *options]
        process = subprocess.Popen(command, cwd=project.folder, stderr=file, env={**os.environ, "NO_PROXY": "*"})
    try:
        url = eventually(lambda: "".join(re.findall(r"the console is at (http://\S+)/", log.read_text())))
        eventually(lambda: answers(url))
        yield process, url, log.read_text()
    finally:
        process.kill()
        process.wait()


def answers(url: str, path: str = "/login", token: str | None = None, **headers: str) -> int:
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url + path, headers=headers)
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def is_served(url: str) -> bool:
    return answers(url) == 200


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    return project


def test_it_makes_up_a_token_and_prints_it_serves_and_stops_at_a_signal(project: Project) -> None:
    with serving(project) as (process, url, told):
        assert url.startswith("http://127.0.0.1:")
        token = re.search(r"token: (\S{20,})", told)
        assert token
        eventually(lambda: answers(url) == 200)
        assert answers(url, "/api/overview") == 401
        assert answers(url, "/api/overview", token[1]) == 200
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        assert process.returncode == 0


def test_a_token_of_the_configuration_is_not_printed(project: Project) -> None:
    project.config.write_text(project.config.read_text() + f"console: {{operate_token: {TOKEN}}}\n")
    with serving(project, "--read-only") as (_, url, told):
        assert TOKEN not in told
        assert "token:" not in told
        eventually(lambda: answers(url, "/api/overview", TOKEN) == 200)


def test_behind_a_proxy_that_strips_a_prefix_links_and_cookies_have_it(project: Project) -> None:
    with serving(project, "--root-path", "/tools/boxengine/") as (_, url, _told):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url + "/login", timeout=10) as answer:
            page, cookie = answer.read().decode(), answer.headers["set-cookie"]
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
        assert links
        assert [link for link in links if not link.startswith("/tools/boxengine/")] == []
        assert "path=/tools/boxengine;" in f"{cookie.lower()};"


@pytest.mark.parametrize("wrong", ["boxengine", "/a b", "/a;b", "//evil", "/../x", "/ü"])
def test_a_prefix_that_is_no_path_is_refused(project: Project, wrong: str) -> None:
    project.call("web", "--root-path", wrong, expect=2)
    assert "--root-path" in project.errors


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_on_all_addresses_it_answers_on_ipv4_and_ipv6(project: Project) -> None:
    with serving(project, "--host", "0.0.0.0") as (_, url, _told):
        assert url.startswith("http://0.0.0.0:")
        port = url.rpartition(":")[2]
        for here in (f"http://127.0.0.1:{port}", f"http://[::1]:{port}"):
            eventually(partial(is_served, here))
        project.call("web", "--host", "0.0.0.0", "--port", port, expect=2)
        assert project.errors.startswith(f"boxengine: --port: cannot listen on 0.0.0.0:{port}")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("here", ["127.0.0.1", "[::1]"])
def test_on_all_addresses_it_believes_a_proxy_of_ipv4_and_of_ipv6(project: Project, here: str) -> None:
    project.config.write_text(project.config.read_text() + f"console: {{operate_token: {TOKEN}}}\n")
    with serving(project, "--host", "0.0.0.0") as (_, shown, _told):
        url = f"http://{here}:{shown.rpartition(':')[2]}"
        for number in range(21):
            guess = answers(url, "/api/overview", f"guess {number}", **{"X-Forwarded-For": "192.0.2.1"})
            assert guess == 401
        assert answers(url, "/api/overview", TOKEN, **{"X-Forwarded-For": "192.0.2.1"}) == 401
        assert answers(url, "/api/overview", TOKEN, **{"X-Forwarded-For": "192.0.2.2"}) == 200
        login = urllib.request.Request(url + "/login", headers={"X-Forwarded-Proto": "https"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(login, timeout=10) as answer:
            assert "; secure" in answer.headers["set-cookie"].lower()


def test_a_port_that_is_taken_is_said_in_a_line(project: Project) -> None:
    with serving(project) as (_, url, _told):
        port = url.rpartition(":")[2]
        project.call("web", "--port", port, expect=2)
        assert f"--port: cannot listen on 127.0.0.1:{port}" in project.errors
