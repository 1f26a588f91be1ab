"""Who may use the endpoints: everybody on this machine, or those with the user's password or the token."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from streamkit.config.environment import Environment
from streamkit.config.management_properties import ManagementServerProperties
from streamkit.config.report import report_settings
from streamkit.config.verdict import Verdict
from streamkit.errors import ConfigurationError, ConfigurationErrors
from streamkit.management.endpoints import Endpoints
from streamkit.management.server import ManagementServer
from streamkit.management.wrong_logins import MINUTE, MOST, MOST_OF_ADDRESS, WrongLogins
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.application.test_management import application, serving

PASSWORD, TOKEN = "open sesame: ü", "c2VzYW1l-token"
USER = {"spring.security.user.name": "ops", "spring.security.user.password": PASSWORD}
BEARER = {"management.server.token": TOKEN}
BEYOND = {"management.server.address": "0.0.0.0"}
HEALTH = "management.endpoint.health"
BASIC_CHALLENGE, BEARER_CHALLENGE = 'Basic realm="management", charset="UTF-8"', 'Bearer realm="management"'


def bearer(token: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"authorization": f"Bearer {token}"}


def basic(name: str, password: str) -> dict[str, str]:
    """Return the header with a password."""
    request = next(httpx.BasicAuth(name.encode(), password.encode()).auth_flow(httpx.Request("GET", "http://x")))
    return {"authorization": request.headers["authorization"]}


def answers(
    settings: dict[str, str], *requests: tuple[str, str], headers: dict[str, str] | list[tuple[str, str]] | None = None
) -> list[httpx.Response]:
    """Return the answers of the endpoints of an application that does not run."""

    async def ask() -> list[httpx.Response]:
        endpoints = Endpoints(application(None, **settings))
        transport = httpx.ASGITransport(endpoints.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            found = [await client.request(method, f"/actuator{path}") for method, path in requests]
        endpoints.close()
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("settings", "headers", "is_admitted"),
    [
        ({}, {}, True),
        ({}, basic("anybody", "anything"), True),
        (USER, {}, False),
        (USER, basic("ops", PASSWORD), True),
        (USER, basic("ops", "wrong"), False),
        (USER, basic("ops", ""), False),
        (USER, basic("user", PASSWORD), False),
        (USER, bearer("open"), False),
        (USER, {"authorization": "Basic ???"}, False),
        (USER, {"authorization": "Basic"}, False),
        (USER | {"spring.security.user.password": f"{{noop}}{PASSWORD}"}, basic("ops", PASSWORD), True),
        ({"spring.security.user.password": PASSWORD}, basic("user", PASSWORD), True),
        (BEARER, {}, False),
        (BEARER, bearer(TOKEN), True),
        (BEARER, {"authorization": f"bearer  {TOKEN}"}, True),
        (BEARER, bearer(TOKEN + "x"), False),
        (BEARER, {"authorization": "Bearer"}, False),
        (BEARER, basic("user", ""), False),
        (BEARER, basic("", ""), False),
        (USER | BEARER, bearer(TOKEN), True),
        (USER | BEARER, basic("ops", PASSWORD), True),
    ],
)
def test_endpoints_are_for_those_with_the_credentials(
    settings: dict[str, str], headers: dict[str, str], is_admitted: bool
) -> None:
    """Reading, changing, and paths that do not exist; only health answers everybody."""
    asked = (("GET", ""), ("GET", "/metrics"), ("GET", "/nothing"), ("POST", "/metrics"), ("POST", "/bindings/in"))
    index, metrics, nothing, wrong, change, health = answers(settings, *asked, ("GET", "/health"), headers=headers)
    found = [answer.status_code for answer in (index, metrics, nothing, wrong, change)]
    assert found == ([200, 200, 404, 405, 415] if is_admitted else [401] * 5)
    assert health.status_code == 503  # the application does not run
    challenges = [BEARER_CHALLENGE] * ("management.server.token" in settings)
    challenges += [BASIC_CHALLENGE] * ("spring.security.user.password" in settings)
    assert change.headers.get_list("www-authenticate") == ([] if is_admitted else challenges)


def test_two_credentials_are_none() -> None:
    """A proxy might look at one, and the endpoints at the other."""
    twice = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer other")]
    (answer,) = answers(BEARER, ("GET", "/metrics"), headers=twice)
    assert answer.status_code == 401


class Attempts:
    """Requests to the endpoints of one application, in virtual time, from addresses of the test's choice."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._endpoints = Endpoints(application(None, **settings))

    async def status(self, headers: dict[str, str], *, path: str = "/metrics", host: str = "10.0.0.7") -> int:
        """Return the status of the answer to a request."""
        return (await self.ask(headers, path=path, host=host)).status_code

    async def ask(self, headers: dict[str, str], *, path: str = "/metrics", host: str = "10.0.0.7") -> httpx.Response:
        """Return the answer to a request."""
        transport = httpx.ASGITransport(self._endpoints.asgi, client=(host, 123))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await client.get(f"/actuator{path}")

    def close(self) -> None:
        """Stop to count."""
        self._endpoints.close()


