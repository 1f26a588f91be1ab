"""TLS of the broker and the name server: their settings, and who is served by both on real sockets."""

import asyncio
import ssl
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.errors import BrokerError, LocalSetting, SettingError, TlsUnusable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.apache_settings import SECRET
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting.tls.settings import ClientCertificates, ClientTls, TlsMode
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import ConnectError, ConnectionLost
from tests.certificates import PASSWORD, authority


def server_keys(mode: str, demand: str = "none") -> dict[str, str]:
    """Return the settings of a broker that registers with a name server which demands the same of its clients."""
    ours = authority()
    tls, own = ours.server(), ours.client(signed_by=ours)
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": str(tls.certificate),
        "tls.server.keyPath": str(tls.key),
        "tls.server.need.client.auth": demand,
        "tls.server.trustCertPath": str(ours.file),
        "tls.client.trustCertPath": str(ours.file),
        "tls.client.certPath": str(own.certificate),
        "tls.client.keyPath": str(own.key),
    }


def clients() -> dict[str, ClientTls | None]:
    """Return clients of each kind, by their names."""
    ours = authority()
    expired, key = ours.issue("expired-client", "client.example", expired=True)
    return {
        "plain": None,
        "no certificate": ours.client(),
        "our certificate": ours.client(signed_by=ours),
        "foreign certificate": ours.client(signed_by=authority("foreign")),
        "expired certificate": replace(ours.client(), certificate=expired, key=key),
    }


def is_served(mode: str, demand: str, client: str) -> bool:
    """Return whether a server serves such a client."""
    if client == "plain":
        return mode != "enforcing"
    if mode == "disabled":
        return False
    return demand == "none" or client == "our certificate" or (demand == "optional" and client == "no certificate")


async def serves(address: str, tls: ClientTls | None) -> bool:
    """Return whether a request over a new connection is answered."""
    try:
        connection = await TcpTransport().connect(address, tls=tls, timeout=30)
        try:
            await connection.invoke(RequestCode.GET_BROKER_CLUSTER_INFO, timeout=30)
        finally:
            await connection.close()
    except (ConnectError, ConnectionLost):
        return False
    return True


async def speaks_old_tls(address: str) -> bool:
    """Return whether a server completes a handshake of TLS 1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except (ssl.SSLError, ConnectionError):
        return False
    writer.close()
    return True


@pytest.mark.parametrize(
    ("mode", "demand"),
    [("disabled", "none"), *product(["permissive", "enforcing"], ["none", "optional", "require"])],
)
def test_who_is_served(mode: str, demand: str) -> None:
    """The name server and the broker, which has registered with it, agree."""

    async def main() -> None:
        async with EmbeddedBroker(settings=server_keys(mode, demand)) as embedded:
            assert embedded.name_server.routes.cluster_info().broker_addr_table
            for address in (embedded.name_server_address, embedded.broker_address):
                found = {name: await serves(address, tls) for name, tls in clients().items()}
                assert found == {name: is_served(mode, demand, name) for name in found}
                assert not await speaks_old_tls(address)

    asyncio.run(main())


def settings(keys: Mapping[str, str]) -> BrokerSettings:
    """Return the settings of a broker."""
    return BrokerSettings.from_entries(entries_of(keys, "broker.conf"))


def test_mode_is_permissive_with_a_certificate() -> None:
    """And disabled without one: certificates are not made up."""
    assert settings({}).server_tls() is None
    tls = settings({"tls.server.certPath": "cert.pem"}).server_tls()
    assert tls is not None
    assert (tls.mode, tls.key, tls.client_certificates) == (TlsMode.PERMISSIVE, None, ClientCertificates.NONE)
    assert settings({"tls.server.certPath": "cert.pem", "tls.server.mode": "disabled"}).server_tls() is None


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"tls.server.mode": "permissive"}, "TLS needs a certificate: set tls.server.certPath"),
        ({"tls.server.mode": "strict"}, "expected disabled, permissive or enforcing"),
        ({"tls.server.need.client.auth": "REQUIRED"}, "expected none, optional or require"),
        ({"tls.test.mode.enable": "true"}, "expected false: certificates are not made up here"),
        ({"tls.server.certpath": "cert.pem"}, "did you mean tls.server.certPath?"),
        ({"tls.server.certPath": "c", "tls.server.need.client.auth": "require"}, "set tls.server.trustCertPath"),
        (
            {
                "tls.server.certPath": "c",
                "tls.server.need.client.auth": "optional",
                "tls.server.trustCertPath": "ca",
                "tls.server.authClient": "false",
            },
            "a certificate that is not verified proves nothing",
        ),
        ({"useTLS": "true", "tls.client.keyPath": "key.pem"}, "set tls.client.certPath"),
    ],
)
def test_wrong_settings_are_errors(keys: Mapping[str, str], problem: str) -> None:
    """Of the start, with the key and the remedy."""
    with pytest.raises(SettingError, match=r"tls\.(server|test|client)") as raised:
        settings(keys)
    assert problem in str(raised.value)


def test_file_that_cannot_be_used_fails_the_start(tmp_path: Path) -> None:
    """With its name: of the servers' own certificate, and of the one for connections to name servers."""
    missing = str(tmp_path / "missing.pem")

    async def main() -> None:
        for key in ("tls.server.certPath", "tls.client.certPath"):
            with pytest.raises(TlsUnusable, match=r"missing\.pem cannot be read: No such file"):
                await EmbeddedBroker(settings=server_keys("enforcing") | {key: missing}).start()

    asyncio.run(main())


