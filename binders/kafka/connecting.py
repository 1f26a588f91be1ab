"""Connects clients. If only a change of settings can help, the error names the setting. Failed clients are closed.

The causes of failures, and when they are detected::

    a file of certificates, a library     before the client connects
    properties that contradict            before the client connects
    user, password, mechanism             the brokers' answer
    the brokers' certificate              the handshake
    the client's certificate              the handshake, or the brokers' first answer after it
    anything else                         the brokers may be away, so connecting is tried again
"""

import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from binders.kafka.client_config import Config
from binders.kafka.repairs import abandoned_clients
from binders.kafka.repairs.bootstrapping import Bootstrapping
from kafka import codec
from kafka.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError

__all__ = ["Interruption", "RefusedError", "connected", "located"]

T = TypeVar("T")

_OTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's error codes for a certificate of another host name (62) or another address (64)."""
# Spring Boot's names, below `spring.kafka`, have another dash.
_TRUST: Final = ("ssl.truststore.location", "ssl.trust-store-location", "ssl.cafile")
_OWN: Final = ("ssl.keystore.location", "ssl.key-store-location", "ssl.certfile")
_LOGIN: Final = ("sasl.jaas.config", "sasl.plain.password", "sasl.plain.username")
_CIPHERS: Final = ("ssl.cipher.suites", "ssl.ciphers")
_COMPRESSIONS: Final[Mapping[object, tuple[Callable[[], bool], str]]] = {
    "snappy": (codec.has_snappy, "python-snappy"),
    "lz4": (codec.has_lz4, "lz4"),
    "zstd": (codec.has_zstd, "zstandard"),
}
_PROTOCOL: Final = ("security.protocol",)


class RefusedError(KafkaError):  # type: ignore[misc]  # kafka-python has no annotations
    """Brokers refuse a client, or the client refuses the brokers, and only other settings can change that.

    Attributes:
        reason: The reason of the refusal.
        properties: The properties that may be wrong, by their names in Kafka, the likeliest first; empty: the brokers'
            addresses.
    """

    def __init__(self, reason: str, properties: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.properties = properties

    def __str__(self) -> str:
        return self.reason


class Interruption:
    """Lets another thread end an attempt to connect, which may last 10 s if the brokers are away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[Bootstrapping] = []
        self._is_called = False

    def __call__(self) -> None:
        """Make the attempt fail now, whether it has begun or not; blocks until its threads have ended."""
        with self._lock:
            self._is_called = True
            connections = list(self._connections)
        for each in connections:
            each.interrupt()

    def add(self, connections: Bootstrapping) -> None:
        """Note the connections of the attempt, which begins now."""
        with self._lock:
            self._connections.append(connections)
            is_called = self._is_called
        if is_called:
            connections.interrupt()


def connected(make: Callable[..., T], config: Config, interruption: Interruption | None = None) -> T:
    """Return a connected client of kafka-python. A client that fails to connect is closed.

    Args:
        make: The client's class.
        config: Its configuration, by kafka-python's names.
        interruption: Ends the attempt when another thread calls it.

    Raises:
        RefusedError: Brokers refuse the client, the client refuses the brokers, or properties contradict each other.
        KafkaError: The brokers are away.
    """
    _check_compression(config.get("compression_type"))
    config = _secured(config)
    made: list[Bootstrapping] = []

    def client(**settings: Any) -> KafkaNetClient:
        made.append(Bootstrapping(partial(_refusal, settings), **settings))
        if interruption is not None:
            interruption.add(made[-1])
        return made[-1].client()

    try:
        return make(**{"kafka_client": client, **config})
    except BaseException as error:
        for each in made:
            abandoned_clients.end(each)
            refusal = each.refusal
            if isinstance(error, KafkaError) and refusal is not None:
                raise refusal from error
        if isinstance(error, KafkaConfigurationError):
            reason = str(error.args[0])
            named = re.findall(r"[a-z]+(?:_[a-z]+)+", reason)
            raise RefusedError(reason, tuple(name.replace("_", ".") for name in named)) from error
        raise


def _refusal(config: Mapping[str, object], error: BaseException) -> RefusedError | None:
    if isinstance(error, SaslAuthenticationFailedError):
        return RefusedError("the brokers refused the user or the password", _LOGIN)
    if isinstance(error, UnsupportedSaslMechanismError):
        return RefusedError(f"the brokers do not support the mechanism {config['sasl_mechanism']}", ("sasl.mechanism",))
    if isinstance(error, KafkaConnectionError):
        causes = (error.__cause__, *error.args)
        return next((_of_tls(cause) for cause in causes if isinstance(cause, ssl.SSLError)), None)
    return None


def _of_tls(error: ssl.SSLError) -> RefusedError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return RefusedError(f"the brokers' certificate is for another host: {error.verify_message}")
        return RefusedError(f"the brokers' certificate is not trusted: {error.verify_message}", _TRUST + _PROTOCOL)
    reason = error.reason or ""
    if "ALERT_HANDSHAKE_FAILURE" in reason:
        return RefusedError(
            "brokers and client agree on no cipher, or the brokers want a certificate",
            _CIPHERS + _OWN + _PROTOCOL,
        )
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        alert = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return RefusedError(f"the brokers refuse this client's certificate ({alert})", _OWN + _PROTOCOL)
    if reason == "WRONG_VERSION_NUMBER":
        return RefusedError("the server at this address does not speak TLS", _PROTOCOL)
    return None


def _check_compression(name: object) -> None:
    """Refuse a compression whose library is not installed.

    Raises:
        RefusedError: A library is missing.
    """
    has, library = _COMPRESSIONS.get(name, (lambda: True, ""))
    if not has():
        raise RefusedError(f"{name} needs the package {library}: install it", ("compression.type", "compression-type"))


def _secured(config: Config) -> Config:
    """Return the configuration with an `ssl_context` in place of the properties of TLS.

    Raises:
        RefusedError: A file is missing or is no PEM file of the right kind, or a cipher is unknown.
    """
    if config.get("security_protocol") not in ("SSL", "SASL_SSL") or config.get("ssl_context") is not None:
        return config
    said = {name: value for name, value in config.items() if name.startswith("ssl_")}
    return {name: value for name, value in config.items() if name not in said} | {"ssl_context": _context(said)}


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
        reason = "it is not a PEM file of the right kind" if isinstance(error, ssl.SSLError) else error.strerror
        raise RefusedError(f"{what} cannot be used: {reason}", properties) from error


def located(
    refusal: RefusedError, environment: Environment, prefixes: Iterable[str], brokers: str
) -> ConfigurationError:
    """Return an error that names the setting and its place; values are not shown, since some are secrets.

    Args:
        refusal: The refusal.
        environment: The settings.
        prefixes: The prefixes of the client's properties, the strongest first.
        brokers: The key of the brokers' addresses, named if the refusal names no property.
    """
    keys = [f"{prefix}.{name}" for name in refusal.properties for prefix in prefixes] or [brokers]
    found = next((value for key in keys if (value := environment.get(key)) is not None), None)
    if found is None:
        return ConfigurationError(f"{keys[0]}: {refusal}", key=keys[0])
    return ConfigurationError(f"{found.origin}: {found.key}: {refusal}", key=found.key, origin=str(found.origin))
