"""Connecting clients: what keeps brokers and clients apart is told by its setting, and nothing stays behind.

::

    a file of certificates, a library     before anything is connected
    properties that do not go together    the same
    user, password, mechanism             the brokers' answer
    the brokers' certificate              the handshake
    the client's certificate              the handshake, or the brokers' first answer after it
    anything else                         the brokers may be away: it is worth another try

kafka-python tries all of these again until its time is over, and then tells that it is; its threads it leaves running.
"""

import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from binders.kafka.client_config import Config
from kafka import codec
from kafka.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import create_connection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError

__all__ = ["RefusedError", "connected", "located"]

T = TypeVar("T")

_OTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's numbers for certificates of another host name, of another address."""
_TRUST: Final = ("ssl.truststore.location", "ssl.cafile")
_OWN: Final = ("ssl.keystore.location", "ssl.certfile")
_LOGIN: Final = ("sasl.jaas.config", "sasl.plain.password", "sasl.plain.username")
_CIPHERS: Final = ("ssl.cipher.suites", "ssl.ciphers")
_COMPRESSIONS: Final[Mapping[object, tuple[Callable[[], bool], str]]] = {
    "snappy": (codec.has_snappy, "python-snappy"),
    "lz4": (codec.has_lz4, "lz4"),
    "zstd": (codec.has_zstd, "zstandard"),
}
_PROTOCOL: Final = ("security.protocol",)


