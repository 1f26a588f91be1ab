"""Hostile requests to the management endpoints over real sockets: cross-site pages, floods, slow clients."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.application import StreamApplication
from streamkit.config.management_properties import ManagementServerProperties
from streamkit.errors import ConfigurationErrors
from streamkit.management.connection import ConnectionLimits
from streamkit.management.endpoints import MAX_BODY, Endpoints
from streamkit.management.server import ManagementServer
from tests.traced_memory import memory_below
from tests.unit.application.test_management import application, serving

STOP = {"state": "STOPPED"}
JSON = {"content-type": "application/json"}
PATIENCE = 60
"""Seconds after which a test that waits for bytes has failed."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of endpoints that no request of these tests may change."""
    with serving(application()) as client:
        yield client


def state(client: httpx.Client) -> str:
    reported: str = client.get("/bindings/in").json()["state"]
    return reported


@contextmanager
def connected(client: httpx.Client, request: bytes = b"") -> Iterator[socket.socket]:
    """Return a connection to the endpoints on which something was sent."""
    address = (client.base_url.host, client.base_url.port or 0)
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        connection.sendall(request)
        yield connection


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status, and all that follows until the server closes."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass  # the server did not read all that was sent
    return (int(received.split(b" ", 2)[1]), received) if received else (0, b"")


def post(headers: str, body: bytes = b"") -> bytes:
    """Return a POST that stops the binding, with further headers."""
    return f"POST /actuator/bindings/in HTTP/1.1\r\n{headers}\r\n".encode() + body


# Other sites


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "203.0.113.7", "0.0.0.0",
     "[2001:db8::1]", "a b", "localhost:8081@evil.example", "", "[::1", "localhost:port"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/health", "/bindings", ""])
def test_request_with_a_foreign_host_is_refused(client: httpx.Client, host: str, path: str) -> None:
    """Against DNS rebinding: it reads and changes nothing."""
    refused = client.get(path, headers={"host": host})
    assert refused.status_code == 400
    assert "management.server.allowed-hosts" in refused.json()["error"]
    assert client.post("/bindings/in", json=STOP, headers={"host": host}).status_code == 400
    assert state(client) == "running"


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "shop.localhost", "127.0.0.1", "127.8.9.1:80", "[::1]:8081", "localhost."],
)
def test_loopback_names_are_served(client: httpx.Client, host: str) -> None:
    """Whatever name of loopback a client used."""
    assert client.get("/health", headers={"host": host}).status_code == 200


def test_request_needs_exactly_one_host(client: httpx.Client) -> None:
    """HTTP/1.0 has none; two are ambiguous."""
    for request in (
        b"GET /actuator/health HTTP/1.0\r\n\r\n",
        b"GET /actuator/health HTTP/1.1\r\n\r\n",
        b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ):
        with connected(client, request) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert answer(connection)[0] == 400


def test_local_address_of_the_connection_is_served() -> None:
    """Kubernetes' probes use the pod's address. A name given by the server may be the client's and is refused."""

    async def main() -> None:
        endpoints = Endpoints(application(None, **{"management.server.port": "-1"}))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(endpoints.asgi)) as client:
            for host, code in (("10.1.2.3", 200), ("[2001:db8::1]", 200), ("pod", 400), ("0.0.0.0", 400)):
                answer = await client.get(f"http://{host}/actuator/health/liveness")
                assert answer.status_code == code, host
            other = await client.get("http://10.1.2.3/actuator/health/liveness", headers={"host": "10.1.2.4"})
            assert other.status_code == 400
        endpoints.close()

    asyncio.run(main())


