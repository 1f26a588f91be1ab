"""Translates properties with Kafka's names to the configuration of kafka-python's clients.

    linger.ms, max.poll.records, …      the same names with underscores; numbers as `int`
    sasl.jaas.config                    user and password from the options of the login module
    ssl.truststore.location, …          PEM files: `ssl_cafile`, `ssl_certfile`
    partition.assignment.strategy       Java's class names become the names in the protocol

A property of Java's clients without counterpart in kafka-python has no effect, and a warning says so. The property is
refused if the client would otherwise connect to, or trust, other servers than the property says. Any other name is an
error. This module does not import kafka-python: settings are checked before a client is needed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeAlias

from streamkit.config.setting_limits import AcceptedEntries
from streamkit.config.setting_values import EntryError

__all__ = [
    "IGNORED",
    "Client",
    "checked",
    "checked_of_clients",
    "checked_of_consumers",
    "checked_of_producers",
    "translated",
]

Config: TypeAlias = dict[str, object]


class Client(Enum):
    """The kinds of clients, each with properties of its own."""

    CONSUMER = "consumer"
    PRODUCER = "producer"
    ADMIN = "admin client"


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, not {text!r}")
    return text.strip().lower() == "true"


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, not {text!r}") from None


def _acks(text: str) -> int | str:
    return "all" if text in ("all", "-1") else _number(text)


def _compression(text: str) -> str | None:
    return None if text == "none" else text


Reader: TypeAlias = Callable[[str], object]

# Properties of all clients.
_COMMON: Final[Mapping[str, Reader]] = {
    "client.id": str,
    "client.dns.lookup": str,
    "connections.max.idle.ms": _number,
    "metadata.max.age.ms": _number,
    "receive.buffer.bytes": _number,
    "reconnect.backoff.max.ms": _number,
    "reconnect.backoff.ms": _number,
    "request.timeout.ms": _number,
    "retry.backoff.ms": _number,
    "sasl.kerberos.service.name": str,
    "sasl.mechanism": str,
    "security.protocol": str,
    "send.buffer.bytes": _number,
    # Properties of kafka-python only.
    "bootstrap.timeout.ms": _number,
    "max.in.flight.requests.per.connection": _number,
    "proxy.url": str,
    "receive.message.max.bytes": _number,
    "sasl.kerberos.domain.name": str,
    "sasl.plain.password": str,
    "sasl.plain.username": str,
    "ssl.cafile": str,
    "ssl.certfile": str,
    "ssl.check.hostname": _flag,
    "ssl.ciphers": str,
    "ssl.crlfile": str,
    "ssl.keyfile": str,
    "ssl.password": str,
}
_CONSUMER: Final[Mapping[str, Reader]] = {
    "allow.auto.create.topics": _flag,
    "auto.commit.interval.ms": _number,
    "auto.offset.reset": str,
    "check.crcs": _flag,
    "client.rack": str,
    "exclude.internal.topics": _flag,
    "fetch.max.bytes": _number,
    "fetch.max.wait.ms": _number,
    "fetch.min.bytes": _number,
    "group.instance.id": str,
    "heartbeat.interval.ms": _number,
    "isolation.level": str,
    "max.partition.fetch.bytes": _number,
    "max.poll.interval.ms": _number,
    "max.poll.records": _number,
    "session.timeout.ms": _number,
}
_PRODUCER: Final[Mapping[str, Reader]] = {
    "acks": _acks,
    "allow.auto.create.topics": _flag,
    "batch.size": _number,
    "compression.type": _compression,
    "delivery.timeout.ms": _number,
    "enable.idempotence": _flag,
    "linger.ms": _number,
    "max.block.ms": _number,
    "max.request.size": _number,
    "retries": _number,
    "transaction.timeout.ms": _number,
}
_OWN: Final[Mapping[Client, Mapping[str, Reader]]] = {
    Client.CONSUMER: _CONSUMER,
    Client.PRODUCER: _PRODUCER,
    Client.ADMIN: {},
}

# Properties that kafka-python has in another form: `_security` and `_assignors` translate them.
_TRANSLATED: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.cipher.suites",
        "partition.assignment.strategy",
    }
)

_CONVERTED: Final = "payloads are read and written by the binding's content type"
_OF_THE_BINDER: Final = "the binder decides that"
_UNKNOWN_HERE: Final = "kafka-python has no such property"
# Properties of Java's clients without effect here, and why.
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "enable.auto.commit": "offsets follow the settlements of messages",
    "group.id": "the binding's group is used",
    "key.deserializer": _CONVERTED,
    "value.deserializer": _CONVERTED,
    "key.serializer": _CONVERTED,
    "value.serializer": _CONVERTED,
    "transactional.id": _OF_THE_BINDER,
    "ssl.truststore.password": "PEM files have no password",
} | dict.fromkeys(
    (
        "auto.include.jmx.reporter",
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "group.protocol",
        "group.remote.assignor",
        "interceptor.classes",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "retry.backoff.max.ms",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
    ),
    _UNKNOWN_HERE,
)

_PEM_FILE: Final = "certificates and keys are read from files in PEM: name one in "
# Properties of Java's clients that are refused: a client that ignored them would use or trust other servers.
_REFUSED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "set spring.cloud.stream.kafka.binder.brokers or spring.kafka.bootstrap-servers",
    "config.providers": "settings have placeholders of their own, such as ${NAME} for the environment's",
    "ssl.engine.factory.class": "TLS comes from Python",
    "ssl.keystore.certificate.chain": f"{_PEM_FILE}ssl.keystore.location",
    "ssl.keystore.key": f"{_PEM_FILE}ssl.keystore.location",
    "ssl.truststore.certificates": f"{_PEM_FILE}ssl.truststore.location",
}
_TOKENS: Final = "sasl.oauthbearer."
# Properties of serializers that write and read with a schema registry.
_REGISTRY: Final = (
    "auto.register.schemas",
    "key.subject.name.strategy",
    "schema.registry.",
    "specific.avro.reader",
    "use.latest.version",
    "value.subject.name.strategy",
)
# Properties of Spring's serializers and deserializers.
_OF_CONVERTERS: Final = ("spring.json.", "spring.deserializer.", "spring.serializer.", "spring.message.")

_STRATEGY: Final = "partition.assignment.strategy"
_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
_JAVA_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


# An option of a login module, in the syntax that the tokenizer of Java's client accepts.
_OPTION: Final = re.compile(
    r"""(?P<name>\w+)\s*=\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<bare>[^\s;"']+))"""
)
_ESCAPED: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def checked(properties: Mapping[str, str], *clients: Client) -> dict[str, str]:
    """Return properties by their names in Kafka, if all are valid.

    Args:
        properties: The properties of a setting, by name in Kafka's or kafka-python's spelling.
        clients: The kinds of clients that the properties may be for.

    Raises:
        EntryError: A property is unknown to these clients, is refused, or has an invalid value.
    """
    known = {**_COMMON, **{name: read for client in clients for name, read in _OWN[client].items()}}
    for spelling, value in properties.items():
        try:
            _check(_kafka_name(spelling), value, known, clients)
        except ValueError as error:
            raise EntryError(spelling, str(error)) from error
    spellings = {_kafka_name(spelling): spelling for spelling in properties}
    named = {name: properties[spelling] for name, spelling in spellings.items()}
    try:
        _security(named)
        _assignors(named)
    except EntryError as error:
        raise EntryError(spellings[error.name], str(error)) from error
    return named