def attempting(settings: dict[str, str], scene: Callable[[Attempts], Coroutine[Any, Any, None]]) -> None:
    """Run a scene of attempts in virtual time."""
    attempts = Attempts(settings)
    with VirtualTime() as time:
        time.run(scene(attempts))
    attempts.close()


def test_address_with_many_wrong_logins_waits(caplog: pytest.LogCaptureFixture) -> None:
    """At all endpoints, also with the right password; other addresses and requests without a password go on."""
    caplog.set_level(logging.INFO)
    right, wrong = basic("ops", PASSWORD), basic("ops", "hush-hush")

    async def scene(attempts: Attempts) -> None:
        for path in ["/metrics", "/nothing", "/health", "/bindings", ""] * (MOST_OF_ADDRESS // 5):
            assert await attempts.status(wrong, path=path) == (503 if path == "/health" else 401)
        refused = await attempts.ask(right)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        assert refused.json()["error"] == "too many wrong passwords or tokens from this address: log in again in 60 s"
        assert "details" not in (await attempts.ask(right, path="/health")).json()
        assert await attempts.status({}) == 401
        assert await attempts.status(right, host="10.0.0.8") == 200
        await asyncio.sleep(MINUTE)
        assert await attempts.status(right) == 200
        assert "details" in (await attempts.ask(right, path="/health")).json()

    attempting(USER, scene)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "wrong password or token at the management endpoints, from 10.0.0.7",
        (
            "10 wrong passwords or tokens at the management endpoints from 10.0.0.7 within a minute: logins from there "
            "are refused for the rest of it"
        ),
    ]
    assert "hush" not in caplog.text


def test_addresses_of_one_network_and_of_all_networks_wait() -> None:
    """The /64 network of an IPv6 address is one address; the table of addresses is bounded."""

    async def scene() -> None:
        wrong = WrongLogins("the management endpoints")
        for number in range(MOST_OF_ADDRESS):
            assert not wrong.seconds_to_wait(f"2001:db8::{number}")
            wrong.note(f"2001:db8::{number}")
        assert wrong.seconds_to_wait("2001:db8::ffff") == 60
        for number in range(MOST - MOST_OF_ADDRESS):
            assert not wrong.seconds_to_wait("::ffff:192.168.0.7")
            wrong.note(f"10.0.{number >> 8}.{number & 255}")
        assert wrong.seconds_to_wait("::ffff:192.168.0.7") == 60
        await asyncio.sleep(MINUTE)
        assert not wrong.seconds_to_wait("2001:db8::ffff")
        assert repr(wrong) == "<WrongLogins: 0 of 0 addresses>"

    with VirtualTime() as time:
        time.run(scene())


def test_endpoints_without_a_login_count_nothing() -> None:
    """Somebody may send a password nevertheless."""

    async def scene(attempts: Attempts) -> None:
        for _ in range(MOST_OF_ADDRESS + 1):
            assert await attempts.status(basic("anybody", "anything")) == 200

    attempting({}, scene)


@pytest.mark.parametrize("health", ["always", "never", "when-authorized", None])
@pytest.mark.parametrize("settings", [{}, USER])
def test_health_shows_details_to_those_whom_the_setting_names(settings: dict[str, str], health: str | None) -> None:
    """Unset: to everybody if there is no login, else to those who have logged in."""
    shown = {f"{HEALTH}.show-details": health} if health else {}
    for has_logged_in in (False, True):
        headers = basic("ops", PASSWORD) if has_logged_in else {}
        expected = {
            "always": True,
            "never": False,
            "when-authorized": bool(settings) and has_logged_in,
            None: not settings or has_logged_in,
        }[health]
        whole, ready = answers(settings | shown, ("GET", "/health"), ("GET", "/health/readiness"), headers=headers)
        assert ("details" in whole.json(), "details" in ready.json()) == (expected, expected)
        assert whole.json()["status"] == "DOWN"


def test_health_shows_parts_without_details() -> None:
    """By show-components, as in Spring Boot: here to those who have logged in."""
    settings = {f"{HEALTH}.show-details": "never", f"{HEALTH}.show-components": "when-authorized"}
    with serving(application(None, **settings, **BEARER)) as client:
        assert client.get("/health").json() == {"status": "UP"}
        assert client.get("/health/binders/inmemory").status_code == 404
        client.headers.update(bearer(TOKEN))
        parts = client.get("/health").json()["components"]
        assert parts["bindings"] == {"status": "UP"}
        assert parts["binders"]["components"] == {"inmemory": {"status": "UP"}}
        assert client.get("/health/binders/inmemory").json() == {"status": "UP"}
        assert client.post("/bindings/in", json={"state": "PAUSED"}).status_code == 204