def test_settings_come_from_the_file_of_apache(tmp_path: Path) -> None:
    """Its values win, as with Apache; keys without a value are not set; a name server passes over tls.client.*."""
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\ntls.server.need.client.auth=require\ntls.server.keyPath=server.key\n"
        f"tls.server.keyPassword={PASSWORD}\ntls.server.certPath=server.pem\ntls.server.authClient=true\n"
        "tls.server.trustCertPath=ca.pem\n\ntls.client.keyPath=client.key\ntls.client.keyPassword=\n"
        "tls.client.certPath=client.pem\ntls.client.authServer=false\ntls.client.trustCertPath=ca.pem\n"
    )
    keys = {"tls.config.file": str(file), "tls.server.certPath": "other.pem", "useTLS": "true"}
    broker = settings(keys)
    for read in (broker, NameServerSettings.from_entries(entries_of({"tls.config.file": str(file)}, "namesrv.conf"))):
        tls = read.server_tls()
        assert tls is not None
        assert (tls.certificate, tls.key, tls.key_password) == (Path("server.pem"), Path("server.key"), PASSWORD)
        assert (tls.client_certificates, tls.trust_certificates) == (ClientCertificates.REQUIRE, Path("ca.pem"))
    assert broker.client_tls() == ClientTls(
        trust_certificates=Path("ca.pem"), certificate=Path("client.pem"), key=Path("client.key"), verify=False
    )
    assert broker.origins["tls.server.certPath"] == f"{file}:5"
    with pytest.raises(BrokerError, match="cannot read the settings file"):
        settings({"tls.config.file": str(tmp_path / "missing")})


def test_password_is_shown_nowhere() -> None:
    """Not in the effective settings, in answers to tools or in texts; and a request cannot guess it."""
    keys = {"tls.server.certPath": "cert.pem", "tls.server.keyPassword": PASSWORD}
    broker = settings(keys)
    assert PASSWORD not in repr(broker) + broker.to_properties() + str(broker.rows())
    assert {row.key: row.value for row in broker.rows()}["tls.server.keyPassword"] == SECRET
    with pytest.raises(LocalSetting) as refused:
        broker.update(entries_of({"tls.server.keyPassword": PASSWORD}, "a request"))
    assert PASSWORD not in str(refused.value)