def checked_of_clients(properties: dict[str, str]) -> dict[str, str]:
    """Return properties of clients of any kind, as `checked` does."""
    return checked(properties, *Client)


def checked_of_consumers(properties: dict[str, str]) -> dict[str, str]:
    """Return properties of consumers, as `checked` does."""
    return checked(properties, Client.CONSUMER)


def checked_of_producers(properties: dict[str, str]) -> dict[str, str]:
    """Return properties of producers, as `checked` does."""
    return checked(properties, Client.PRODUCER)


def _check(name: str, value: str, known: Mapping[str, Reader], clients: Iterable[Client]) -> None:
    """Refuse an unknown or refused property, and an invalid value.

    Raises:
        ValueError: The property is such a one.
    """
    if name in known:
        _read(known[name], name, value)
    elif name in _REFUSED:
        raise ValueError(f"{name}: {_REFUSED[name]}")
    elif name.startswith(_TOKENS):
        raise ValueError(f"{name}: this binder does not support tokens; use another sasl.mechanism")
    elif name.startswith(_REGISTRY):
        raise ValueError(f"{name}: there is no client of schema registries; add a message converter of your own")
    elif name not in _TRANSLATED and _why_without_effect(name) is None:
        near = get_close_matches(name, [*known, *_TRANSLATED, *_WITHOUT_EFFECT], n=1)
        raise ValueError(
            f"{name!r} is not a property of Kafka's {' or '.join(client.value for client in clients)}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )


def _why_without_effect(name: str) -> str | None:
    """Return why a property has no effect; None if it has one, or is unknown.

    Args:
        name: The property's name in Kafka's or kafka-python's spelling.
    """
    name = _kafka_name(name)
    return _CONVERTED if name.startswith(_OF_CONVERTERS) else _WITHOUT_EFFECT.get(name)


IGNORED: Final = AcceptedEntries(_why_without_effect)
"""Marks settings that are tables of Kafka's properties."""


def translated(client: Client, *layers: Mapping[str, str]) -> Config:
    """Return the configuration of a client of kafka-python, without properties of other kinds of clients.

    Args:
        client: The kind of client.
        layers: Properties by their names in Kafka; later layers win.

    Raises:
        ValueError: A property has an invalid value.
    """
    merged: dict[str, str] = {}
    for layer in layers:
        merged |= {_kafka_name(name): value for name, value in layer.items()}
    known = {**_COMMON, **_OWN[client]}
    config: Config = {}
    for name, value in merged.items():
        if name in known:
            config[_python_name(name)] = _read(known[name], name, value)
    config |= _security(merged)
    if client is Client.CONSUMER and (assignors := _assignors(merged)):
        config["partition_assignment_strategy"] = assignors
    return config


def _kafka_name(name: str) -> str:
    """Return a property's name in Kafka's spelling, from Kafka's or kafka-python's spelling."""
    return name.replace("_", ".").replace("-", ".")


def _python_name(name: str) -> str:
    return name.replace(".", "_")


def _read(reader: Reader, name: str, value: str) -> object:
    try:
        return reader(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _security(properties: Mapping[str, str]) -> Config:
    """Return the configuration for certificates, ciphers, host names and logins."""
    config: Config = {}
    for store, name in (("truststore", "ssl_cafile"), ("keystore", "ssl_certfile")):
        location = properties.get(f"ssl.{store}.location")
        if location is None:
            continue
        kind = properties.get(f"ssl.{store}.type", "")
        if kind.upper() in ("JKS", "PKCS12") or location.lower().endswith((".jks", ".p12", ".pfx")):
            raise EntryError(
                f"ssl.{store}.location",
                f"ssl.{store}.location: {location!r} is a Java key store, which Python cannot read: name a PEM file "
                "(`openssl pkcs12 -nodes` makes one)",
            )
        config[name] = _path(location)
    password = properties.get("ssl.key.password") or properties.get("ssl.keystore.password")
    if password is not None:
        config["ssl_password"] = password
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        config["ssl_check_hostname"] = bool(algorithm.strip())
    if "ssl.cipher.suites" in properties:
        config["ssl_ciphers"] = ":".join(_listed(properties["ssl.cipher.suites"]))
    return config | _login(properties.get("sasl.jaas.config"))


def _path(location: str) -> str:
    """Return the path of a file in Spring's notation: `file:/etc/ca.pem`, `classpath:ca.pem`, or the path itself.

    The class path is the current directory, as for settings files.
    """
    if location.startswith("classpath:"):
        return location.removeprefix("classpath:").lstrip("/")
    return location.removeprefix("file:")


def _login(jaas: str | None) -> Config:
    """Return the login in the options of a login module: `… required username="me" password="secret";`."""
    if jaas is None:
        return {}
    options = {each["name"]: _value(each) for each in _OPTION.finditer(jaas)}
    if "username" in options and "password" in options:
        return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}
    if "Krb5LoginModule" in jaas:
        service = options.get("serviceName")
        return {} if service is None else {"sasl_kerberos_service_name": service}
    raise EntryError("sasl.jaas.config", 'sasl.jaas.config: expected a login module with username="…" and password="…"')


def _value(option: re.Match[str]) -> str:
    """Return the value of an option as Java reads it: backslashes escape only between quotes."""
    if option["bare"] is not None:
        return option["bare"]
    return _ESCAPED.sub(_unescaped, option["quoted"][1:-1])


def _unescaped(escaped: re.Match[str]) -> str:
    text = escaped[1]
    return chr(int(text, 8)) if text.isdigit() and text[0] < "8" else _ESCAPES.get(text, text)


def _assignors(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names, in Kafka's protocol, of the strategies that assign partitions to members."""
    asked = _listed(properties.get("partition.assignment.strategy", ""))
    names = tuple(_JAVA_ASSIGNORS.get(each.rpartition(".")[2], each) for each in asked)
    for name in names:
        if name not in _ASSIGNORS:
            raise EntryError(
                _STRATEGY, f"{_STRATEGY}: {name!r} is not one of {', '.join((*_JAVA_ASSIGNORS, *_ASSIGNORS))}"
            )
    if "cooperative-sticky" in names and len(names) > 1:
        raise EntryError(
            _STRATEGY,
            f"{_STRATEGY}: CooperativeStickyAssignor has to be the only assignor, because all members of the group "
            "must use the cooperative protocol",
        )
    return names


def _listed(text: str) -> Iterable[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