def test_allowed_hosts_are_a_setting() -> None:
    """Names, subdomains, or any; in any case, with or without a port."""
    names = {"management.server.allowed-hosts": "ops.example.com, *.shop.example,::2"}
    with serving(application(None, **names)) as client:
        for host in ("OPS.example.com:80", "a.shop.example", "a.b.shop.example", "[::2]"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        for host in ("shop.example", "x.ops.example.com", "notshop.example"):
            assert client.get("/health", headers={"host": host}).status_code == 400
    with serving(application(None, **{"management.server.allowed-hosts": "*"})) as client:
        assert client.get("/health", headers={"host": "any.example"}).status_code == 200


@pytest.mark.parametrize("wrong", ["http://ops.example", "ops.example:80", "ops.*", "a b", "**"])
def test_invalid_allowed_host_is_reported(wrong: str) -> None:
    """At the start, with the setting's origin and what to write instead."""
    with (
        pytest.raises(ConfigurationErrors, match=r"allowed-hosts=.*: .*without scheme and port"),
        application(None, **{"management.server.allowed-hosts": wrong}),
    ):
        pass


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:1"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "anything"},
        {"sec-fetch-site": "cross-site", "origin": "{own}"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_cross_site_request_changes_nothing(client: httpx.Client, method: str, headers: dict[str, str]) -> None:
    """By its Origin header; the answer is 403 with the reason."""
    own = f"http://{client.base_url.netloc.decode()}"
    sent = {name: value.format(own=own) for name, value in headers.items()}
    refused = client.request(method, "/bindings/in", json=STOP, headers=sent)
    assert refused.status_code == 403
    assert "another site" in refused.json()["error"]
    assert state(client) == "running"


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "{own}"}, {"sec-fetch-site": "same-origin", "origin": "https://proxy.example"},
     {"sec-fetch-site": "none"}],
)  # fmt: skip
def test_programs_and_same_origin_pages_may_change_states(headers: dict[str, str]) -> None:
    """curl sends no Origin; a browser sends the endpoints' own."""
    with serving(application()) as client:
        own = f"http://{client.base_url.netloc.decode()}"
        sent = {name: value.format(own=own) for name, value in headers.items()}
        assert client.post("/bindings/in", json=STOP, headers=sent).status_code == 204
        assert state(client) == "stopped"


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "text/plain", "text/plain;application/json", "multipart/form-data", "",
     "application/json, text/plain", "application/jsonp"],
)  # fmt: skip
def test_form_content_types_are_refused(client: httpx.Client, content_type: str) -> None:
    """Browsers send a preflight request for JSON, which is never allowed."""
    refused = client.post("/bindings/in", content=json.dumps(STOP), headers={"content-type": content_type})
    assert refused.status_code == 415
    assert client.options("/bindings/in", headers={"origin": "http://evil.example"}).status_code >= 400
    assert state(client) == "running"


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/vnd.spring-boot.actuator.v3+json",
     "application/vnd.spring-boot.actuator.v2+json"],
)  # fmt: skip
def test_json_content_types_are_accepted(content_type: str) -> None:
    """The same as Spring's endpoints accept."""
    with serving(application()) as client:
        sent = client.post("/bindings/in", content=json.dumps(STOP), headers={"content-type": content_type})
        assert sent.status_code == 204


# What cannot be understood


odd_text = st.text(st.characters(codec="utf-8"), max_size=200)


bodies = st.one_of(
    st.binary(max_size=300),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | odd_text,
        lambda inner: st.lists(inner) | st.dictionaries(odd_text, inner),
    ).map(lambda value: json.dumps({"state": value}).encode()),
    st.sampled_from(
        [
            b"[" * (MAX_BODY - 1),
            b'{"state":' * (MAX_BODY // 9),
            b'{"a":' + b"[" * 9000,
            b'{"state": "\\ud800"}',
            b"9" * MAX_BODY,
            b'{"state": ' + b"9" * 5000 + b"}",
            b'{"state": "STOPPED"',
            b'{"state": "STOPPED"} {}',
            b"NaN",
            b"\xff\xfe",
        ]
    ),
)


@pytest.mark.slow
def test_invalid_body_is_refused() -> None:
    """Bytes, other types, unknown states and deep nesting: 400 each."""
    with serving(application()) as client:

        @given(bodies)
        def is_refused(body: bytes) -> None:
            refused = client.post("/bindings/in", content=body, headers=JSON)
            assert refused.status_code == 400
            assert set(refused.json()) == {"status", "error"}

        is_refused()
        assert state(client) == "running"


