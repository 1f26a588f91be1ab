"""TLS beside plain connections on one port: who is served, who is refused, and what a refused peer may cost."""

import asyncio
import gc
import os
import re
import shutil
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.pretty import pretty_repr

from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.tls.contexts import SECONDS_BETWEEN_CHECKS, client_context
from rocket_remoting.tls.settings import ClientCertificates, ClientTls, ServerTls, TlsMode
from rocket_remoting.tls.transport import TlsTransport
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Server, Transport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, TlsError
from streamkit.testing.virtual_time import VirtualTime
from tests.certificates import PASSWORD, authority

FRAME = b"".join(RemotingCommand.request(RequestCode.HEART_BEAT, body=b"x").encode())
HELLO = bytes.fromhex("16030100f8010000f40303")
"""The start of a handshake."""


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer with the request's body."""
    return RemotingCommand.response(request, body=request.body)


@asynccontextmanager
async def serving(
    transport: Transport, tls: ServerTls | None = None, limits: Limits | None = None
) -> AsyncIterator[Server]:
    """Serve at the host that the certificates are for."""
    host = "127.0.0.1" if isinstance(transport, TcpTransport) else "broker"
    server = await transport.serve(host, 0, echo, tls=tls, limits=limits)
    try:
        yield server
    finally:
        await server.close()


async def answer(server: Server, transport: Transport, tls: ClientTls | None, body: bytes = b"x" * 50_000) -> bytes:
    """Return the answer to one request over a new connection."""
    connection = await transport.connect(server.address, tls=tls, timeout=30)
    try:
        return bytes((await connection.invoke(RequestCode.HEART_BEAT, body=body, timeout=30)).body)
    finally:
        await connection.close()


@pytest.mark.parametrize("tls_client", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("mode", TlsMode, ids=lambda mode: mode.value)
def test_mode_decides_who_is_served(
    mode: TlsMode, tls_client: bool, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    """On one port: the first byte tells which kind of connection it is. The log names a refused peer."""
    refusal = {
        (TlsMode.DISABLED, True): "this looks like a TLS handshake",
        (TlsMode.ENFORCING, False): "it sent plain text, and only TLS is accepted",
    }.get((mode, tls_client))

    async def main() -> None:
        async with serving(transport, authority().server(mode)) as server:
            asked = answer(server, transport, authority().client() if tls_client else None)
            if refusal is None:
                assert await asked == b"x" * 50_000
            else:
                with pytest.raises((ConnectError, ConnectionLost)):
                    await asked

    asyncio.run(main())
    assert [record.levelname for record in caplog.records] == (["WARNING"] if refusal else [])
    assert (refusal or "") in caplog.text


@pytest.mark.parametrize("transport", [TcpTransport()], ids=["tcp"])
@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        ("ours", ClientTls(), "not accepted: "),
        ("foreign", "ours", "not accepted: unable to get local issuer certificate"),
        ("expired", "ours", "not accepted: certificate has expired"),
        ("elsewhere", "ours", "not accepted: IP address mismatch"),
    ],
    ids=["unknown authority", "foreign authority", "expired", "other host"],
)
def test_client_refuses_a_certificate(server: str, client: ClientTls | str, reason: str, transport: Transport) -> None:
    """That is of another authority, too old, or for another host. Without verification it takes any."""
    ours = authority()
    trusts = ours.client() if isinstance(client, str) else client
    settings = authority("foreign").server() if server == "foreign" else ours.server(expired=server == "expired")
    if server == "elsewhere":
        certificate, key = ours.issue("elsewhere", "mq.example.org")
        settings = replace(settings, certificate=certificate, key=key)

    async def main() -> None:
        async with serving(transport, settings) as listening:
            with pytest.raises(ConnectError, match=reason):
                await answer(listening, transport, trusts)
            assert await answer(listening, transport, replace(trusts, verify=False))
            if server == "elsewhere":
                assert await answer(listening, transport, replace(trusts, check_host_name=False))

    asyncio.run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("signed_by", [None, "ours", "foreign"])
@pytest.mark.parametrize("demand", ClientCertificates, ids=lambda demand: demand.value)
def test_server_verifies_clients(
    demand: ClientCertificates, signed_by: str | None, version: ssl.TLSVersion, transport: Transport
) -> None:
    """A certificate that is asked for is verified; only `require` refuses clients without one."""
    tls = authority().client(signed_by=authority(signed_by) if signed_by else None)
    is_served = {
        ClientCertificates.NONE: True,
        ClientCertificates.OPTIONAL: signed_by != "foreign",
        ClientCertificates.REQUIRE: signed_by == "ours",
    }[demand]

    async def main() -> None:
        client_context(tls).maximum_version = version
        async with serving(transport, authority().server(TlsMode.ENFORCING, demand)) as server:
            if is_served:
                assert await answer(server, transport, tls)
            else:
                with pytest.raises((ConnectError, ConnectionLost)):
                    await answer(server, transport, tls)

    try:
        asyncio.run(main())
    finally:
        client_context(tls).maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED


def test_older_versions_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """TLS 1.1 is not spoken, whatever OpenSSL's own settings are."""

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match=r"TLSv1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        async with serving(TcpTransport(), authority().server()) as server:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            assert await answer(server, TcpTransport(), authority().client())

    asyncio.run(main())
    assert "the TLS handshake failed: unsupported protocol" in caplog.text


def test_large_frames_and_many_requests(transport: Transport) -> None:
    """Frames of many TLS records, and many frames in one record, arrive whole and in order."""

    async def main() -> None:
        async with serving(transport, authority().server()) as server:
            connection = await transport.connect(server.address, tls=authority().client(), timeout=30)
            bodies = [b"%d" % n * (n % 7) for n in range(500)] + [os.urandom(1_000_000)] * 2
            answers = await asyncio.gather(
                *(connection.invoke(RequestCode.HEART_BEAT, body=body, timeout=60) for body in bodies)
            )
            assert [bytes(got.body) for got in answers] == bodies
            await connection.close()

    asyncio.run(main())


def test_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    """Without it, or with a wrong one, the error names the file; nobody is asked at the terminal."""
    certificate, key = authority().issue("locked", "127.0.0.1", password=PASSWORD)
    settings = replace(authority().server(), certificate=certificate, key=key)

    async def main() -> None:
        async with serving(TcpTransport(), replace(settings, key_password=PASSWORD)) as server:
            assert await answer(server, TcpTransport(), authority().client())
        for password in (None, "wrong"):
            with pytest.raises(TlsError, match=r"locked\.key") as refused:
                await TcpTransport().serve("127.0.0.1", 0, echo, tls=replace(settings, key_password=password))
            assert "wrong" not in str(refused.value).replace("is wrong", "")

    asyncio.run(main())
    locked = replace(settings, key_password=PASSWORD)
    assert PASSWORD not in repr(locked) + pretty_repr(locked)
    assert repr(locked) == repr(settings)


@pytest.mark.parametrize("content", [None, "no PEM", "other key"])
def test_file_that_cannot_be_used_is_an_error_of_the_start(content: str | None, tmp_path: Path) -> None:
    """The error names the file."""
    settings = authority().server()
    broken = tmp_path / "server.key"
    if content == "other key":
        shutil.copy(authority().issue("other", "127.0.0.1")[1], broken)
    elif content is not None:
        broken.write_text(content)

    async def main() -> None:
        with pytest.raises(TlsError, match=re.escape(str(broken))):
            await TcpTransport().serve("127.0.0.1", 0, echo, tls=replace(settings, key=broken))
        with pytest.raises(TlsError, match=re.escape(str(broken))):
            await TcpTransport().connect("127.0.0.1:1", tls=ClientTls(certificate=settings.certificate, key=broken))

    asyncio.run(main())


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Run on a loop whose time jumps."""
    with VirtualTime() as time:
        yield time


def test_renewed_certificate_is_taken_while_serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New connections get it; a file that cannot be used is reported once, and the former certificate stays in use."""
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"

    def install(name: str) -> None:
        for made, place in zip(authority().issue(name, "broker"), (certificate, key), strict=True):
            made.replace(place)

    async def name_of_certificate(server: Server, transport: MemoryTransport) -> str:
        await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
        connection = await transport.connect(server.address, tls=authority().client())
        shown = connection._transport.get_extra_info("ssl_object").getpeercert()  # type: ignore[union-attr]
        await connection.close()
        return str(dict(field[0] for field in shown["subject"])["commonName"])

    async def main() -> None:
        transport = MemoryTransport()
        install("first")
        settings = replace(authority().server(), certificate=certificate, key=key)
        async with serving(transport, settings) as server:
            assert await name_of_certificate(server, transport) == "first"
            key.write_text("half a ke")
            assert [await name_of_certificate(server, transport) for _ in range(2)] == ["first", "first"]
            install("second")
            assert await name_of_certificate(server, transport) == "second"

    with virtual_time() as time:
        time.run(main())
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert str(key) in errors[0]


