"""Who may do what: passwords, roles, CSRF tokens, hosts; and where the console listens."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_client import Admin, ClientSettings
from rocket_console.access.passwords import Passwords
from rocket_console.access.roles import Role
from rocket_console.server.console_server import ConsoleError, ConsoleServer, ConsoleSettings
from streamkit.management.wrong_logins import MOST_OF_ADDRESS
from tests.unit.rocket_console.browser import Browser, RunningConsole

ABSENT = "127.0.0.1:9"
"""A name server that nobody asks here: pages that change nothing need no cluster to be refused."""
OPERATOR, VIEWER = "open sesame: ü", "only looking"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with passwords."""
    directory = tmp_path_factory.mktemp("guarded")
    with RunningConsole(ABSENT, directory, operator_password=OPERATOR, viewer_password=VIEWER) as console:
        yield console


def log_in(browser: Browser, password: str, target: str = "/new-group") -> str:
    """Log in; return where that leads, or what the page says."""
    page = browser.page("/login")
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    fields = {"csrf": token[1], "password": password, "user": "ann", "next": target}
    answer = browser.post("/login", data=fields)
    return answer.headers.get("location", answer.text)


def lines(console: RunningConsole) -> list[dict[str, object]]:
    """Return the lines of the audit log."""
    return [json.loads(line) for line in console.audit_log.read_text().splitlines()]


def test_who_has_not_logged_in_is_led_to_the_login_and_back(guarded: RunningConsole) -> None:
    """With the state of the page."""
    with Browser(guarded) as browser:
        answer = browser.get("/new-group?x=1")
        assert answer.headers["location"] == "/login?next=%2Fnew-group%3Fx%3D1"
        assert browser.get("/new-group", headers={"x-fragment": "1"}).status_code == 401
        assert browser.post("/new-group", data={"group": "x"}).status_code == 401
        assert log_in(browser, OPERATOR, "/new-group?x=1") == "/new-group?x=1"
        assert "operator (ann)" in browser.facts("/new-group")


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_the_login_leads_to_no_other_site(guarded: RunningConsole, target: str) -> None:
    """Whatever a link to the login says."""
    with Browser(guarded) as browser:
        assert log_in(browser, OPERATOR, target) == "/"


def test_a_viewer_changes_nothing(guarded: RunningConsole) -> None:
    """The buttons are disabled, and a form that is sent all the same is refused, and recorded."""
    with Browser(guarded) as browser:
        log_in(browser, VIEWER)
        page = browser.page("/new-group")
        assert "disabled>Create the group" in page
        refused = browser.submit("/new-group", group="bakers")
        assert refused.status_code == 403
        assert "group.create is for operators" in refused.text
    last = lines(guarded)[-1]
    assert (last["action"], last["answer"], last["role"], last["user"]) == ("group.create", "refused", "viewer", "ann")


@pytest.mark.parametrize(
    ("address", "action"),
    [
        ("/messages/0A000001/resend", "message.resend"),
        ("/dead-letters/bakers/replay", "dead-letter.replay"),
        ("/dead-letters/bakers/drop", "dead-letter.drop"),
    ],
)
def test_a_viewer_does_nothing_with_messages(guarded: RunningConsole, address: str, action: str) -> None:
    """Whatever the form says."""
    with Browser(guarded) as browser:
        log_in(browser, VIEWER)
        refused = browser.submit(address, to="orders", before="latest")
        assert refused.status_code == 403
        assert f"{action} is for operators" in refused.text


def test_a_form_of_another_page_is_refused(guarded: RunningConsole) -> None:
    """Without a token, with a wrong one, with that of another session, and from another site."""
    with Browser(guarded) as browser, Browser(guarded) as other:
        log_in(browser, OPERATOR)
        log_in(other, OPERATOR)
        token = re.search(r'name="csrf" value="([^"]+)"', other.page("/new-group"))
        assert token is not None
        for wrong in ("", "x", token[1]):
            assert browser.post("/new-group", data={"group": "x", "csrf": wrong}).status_code == 403
        from_elsewhere = {"origin": "https://evil.example"}
        assert browser.post("/new-group", data={"group": "x"}, headers=from_elsewhere).status_code == 403
        assert browser.post("/new-group", content=b"{}").status_code == 415