@pytest.mark.slow
def test_unknown_binding_name_is_not_found() -> None:
    """With any bytes: slashes, zeros, invalid UTF-8."""
    with serving(application()) as client:

        @given(st.binary(min_size=1, max_size=60))
        def is_not_found(name: bytes) -> None:
            quoted = "".join(f"%{byte:02x}" for byte in name)
            for response in (
                client.get(f"/bindings/x{quoted}"),
                client.post(f"/bindings/x{quoted}", json=STOP),
                client.get(f"/metrics/x{quoted}"),
                client.get(f"/health/x{quoted}"),
            ):
                assert response.status_code == 404
                assert set(response.json()) == {"status", "error"}

        is_not_found()


def test_server_error_shows_no_code(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets 500; the log has the traceback."""

    class Broken(StreamApplication):
        async def lags(self) -> dict[str, int]:
            raise RuntimeError("hunter2")

    app = application()
    app.__class__ = Broken
    with serving(app) as client:
        broken = client.get("/prometheus")
        assert broken.status_code == 500
        assert broken.json() == {"status": 500, "error": "Internal Server Error"}
        assert client.get("/nothing").json() == {"status": 404, "error": "Not Found"}
        assert client.delete("/health").json() == {"status": 405, "error": "Method Not Allowed"}
    assert "hunter2" in caplog.text


# Too much


LARGE = 400 * 1024 * 1024
BOUND = 2 * 1024 * 1024
"""Bytes that a connection's request may take: documented in docs/operations.md."""


def test_announced_large_body_is_refused_at_once() -> None:
    """Before it is sent."""
    head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {LARGE}\r\n"
    with serving(application()) as client, connected(client, post(head)) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"
    with (
        serving(application()) as client,
        connected(client, post(head + "Expect: 100-continue\r\n")) as connection,
    ):
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST /actuator/bindings/in", "GET /actuator/health", "POST /nothing"])
@pytest.mark.parametrize("chunked", [True, False])
def test_large_body_takes_no_memory(method: str, chunked: bool) -> None:
    """400 MB, announced or in chunks, whether or not the client stops at the answer 413."""
    piece = b"x" * 65536
    framed = b"10000\r\n" + piece + b"\r\n" if chunked else piece
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {LARGE}"
    head = f"{method} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    with (
        serving(application()) as client,
        connected(client, head.encode()) as connection,
        memory_below(BOUND),
    ):
        try:
            for _ in range(LARGE // len(piece)):
                connection.sendall(framed)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert state(client) == "running"


def test_connection_continues_after_an_early_refusal() -> None:
    """The rest of a small request is read."""
    head = "Host: localhost\r\nOrigin: null\r\nContent-Length: 20000\r\n"
    with serving(application()) as client, connected(client, post(head)) as connection:
        for _ in range(3):
            assert connection.recv(12) == b"HTTP/1.1 413"
            while b"Content Too Large" not in connection.recv(65536):
                pass
            connection.sendall(b"x" * 20000 + post(head))


def test_connection_ends_after_an_early_refusal_of_a_large_request() -> None:
    """The server reads at most 64 KiB of the rest, and answers no further request on this connection."""
    head = "Host: localhost\r\nOrigin: null\r\nContent-Length: 100000\r\n"
    with serving(application()) as client, connected(client, post(head)) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"
        while b"Content Too Large" not in connection.recv(65536):
            pass
        with suppress(ConnectionError):
            connection.sendall(b"x" * 100000 + post(head))
        assert answer(connection) == (0, b"")
        assert state(client) == "running"


def test_chunked_body_beyond_the_limit_is_refused() -> None:
    """The answer is sent, and the connection ends."""
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    head = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    with serving(application()) as client:
        with connected(client, post(head, chunk * (MAX_BODY // 4096 + 1))) as connection:
            assert connection.recv(12) == b"HTTP/1.1 413"
        body = json.dumps(STOP).encode().ljust(MAX_BODY)
        assert client.post("/bindings/in", content=body, headers=JSON).status_code == 204


@pytest.mark.parametrize(
    "head",
    [
        b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
        b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
    ],
)
def test_large_heads_are_refused(head: bytes) -> None:
    """Many or long headers, or a long path: by size, before parsing."""
    with serving(application()) as client, connected(client) as connection:
        with memory_below(BOUND):
            try:
                connection.sendall(head)
            except (ConnectionResetError, BrokenPipeError):
                pass
            assert answer(connection)[0] in (0, 400, 431)
        assert state(client) == "running"


@pytest.mark.slow
def test_other_protocols_end_only_their_connection() -> None:
    """TLS and noise."""
    with serving(application()) as client:

        @given(st.binary(min_size=1, max_size=2000))
        def ends(noise: bytes) -> None:
            with connected(client, noise) as connection:
                connection.shutdown(socket.SHUT_WR)
                answer(connection)

        ends()
        assert client.get("/health").status_code == 200


# Slow, and many


HALVES = [
    b"",
    b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\n",
    post("Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n", b"{"),
]


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_many_half_open_connections_do_not_block_others(half: bytes) -> None:
    """Beyond the limit, the ones with the oldest incomplete request are closed."""
    kept = ConnectionLimits().connections
    with serving(application()) as client, ExitStack() as slow:
        client.timeout = httpx.Timeout(PATIENCE)
        opened = [slow.enter_context(connected(client, half)) for _ in range(kept + 50)]
        for connection in opened[:50]:
            assert answer(connection)[0] == 0
        with connected(client) as fresh:
            fresh.sendall(b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert fresh.recv(12) == b"HTTP/1.1 200"
        opened[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            opened[-1].recv(1)


async def impatient(app: StreamApplication) -> ManagementServer:
    """Return a started server of the application's endpoints with short timeouts."""
    limits = ConnectionLimits(request_timeout=0.05, write_timeout=0.05)
    server = ManagementServer(app, ManagementServerProperties(port=0), limits)
    await server.start()
    return server


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return all that is received."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    "request_",
    [
        *HALVES,
        b"GET /actuator/health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n",
    ],
)
def test_connection_without_a_complete_request_is_closed(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The first, the next, or the rest of an answered one; nothing is logged as an error."""

    async def main() -> None:
        app = application(None, **{"management.server.port": "-1"})
        async with app:
            server = await impatient(app)
            port = httpx.URL(server.url).port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_)
            await until_closed(reader)
            writer.close()
            await server.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.messages == []


async def send_for_ever(client: socket.socket, request: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.get_running_loop().sock_sendall(client, request)


@pytest.mark.slow
def test_client_that_does_not_read_is_closed() -> None:
    """Its unsent answers are dropped."""

    async def main() -> None:
        app = application(None, **{"management.server.port": "-1"})
        async with app:
            server = await impatient(app)
            port = httpx.URL(server.url).port or 0
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, ("127.0.0.1", port))
                request = b"GET /actuator/bindings HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
                with pytest.raises((ConnectionResetError, BrokenPipeError)):
                    await send_for_ever(client, request)
            await server.stop()

    asyncio.run(main())


def test_stop_does_not_wait_for_slow_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Idle, half sent, half read: all are closed without an error in the log."""
    with ExitStack() as slow, serving(application()) as client:
        for half in HALVES * 5:
            slow.enter_context(connected(client, half))
        assert client.get("/health").status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# Where it listens


def test_listening_beyond_loopback_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Since HTTP is not encrypted."""
    with serving(application()):
        pass
    assert not [each for each in caplog.messages if "other machines" in each]
    settings = {"management.server.address": "0.0.0.0", "management.server.token": "open-sesame"}
    with serving(application(None, **settings)) as client:
        assert client.get("/health", headers={"host": "127.0.0.1"}).status_code == 200
        assert client.get("/health", headers={"host": "0.0.0.0"}).status_code == 400
    (warning,) = [each for each in caplog.messages if "other machines" in each]
    assert "proxy with TLS" in warning
    assert "management.server.address" in warning
    assert "open-sesame" not in "".join(caplog.messages)