@pytest.mark.parametrize(
    ("sent", "after", "reason"),
    [
        (HELLO, 10, "no TLS handshake within 10 s"),
        (b"", 60, "no request within 60 s"),
        (FRAME[:-1], 60, "no request within 60 s"),
    ],
    ids=["half a handshake", "nothing", "half a request"],
)
def test_peer_that_is_slow_to_begin_is_closed(
    sent: bytes, after: float, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless its first request has been handled in time; then only the idle time counts."""

    async def main() -> None:
        transport = MemoryTransport()
        async with serving(transport, authority().server()) as server:
            slow = await transport.connect(server.address)
            good = await transport.connect(server.address, tls=authority().client())
            await good.invoke(RequestCode.HEART_BEAT, timeout=3)
            slow._send([sent] if sent else [])
            closed = asyncio.Event()
            slow.add_close_callback(lambda _: closed.set())
            await closed.wait()
            assert asyncio.get_running_loop().time() == pytest.approx(after, abs=0.01)
            assert not good.is_closed
            await good.close()

    with virtual_time() as time:
        time.run(main())
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x16" + b"\xff" * 300, "the TLS handshake failed"),
        (HELLO + b"\0" * 300, "the TLS handshake failed"),
        (bytes.fromhex("160301ffff") + b"\1" * 70_000, "the TLS handshake failed"),
    ],
    ids=["garbage", "broken hello", "record of 64 KiB"],
)
def test_garbage_in_the_handshake_closes_only_its_connection(
    sent: bytes, reason: str, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the peer and the reason."""

    async def main() -> None:
        async with serving(transport, authority().server()) as server:
            neighbour = await transport.connect(server.address, tls=authority().client(), timeout=30)
            hostile = await transport.connect(server.address)
            closed = asyncio.Event()
            hostile.add_close_callback(lambda _: closed.set())
            hostile._send([sent])
            await asyncio.wait_for(closed.wait(), 30)
            assert (await neighbour.invoke(RequestCode.HEART_BEAT, body=b"on", timeout=30)).body == b"on"
            await neighbour.close()

    asyncio.run(main())
    assert reason in caplog.text


def test_garbage_after_the_handshake_closes_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no TLS record."""

    async def main() -> None:
        transport = MemoryTransport()
        async with serving(transport, authority().server()) as server:
            hostile = await transport.connect(server.address, tls=authority().client())
            await hostile.invoke(RequestCode.HEART_BEAT, timeout=30)
            closed = asyncio.Event()
            hostile.add_close_callback(lambda _: closed.set())
            raw = hostile._transport._raw  # type: ignore[union-attr]
            raw.write(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
            await asyncio.wait_for(closed.wait(), 30)
            assert await answer(server, transport, authority().client())

    asyncio.run(main())
    assert "the peer broke the TLS protocol" in caplog.text


@pytest.mark.parametrize("fails", [False, True], ids=["served", "failed handshake"])
def test_ended_connection_is_freed_at_once(fails: bool) -> None:
    """Not at a garbage collection: OpenSSL holds 50 KiB for each, and a server collects rarely."""

    async def main() -> None:
        transport = TcpTransport()
        accepted: list[weakref.ref[Connection]] = []
        server = await transport.serve(
            "127.0.0.1", 0, echo, tls=authority().server(), on_connect=lambda each: accepted.append(weakref.ref(each))
        )
        if fails:
            client = await transport.connect(server.address)
            closed = asyncio.Event()
            client.add_close_callback(lambda _: closed.set())
            client._send([b"\x16" + b"\xff" * 300])
            await asyncio.wait_for(closed.wait(), 30)
        else:
            await answer(server, transport, authority().client())
        await server.close()
        (connection,) = accepted
        assert connection() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_half_open_handshakes_are_bounded() -> None:
    """They count as buffered bytes: the oldest are closed, and a client that comes later is served."""

    async def main() -> None:
        transport = MemoryTransport()
        budget = BufferBudget(4 * 1024 * 1024)
        async with serving(transport, authority().server(), Limits(buffers=budget)) as server:
            half_open = [await transport.at(f"10.0.0.{n % 200}").connect(server.address) for n in range(300)]
            for connection in half_open:
                connection._send([HELLO])
            await asyncio.sleep(0.1)
            assert 0 < sum(not connection.is_closed for connection in half_open) < 100
            assert budget.used <= budget.limit
            assert await answer(server, transport.at("10.0.1.1"), authority().client())
            await asyncio.sleep(10)
            assert all(connection.is_closed for connection in half_open)
            assert budget.used == 0

    with virtual_time() as time:
        time.run(main())


def test_handshakes_of_one_address_share_its_turns(transport: Transport) -> None:
    """Many clients of one address that connect at once are all served, each in its turn."""

    async def main() -> None:
        async with serving(transport, authority().server()) as server:
            answers = await asyncio.gather(
                *(answer(server, transport, authority().client(), b"%d" % n) for n in range(40))
            )
            assert answers == [b"%d" % n for n in range(40)]

    asyncio.run(main())


def hello() -> bytes:
    """Return the first bytes of a client, which cost the server a signature."""
    written = ssl.MemoryBIO()
    client = client_context(authority().client()).wrap_bio(ssl.MemoryBIO(), written, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return written.read()


def test_flood_of_handshakes_delays_no_other_address() -> None:
    """A request of a neighbour that comes behind three hundred of them is answered before many have begun."""

    async def main() -> None:
        transport = MemoryTransport()
        async with serving(transport, authority().server()) as server:
            neighbour = await transport.at("10.0.0.1").connect(server.address)
            await neighbour.invoke(RequestCode.HEART_BEAT, timeout=30)
            flood = [await transport.at("10.0.0.9").connect(server.address) for _ in range(300)]
            begin = hello()
            for connection in flood:
                connection._send([begin])
            await neighbour.invoke(RequestCode.HEART_BEAT, timeout=30)
            layers = [each._transport for each in server.connections if isinstance(each._transport, TlsTransport)]
            # A connection that was answered has ended: its client serves no TLS.
            assert len(layers) > len(flood) / 2
            assert sum(layer._waits_for_turn for layer in layers) > len(flood) / 4

    asyncio.run(main())