class RefusedError(KafkaError):  # type: ignore[misc]  # kafka-python has no annotations
    """Brokers refuse a client, or it them, and will do so until settings change.

    Attributes:
        reason: Why.
        properties: The properties it may be about, by their names in Kafka, the likeliest first; none: the brokers'
            addresses.
    """

    def __init__(self, reason: str, properties: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.properties = properties

    def __str__(self) -> str:
        return self.reason


def connected(make: Callable[..., T], config: Config) -> T:
    """Make a client of kafka-python, connected.

    Raises:
        RefusedError: It is not let in, does not let itself in, or cannot be made of these properties.
        KafkaError: The brokers are away.
    """
    _check_compression(config.get("compression_type"))
    config = _secured(config)
    made: list[_NetClient] = []

    def client(**settings: object) -> _NetClient:
        made.append(_NetClient(**settings))
        return made[-1]

    try:
        return make(**{"kafka_client": client, **config})
    except BaseException as error:
        for each in made:
            each._net.stop()
            each.close()
            refusal = each.refusal
            if isinstance(error, KafkaError) and refusal is not None:
                raise refusal from error
        if isinstance(error, KafkaConfigurationError):
            reason = str(error.args[0])
            named = re.findall(r"[a-z]+(?:_[a-z]+)+", reason)
            raise RefusedError(reason, tuple(name.replace("_", ".") for name in named)) from error
        raise


class _NetClient(KafkaNetClient):  # type: ignore[misc]  # as above
    """Connections that give up once all brokers it begins with have refused.

    Attributes:
        refusals: Who has refused, and how.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.refusals: dict[object, RefusedError] = {}
        manager = self._manager
        manager._build_transport = partial(_build_transport, manager)
        manager._connect = partial(self._connect, manager)

    async def _connect(self, manager: Any, node: Any, connection: Any, *details: Any, **more: Any) -> None:
        await type(manager)._connect(manager, node, connection, *details, **more)
        if manager.bootstrapped or not connection.init_future.failed():
            return
        refusal = _refusal(connection.init_future.exception, manager.config)
        if refusal is not None:
            self.refusals[node.node_id] = refusal
            if self.refusal is not None:
                manager._auth_failures |= self.refusals

    @property
    def refusal(self) -> RefusedError | None:
        """One of the refusals, once all have refused; while one may only be away, another try is worth it."""
        brokers = [each.node_id for each in self._manager.cluster.bootstrap_brokers()]
        if brokers and all(each in self.refusals for each in brokers):
            return self.refusals[brokers[0]]
        return None


async def _build_transport(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
    """A transport after its handshake; of one that fails, kafka-python 3.0 leaves the socket open."""
    config = manager.config
    connection = await create_connection(
        manager._net,
        node.host,
        node.port,
        config["socket_options"],
        proxy_url=config["proxy_url"],
        timeout_at=timeout_at,
    )
    try:
        if manager.ssl_enabled:
            transport = _TlsTransport(
                manager._net, connection, host=node.host, ssl_context=config["ssl_context"]
            )
            connection = transport._sock
        else:
            transport = _PlainTransport(manager._net, connection, host=node.host)
        await transport.handshake()
    except Exception as error:
        connection.close()
        raise KafkaConnectionError(f"Handshake failed: {error}") from error
    return transport


class _PlainTransport(KafkaTCPTransport):  # type: ignore[misc]  # as above
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _last_word(*super()._sock_recv())


class _TlsTransport(KafkaSSLTransport):  # type: ignore[misc]  # as above
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _last_word(*super()._sock_recv())


def _last_word(data: bytes, error: Exception | None) -> tuple[bytes, Exception | None]:
    """What a broker says before it hangs up counts; kafka-python 3.0 drops it. The next read tells that it has."""
    return data, None if data else error


def _refusal(error: BaseException, config: Mapping[str, object]) -> RefusedError | None:
    if isinstance(error, SaslAuthenticationFailedError):
        return RefusedError("the brokers refuse the user or the password", _LOGIN)
    if isinstance(error, UnsupportedSaslMechanismError):
        return RefusedError(
            f"the brokers do not have the mechanism {config['sasl_mechanism']}", ("sasl.mechanism",)
        )
    if isinstance(error, KafkaConnectionError):
        causes = (error.__cause__, *error.args)
        return next((_of_tls(cause) for cause in causes if isinstance(cause, ssl.SSLError)), None)
    return None


def _of_tls(error: ssl.SSLError) -> RefusedError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return RefusedError(f"the brokers' certificate is another host's: {error.verify_message}")
        return RefusedError(
            f"the brokers' certificate is not trusted: {error.verify_message}", _TRUST + _PROTOCOL
        )
    reason = error.reason or ""
    if "ALERT_HANDSHAKE_FAILURE" in reason:
        return RefusedError(
            "brokers and client agree on no cipher, or the brokers want a certificate",
            _CIPHERS + _OWN + _PROTOCOL,
        )
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        told = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return RefusedError(f"the brokers refuse this client's certificate ({told})", _OWN + _PROTOCOL)
    if reason == "WRONG_VERSION_NUMBER":
        return RefusedError("who listens there does not speak TLS", _PROTOCOL)
    return None


def _check_compression(name: object) -> None:
    """Refuse what a producer is to compress with and cannot.

    Raises:
        RefusedError: A library is missing.
    """
    has, library = _COMPRESSIONS.get(name, (lambda: True, ""))
    if not has():
        raise RefusedError(
            f"{name} needs the package {library}: install it", ("compression.type", "compression-type")
        )


def _secured(config: Config) -> Config:
    """The configuration with what it says of TLS as the context that all connections use.

    Raises:
        RefusedError: A file is none, or holds nothing that fits.
    """
    if config.get("security_protocol") not in ("SSL", "SASL_SSL") or config.get("ssl_context") is not None:
        return config
    said = {name: value for name, value in config.items() if name.startswith("ssl_")}
    return {name: value for name, value in config.items() if name not in said} | {
        "ssl_context": _context(said)
    }


def _context(said: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(said.get("ssl_check_hostname", True))
    trusted, own, revoked, ciphers = (
        _text(said.get(f"ssl_{name}")) for name in ("cafile", "certfile", "crlfile", "ciphers")
    )
    key, password = _text(said.get("ssl_keyfile")), _text(said.get("ssl_password"))
    if trusted is None:
        context.load_default_certs()
    else:
        _read(trusted, lambda: context.load_verify_locations(trusted), _TRUST)
    if own is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        _read(own, lambda: context.load_cert_chain(own, key, password or ""), _OWN)
    if revoked is not None:
        _read(revoked, lambda: context.load_verify_locations(revoked), ("ssl.crlfile",))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if ciphers is not None:
        _read(f"OpenSSL's list of ciphers {ciphers!r}", lambda: context.set_ciphers(ciphers), _CIPHERS)
    return context


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _read(what: str, read: Callable[[], object], properties: tuple[str, ...]) -> None:
    try:
        read()
    except OSError as error:
        reason = "it is none that fits" if isinstance(error, ssl.SSLError) else error.strerror
        raise RefusedError(f"{what} cannot be used: {reason}", properties) from error


def located(
    refusal: RefusedError, environment: Environment, prefixes: Iterable[str], brokers: str
) -> ConfigurationError:
    """The error for whoever wrote the settings: a secret among them is not shown.

    Args:
        refusal: What is wrong.
        environment: The settings.
        prefixes: Where the client's properties stand, the strongest first.
        brokers: The key of the brokers' addresses.
    """
    keys = [f"{prefix}.{name}" for name in refusal.properties for prefix in prefixes] or [brokers]
    found = next((value for key in keys if (value := environment.get(key)) is not None), None)
    if found is None:
        return ConfigurationError(f"{keys[0]}: {refusal}", key=keys[0])
    return ConfigurationError(
        f"{found.origin}: {found.key}: {refusal}", key=found.key, origin=str(found.origin)
    )
