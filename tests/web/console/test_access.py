"""Who may look and act; and that it is they who press a button."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxengine.errors import BoxError
from boxengine.web.console.access import Access, Role, Visit, Who
from tests.web.console.asgi import Client
from tests.web.console.conftest import OPERATE, READ, Console

ORDERS = "/boxes/order-outbox-item"
API = "/api/boxes/order-outbox-item"
PAGES = (
    "/",
    ORDERS,
    f"{ORDERS}/items",
    f"{ORDERS}/items/1",
    f"{ORDERS}/act?action=retry",
    "/workers",
    "/trail",
    "/jobs/x",
)
ANSWERS = (
    "/api/overview",
    "/api/boxes",
    API,
    f"{API}/items",
    f"{API}/items/1",
    "/api/workers",
    "/api/trail",
    "/events",
)
CHANGES = (
    f"{API}/pause",
    f"{API}/resume",
    f"{API}/forget",
    f"{API}/actions",
    f"{API}/items/1/retry",
    "/api/jobs/x/cancel",
)


OPEN = {"/login", "/logout", "/health"}
"""What anybody may ask for: that they come in, and whether the process answers."""
PLACES = {"{box}": "order-outbox-item", "{item}": "1", "{action}": "retry", "{job}": "x", "{job_id}": "report-job:1"}


def every_route(console: Console) -> Iterator[tuple[str, str]]:
    """Methods and paths of all that the application answers, so that none is forgotten here."""
    for route in console.app.routes:
        if isinstance(route, Route) and route.path not in OPEN:
            path = route.path
            for name, value in PLACES.items():
                path = path.replace(name, value)
            yield from ((method, path) for method in (route.methods or set()) - {"HEAD"})


def test_there_is_no_route_that_asks_for_no_token(console: Console) -> None:
    stranger = console.client(None)
    answers = {(method, path): stranger.call(method, path) for method, path in every_route(console)}
    assert len(answers) > 40
    for (method, path), answer in answers.items():
        if path.startswith(("/api/", "/events", "/status")):
            assert answer.status == 401, (method, path)
        else:
            assert (answer.status, answer.headers["location"][:6]) == (303, "/login"), (method, path)


def test_there_is_no_change_that_a_foreign_page_could_bring_about(console: Console) -> None:
    browser = console.browser()
    changes = [(method, path) for method, path in every_route(console) if method != "GET"]
    assert len(changes) > 12
    for method, path in changes:
        assert browser.call(method, path).status == 403, (method, path)
        assert browser.call(method, path, headers={"origin": "https://evil.example"}).status == 403, (method, path)
        assert browser.call(method, path, headers={"sec-fetch-site": "cross-site"}).status == 403, (method, path)
    assert console.servers.pauses.polling_enabled([console.boxes.box("order_outbox_item")]) == {}


def test_without_a_token_nothing_is_shown_and_nothing_is_done(console: Console) -> None:
    stranger = console.client(None)
    for path in ANSWERS:
        assert stranger.get(path).status == 401, path
    for path in CHANGES:
        assert stranger.post(path, {}).status == 401, path
    for path in PAGES:
        answer = stranger.get(path)
        assert (answer.status, answer.headers["location"][:6]) == (303, "/login"), path
    assert console.servers.pauses.polling_enabled([console.boxes.box("order_outbox_item")]) == {}


def test_a_wrong_token_is_no_token(console: Console) -> None:
    assert console.client("nearly-the-token").get("/api/overview").status == 401
    assert console.client(None).sign_in("nearly-the-token").status == 401


def test_after_too_many_wrong_tokens_none_of_that_address_is_looked_at_for_a_while() -> None:
    now = [1000.0]
    access = Access(authentication="token", operate_token="right", clock=lambda: now[0])
    assert access.role_of("right") is Role.OPERATE
    for number in range(20):
        access.role_of(f"wrong {number}")
    assert access.role_of("right") is None
    assert access.role_of("right", "10.0.0.7") is Role.OPERATE, "a stranger does not lock out others"
    now[0] += 61
    assert access.role_of("right") is Role.OPERATE


def test_who_guesses_from_many_addresses_of_one_ipv6_network_is_one_sender() -> None:
    access = Access(authentication="token", operate_token="right", clock=lambda: 1000.0)
    for number in range(20):
        access.role_of(f"wrong {number}", f"2001:db8::{number:x}")
    assert access.role_of("right", "2001:db8::ffff:1") is None
    for other in ("2001:db8:0:1::1", "::ffff:10.0.0.7", "10.0.0.7", "fe80::1%eth0", "unix"):
        assert access.role_of("right", other) is Role.OPERATE, other
    for number in range(20):
        access.role_of(f"wrong {number}", f"::ffff:10.0.0.{number}")
    assert access.role_of("right", "::ffff:10.0.0.3") is Role.OPERATE, "an address of IPv4 stands for itself alone"


def test_a_program_that_keeps_sending_one_old_token_locks_nobody_out() -> None:
    now = [1000.0]
    access = Access(authentication="token", operate_token="right", clock=lambda: now[0])
    for _ in range(1000):
        now[0] += 0.1
        assert access.role_of("old", "10.0.0.7") is None
    assert access.role_of("right", "10.0.0.7") is Role.OPERATE


def test_between_guesses_an_old_token_buys_no_further_ones() -> None:
    now = [1000.0]
    access = Access(authentication="token", operate_token="right", clock=lambda: now[0])
    for number in range(19):
        access.role_of("old")
        access.role_of(f"wrong {number}")
        now[0] += 2
    assert access.role_of("right") is None
    now[0] += 23
    assert access.role_of("right") is Role.OPERATE, "the first one was sent more than a minute ago"


def test_who_may_read_changes_nothing(console: Console) -> None:
    reader = console.client(READ)
    assert reader.get("/api/overview").status == 200
    action = console.app.state.site.errands.start(
        who="Zoë", action="retry", box=console.boxes.box("order_outbox_item"), what="", run=lambda _: "done"
    )
    for path in CHANGES:
        assert reader.post(path.replace("/x/", f"/{action.id}/"), {}).status == 403, path
    browser = console.browser(READ)
    assert browser.get(ORDERS).status == 200
    assert "Pause" not in browser.get(ORDERS).text
    assert browser.get(f"{ORDERS}/polling?decide=pause").status == 403
    pressed = browser.press("/", f"{ORDERS}/polling", decide="pause")
    assert pressed.status == 403
    assert console.servers.pauses.polling_enabled([console.boxes.box("order_outbox_item")]) == {}


def test_a_console_that_is_read_only_is_so_for_everybody(console: Console) -> None:
    client = console.again(read_only=True).client()
    assert client.get("/api/overview").status == 200
    assert client.post(f"{API}/pause").status == 403


def test_basic_authentication_takes_any_name_with_a_token(console: Console) -> None:
    client = console.again(authentication="basic").client(None)
    assert client.get("/").headers["www-authenticate"].startswith("Basic")
    client.headers["authorization"] = "Basic " + base64.b64encode(f"Zoë:{OPERATE}".encode()).decode()
    assert client.get(ORDERS).status == 200
    client.press(f"{ORDERS}/polling?decide=pause", f"{ORDERS}/polling", decide="pause")
    assert client.get("/api/trail").json[0]["who"] == "Zoë"


@pytest.mark.parametrize("answer", ["Zoë", Who("Zoë", Role.OPERATE)])
def test_the_applications_own_authentication_decides(console: Console, answer: Any) -> None:
    async def ask(request: Request) -> Any:
        return answer if request.headers.get("x-user") else None

    client = console.again(authenticate=ask).client(None)
    assert client.get("/api/overview").status == 401
    assert client.get("/").status == 401
    client.headers["x-user"] = "1"
    assert client.get("/").status == 200


@pytest.mark.parametrize("nobody", [None, "", " ", False])
def test_an_application_whose_name_for_nobody_is_empty_lets_nobody_in(console: Console, nobody: Any) -> None:
    client = console.again(authenticate=lambda _request: nobody).client(None)
    answers = [client.get("/").status, client.get("/events").status, client.post(f"{API}/pause", {}).status]
    assert answers == [401, 401, 401]
    assert console.servers.pauses.polling_enabled([console.boxes.box("order_outbox_item")]) == {}


def test_a_program_that_the_application_knows_by_a_bearers_token_needs_no_form_token(console: Console) -> None:
    def who(request: Request) -> str | None:
        known = request.headers.get("authorization") == "Bearer of-the-application" or request.headers.get("x-user")
        return "Zoë" if known else None

    client = console.again(authenticate=who).client("of-the-application")
    assert client.post(f"{API}/pause", {}).status == 200
    assert console.servers.pauses.polling_enabled([console.boxes.box("order_outbox_item")]) == {
        "order_outbox_item": False
    }
    client.headers["authorization"] = "Bearer of-somebody-else"
    assert client.post(f"{API}/resume", {}).status == 401
    del client.headers["authorization"]
    client.headers["x-user"] = "1"
    assert client.post(f"{API}/resume", {}).status == 403, "as of a browser that sends its credentials by itself"


def test_where_nobody_could_sign_in_the_application_is_not_made() -> None:
    with pytest.raises(BoxError, match=r"console\.operate_token"):
        Access(authentication="token")
    assert Access(authentication="none").kind == "none"


def asked(cookie: str = "") -> Request:
    headers = [(b"cookie", cookie.encode())]
    return Request({"type": "http", "method": "GET", "scheme": "http", "path": "/", "headers": headers})


@pytest.mark.parametrize("secret", [None, "s3cret"])
def test_a_session_does_not_outlive_the_tokens(secret: str | None) -> None:
    def access(operate: str | None, read: str | None) -> Access:
        return Access(authentication="token", operate_token=operate, read_token=read, secret=secret)

    def who(access: Access) -> Who | None:
        return asyncio.run(access.visit(asked(answer.headers["set-cookie"].partition(";")[0]))).who

    answer = Response()
    assert access("a", "b").sign_in(answer, asked(), token="a", name="Zoë")
    assert who(access("a", "b")) == Who("Zoë", Role.OPERATE), "all processes with one configuration share it"
    for operate, read in [("new", "b"), ("a", "new"), ("a", None), (None, "b"), (None, "a"), ("b", "a"), ("ab", None)]:
        assert who(access(operate, read)) is None, (operate, read)


def test_whoever_tries_tokens_on_a_cookie_works_long_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []

    def slow(_digest: str, _password: bytes, _salt: bytes, count: int) -> bytes:
        rounds.append(count)
        return b"the key"

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", slow)
    answer, access = Response(), Access(authentication="token", operate_token="a token that no other test has")
    access.remember(answer, asked(), asyncio.run(access.visit(asked())))
    body, _, signature = answer.headers["set-cookie"].partition(";")[0].partition("=")[2].strip('"').rpartition(".")
    assert signature == hmac.new(b"the key", f"session\0{body}".encode(), hashlib.sha256).hexdigest()
    assert [count >= 100_000 for count in rounds] == [True]


def test_without_secret_and_tokens_each_process_has_a_key_of_its_own() -> None:
    one, other = (Access(authentication="none").csrf_token(Visit(None, "session")) for _ in range(2))
    assert one != other


def test_no_script_reads_the_cookie_and_no_other_site_sends_it_along_with_a_form(console: Console) -> None:
    answer = console.client(None).sign_in(OPERATE)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_consoles_behind_two_ports_of_one_host_leave_each_other_their_sessions(console: Console) -> None:
    kept: dict[str, str] = {}
    one, other = (Client(console.app, cookies=kept, host=f"localhost:{port}") for port in (5580, 5581))
    for client, token in ((one, OPERATE), (other, READ)):
        assert client.sign_in(token).status == 303
    assert ["read only" in client.get("/").text for client in (one, other)] == [False, True]
    one.press("/", "/logout")
    assert [client.get("/").status for client in (one, other)] == [303, 200]


def test_a_cookie_that_somebody_made_up_proves_nothing(console: Console) -> None:
    browser = console.browser()
    name, value = next(iter(browser.cookies.items()))
    body, _, signature = value.rpartition(".")
    content = base64.urlsafe_b64decode(body).replace(b'"role": 2', b'"role": 1')
    for forged in ("", ".", "x.y", f"{base64.urlsafe_b64encode(content).decode()}.{signature}", f"{body}.", "ü.ü"):
        browser.cookies[name] = forged.encode().decode("latin-1")
        assert browser.get("/api/overview").status == 401, forged


def test_a_token_that_no_text_can_hold_is_a_wrong_one(console: Console) -> None:
    stranger, browser = console.client(None), console.browser()
    strange = {"token": "\ud800", "csrf": stranger.csrf("/login")}
    assert stranger.post("/login", strange).status == 401
    assert stranger.post("/login", {"csrf": "\ud800"}).status == 403
    assert browser.post(f"{API}/pause", {"csrf": "\ud800"}).status == 403
    assert Access(authentication="token", operate_token="\udcff", secret="\udcff").role_of("\udcff") is Role.OPERATE


def test_an_origin_that_is_no_address_is_a_foreign_one(console: Console) -> None:
    browser = console.browser()
    csrf = browser.csrf(f"{ORDERS}/polling?decide=pause")
    for origin in ("http://[", "http://a]b", "http://[x]", "null", ""):
        assert browser.post(f"{API}/pause", {"csrf": csrf}, origin=origin).status == 403, origin


@pytest.mark.parametrize("root", ["", "/boxengine"])
def test_whoever_sends_a_form_after_the_session_has_ended_signs_in_and_comes_back_to_the_form(
    console: Console, root: str
) -> None:
    browser = console.client(None, root_path=root)
    for target in (f"{ORDERS}/act", f"{ORDERS}/polling", f"{ORDERS}/count", "/jobs/x/cancel"):
        form = f"{ORDERS}/act?action=retry&status=failed"
        asked = browser.post(target, {"action": "retry"}, form=True, referer=f"http://localhost{root}{form}")
        assert asked.status == 303
        assert parse_qs(urlsplit(asked.headers["location"]).query)["next"] == [form]
    for odd in ("http://[", "", "http://localhost"):
        assert browser.post(f"{ORDERS}/act", {}, form=True, referer=odd).headers["location"] == f"{root}/login"


def test_an_open_redirect_after_signing_in_is_not_followed(console: Console) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "evil", "/login"):
        browser = console.client(None)
        assert browser.press("/login", "/login", token=OPERATE, next=target).headers["location"] == "/"
    browser = console.client(None)
    assert browser.press("/login", "/login", token=OPERATE, next=f"{ORDERS}/items?key=a").headers["location"] == (
        f"{ORDERS}/items?key=a"
    )


# ── meant, or made to look so ────────────────────────────────────────────────────────────────────────


def test_a_browser_changes_nothing_without_the_token_of_its_own_pages(console: Console) -> None:
    browser = console.browser()
    assert browser.post(f"{API}/pause", {}).status == 403
    assert browser.post(f"{ORDERS}/polling", {"decide": "pause"}, form=True).status == 403
    assert browser.post("/logout", {}, form=True).status == 403


def test_a_token_stolen_from_another_browser_is_worth_nothing(console: Console) -> None:
    stolen = console.browser().csrf(f"{ORDERS}/polling?decide=pause")
    victim = console.browser()
    assert victim.post(f"{ORDERS}/polling", {"decide": "pause", "csrf": stolen}, form=True).status == 403
    own = victim.csrf(f"{ORDERS}/polling?decide=pause")
    assert victim.post(f"{ORDERS}/polling", {"decide": "pause", "csrf": own}, form=True).status == 303


def test_even_with_the_right_token_a_foreign_origin_is_refused(console: Console) -> None:
    browser = console.browser()
    sent = {"decide": "pause", "csrf": browser.csrf(f"{ORDERS}/polling?decide=pause")}
    foreign: list[dict[str, str]] = [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ]
    for headers in foreign:
        assert browser.post(f"{ORDERS}/polling", sent, form=True, **headers).status == 403, headers
    assert browser.post(f"{ORDERS}/polling", sent, form=True, origin="http://localhost").status == 303


def test_behind_a_proxy_that_asks_under_another_name_the_consoles_own_pages_still_act(console: Console) -> None:
    browser = console.client(None, host="127.0.0.1:5580")
    browser.headers |= {"origin": "https://console.example", "sec-fetch-site": "same-origin"}
    assert browser.sign_in(OPERATE).status == 303
    assert browser.press(f"{ORDERS}/polling?decide=pause", f"{ORDERS}/polling", decide="pause").status == 303
    assert browser.post(f"{ORDERS}/polling", {"decide": "pause"}, form=True).status == 403


def test_where_anybody_may_operate_another_site_still_may_not(console: Console) -> None:
    browser = console.again(authentication="none").client(None)
    assert browser.get("/").status == 200
    assert browser.post(f"{API}/pause", {}).status == 403
    assert browser.press(f"{ORDERS}/polling?decide=pause", f"{ORDERS}/polling", decide="pause").status == 303


def test_where_anybody_may_operate_a_program_may_too(console: Console) -> None:
    program = console.again(authentication="none").client("any")
    assert program.post(f"{API}/pause", {}).status == 200
    assert program.post(f"{API}/resume", {}, origin="https://evil.example").status == 200, (
        "no page can send this header"
    )


def test_a_name_that_somebody_else_lets_lead_here_is_not_answered_to(console: Console) -> None:
    guarded = console.again(authentication="none", hosts=["localhost", "127.0.0.1"])
    assert guarded.client(None, host="rebound.evil.example").get("/api/overview").status == 421
    assert guarded.client(None, host="localhost:5580").get("/api/overview").status == 200