@pytest.mark.parametrize(("roles", "is_shown"), [("ops,admins", True), ("admins", False), ("", True)])
def test_health_shows_details_to_roles(roles: str, is_shown: bool) -> None:
    """One of which the user must have; the token has all."""
    settings = USER | BEARER | {"spring.security.user.roles": "ops", f"{HEALTH}.roles": roles}
    for headers, expected in ((basic("ops", PASSWORD), is_shown), (bearer(TOKEN), True)):
        (answer,) = answers(settings, ("GET", "/health"), headers=headers)
        assert ("details" in answer.json()) == expected


def test_names_of_exposed_endpoints_are_compared_as_in_spring() -> None:
    """Whatever their case and hyphens; nothing included means health."""
    exposure = "management.endpoints.web.exposure"
    for included, excluded, served in (
        ("BINDINGS, met-rics", "", {"bindings", "metrics"}),
        ("*", "Bind-ings,health", {"metrics", "prometheus"}),
        ("", "", {"health"}),
        ("*", "*", set()),
    ):
        (index,) = answers({f"{exposure}.include": included, f"{exposure}.exclude": excluded}, ("GET", ""))
        assert set(index.json()["_links"]) - {"self"} == served


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "mq1.example.org"])
def test_endpoints_beyond_loopback_need_a_login(address: str) -> None:
    """The error names the settings that make one, and comes before anything is started."""
    app = application(None, **{"management.server.address": address})
    with pytest.raises(ConfigurationErrors) as caught, app:
        pass
    for key in ("management.server.token", "spring.security.user.password", "management.server.address=127.0.0.1"):
        assert key in str(caught.value)


def test_server_does_not_listen_beyond_loopback_without_a_login() -> None:
    """Even if only the listening socket shows it, as where `localhost` is another address."""
    server = ManagementServer(application(None), ManagementServerProperties(port=0, address="0.0.0.0"))
    with pytest.raises(ConfigurationError, match="without a login"):
        asyncio.run(server.start())


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "127.9.9.9", "::1"])
def test_endpoints_on_loopback_need_none(address: str) -> None:
    """Nor do endpoints that are not served."""
    assert verdicts({"management.server.port": "0", "management.server.address": address}) == {}
    assert verdicts({"management.server.port": "-1", "management.server.address": "0.0.0.0"}) == {}


def verdicts(settings: dict[str, str]) -> dict[str, tuple[Verdict, str | None]]:
    """Return what a report says of the settings that are not honoured."""
    environment = Environment.load(overrides=settings, variables={}, config_location="optional:/none")
    rows = report_settings(environment, rehearse_settings(environment, ApplicationPlugins()).problems)
    return {row.key: (row.verdict, row.reason) for row in rows if row.verdict is not Verdict.HONOURED}


def test_reports_say_what_the_start_says() -> None:
    """Of an address without a login, a user without a password, and wrong values; none shows a secret."""
    served = {"management.server.port": "0"}
    assert verdicts(served | BEYOND | BEARER) == {}
    assert verdicts(served | BEYOND | USER) == {}
    assert verdicts(served | {f"{HEALTH}.show-details": "when-authorized", f"{HEALTH}.show-components": "never"}) == {}
    ((key, (verdict, reason)),) = verdicts(served | BEYOND).items()
    assert (key, verdict) == ("management.server.address", Verdict.WRONG)
    assert "without a login" in (reason or "")
    ((key, (verdict, reason)),) = verdicts({"spring.security.user.name": "ops"}).items()
    assert (key, verdict) == ("spring.security.user.name", Verdict.NO_EFFECT)
    assert "spring.security.user.password" in (reason or "")
    for wrong in (
        {"spring.security.user.password": "{bcrypt}$2a$10$hunter2"},
        {"management.server.token": "hunter2 hunter2"},
        {"spring.security.user.name": "a:b", "spring.security.user.password": "hunter2"},
    ):
        found = verdicts(wrong)
        assert [verdict for verdict, _ in found.values()] == [Verdict.WRONG]
        assert "hunter2" not in str(found)


def test_no_log_and_no_answer_shows_a_password_or_a_token(caplog: pytest.LogCaptureFixture) -> None:
    """Nor the representation of the settings."""
    caplog.set_level(logging.DEBUG)
    settings = USER | BEARER
    texts = [repr(application(None, **settings).environment.bind("management.server", ManagementServerProperties))]
    for headers in (bearer(TOKEN), basic("ops", "wrong")):
        texts += [answer.text for answer in answers(settings, ("GET", "/health"), ("GET", "/nothing"), headers=headers)]
    assert not [text for text in (*texts, *caplog.messages) if PASSWORD in text or TOKEN in text]