def test_a_program_sends_the_password_as_a_token(guarded: RunningConsole) -> None:
    """It needs no CSRF token, since no browser adds this header."""
    with Browser(guarded, headers={"authorization": f"Bearer {VIEWER}"}) as program:
        assert program.get("/new-group").status_code == 200
        assert program.post("/new-group", data={"group": "x"}).status_code == 403
    with Browser(guarded, headers={"authorization": "Bearer wrong"}) as program:
        assert program.get("/new-group").status_code == 401


def test_a_session_ends_with_the_logout(guarded: RunningConsole) -> None:
    """Its cookie is worth nothing afterwards."""
    with Browser(guarded) as browser:
        log_in(browser, OPERATOR)
        cookies = dict(browser.cookies)
        browser.submit("/logout")
        browser.cookies.update(cookies)
        assert browser.get("/new-group").status_code == 303


def test_wrong_passwords_are_bounded_and_recorded(tmp_path: Path) -> None:
    """After some, the right one is refused for a while, too."""
    with RunningConsole(ABSENT, tmp_path, operator_password=OPERATOR) as console, Browser(console) as browser:
        for _ in range(MOST_OF_ADDRESS):
            assert "The password is wrong." in log_in(browser, "wrong")
        assert "too many wrong passwords" in log_in(browser, OPERATOR)
        assert {line["answer"] for line in lines(console)} == {"refused"}


def test_nothing_is_changed_that_cannot_be_recorded(tmp_path: Path) -> None:
    """The audit log is checked before the change."""
    with RunningConsole(ABSENT, tmp_path) as console, Browser(console) as browser:
        console.audit_log.mkdir()
        refused = browser.submit("/new-group", group="bakers")
        assert refused.status_code == 503
        assert "Nothing was changed: the audit log" in refused.text


def test_the_console_is_not_reached_by_unknown_names(guarded: RunningConsole) -> None:
    """A page of another site could let its name mean this machine."""
    with Browser(guarded) as browser:
        refused = browser.get("/login", headers={"host": "evil.example"})
        assert refused.status_code == 400
        assert "--allowed-host" in refused.text


def test_a_cookie_is_kept_from_scripts_and_other_sites(guarded: RunningConsole) -> None:
    """And that of one port from the console at another."""
    with Browser(guarded) as browser:
        cookie = browser.get("/login").headers["set-cookie"]
        assert cookie.startswith(f"streamkit_console_{browser.base_url.port}=")
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie


def test_colours_are_kept_in_a_cookie(guarded: RunningConsole) -> None:
    """Without scripts."""
    with Browser(guarded) as browser:
        answer = browser.post("/theme", data={"theme": "dark", "next": "/login"})
        assert answer.headers["location"] == "/login"
        assert '<html lang="en" data-theme="dark">' in browser.page("/login")


def test_the_password_says_the_role() -> None:
    """Both roles cannot have the same one."""
    with pytest.raises(ValueError, match="same password"):
        Passwords(operator="x", viewer="x")

    async def roles() -> list[Role | None]:
        passwords = Passwords(operator="o", viewer="v")
        return [passwords.role_of(each, "127.0.0.1") for each in ("o", "v", "", "x")]

    assert asyncio.run(roles()) == [Role.OPERATOR, Role.VIEWER, None, None]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"address": "0.0.0.0"}, "other machines could use the console on 0.0.0.0 without a login"),
        ({"address": "::", "is_read_only": True}, "without a login"),
        ({"is_read_only": True, "operator_password": "x"}, "needs the password of viewers"),
        ({"address": "no.such.host.invalid"}, "cannot listen on no.such.host.invalid"),
    ],
)
def test_a_console_that_others_could_use_is_not_started(
    tmp_path: Path, settings: dict[str, object], reason: str
) -> None:
    """The text says what to set."""

    async def start() -> None:
        admin = Admin(ClientSettings(name_servers=ABSENT))
        await ConsoleServer(admin, ConsoleSettings(audit_log=tmp_path / "audit.log", **settings)).start()  # type: ignore[arg-type]

    with pytest.raises(ConsoleError, match=re.escape(reason)):
        asyncio.run(start())
