"""Requests with the signatures that Apache's client gives them; a peer test compares them with Apache's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocket_remoting.wire.credentials import ACCESS_KEY, SIGNATURE, Credentials, signature_of


def signed_as_apache(keys: Credentials, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
    """Return the fields of a request as Apache's clients sign it: without a scope."""
    signed = {**fields, ACCESS_KEY: keys.access_key}
    content = "".join(signed[name] for name in sorted(signed))
    return signed | {SIGNATURE: signature_of(content, body, keys.secret_key)}


@dataclass(frozen=True)
class Vector:
    """A request with code 310, and the signature of Apache's client for its fields with their scope."""

    name: str
    signature: str
    credentials: Credentials = field(default_factory=lambda: Credentials("RocketMQ", "12345678"))
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


VECTORS = (
    Vector("nothing but the account", "ZsgjPbVctmw5uewWRr5TZS14Zko="),
    Vector("a body alone", "hQVogn3Vp+QAJhWXSsK12znawL4=", body=b'{"clientID":"1@2"}'),
    Vector(
        "a send",
        "mNYKoNovHELs/U8P8m6bZh8Q/sY=",
        fields={"b": "orders", "a": "shop", "e": "3", "i": "KEYS\x01k\x02TAGS\x01t\x02"},
        body=b"tea",
    ),
    Vector(
        "names on both sides of the access key",
        "+ddmxswNMf/IG9IZ0MvgNHTLBNA=",
        fields={"A": "1", "a": "2", "AccessKex": "3", "_x": "4", "z": ""},
    ),
    Vector(
        "a text beyond ASCII",
        "GWNKhOZteuf/AcgBXIbzoJ1f2iY=",
        fields={"topic": "Bestellung für 5 €", "key": "\N{PILE OF POO}"},
        body=b"\xff\x00",
    ),
    Vector(
        "names that Java sorts by UTF-16",
        "hWsM7uhs7Pfb+Dp1zofT1oXwq14=",
        fields={"\N{PILE OF POO}": "first", "\uffee": "second"},
    ),
    Vector(
        "a token", "tx0q+xDShapaiutjiqh/H9BRrb0=", Credentials("RocketMQ", "12345678", "token"), {"topic": "orders"}
    ),
    Vector(
        "a secret beyond ASCII",
        "dthIK10gmOPYZ7f4q4Cldb8air4=",
        Credentials("Müller", "geheimnisvoll€"),
        {"topic": "orders"},
    ),
    Vector(
        "a long secret",
        "kq0mgVwFY7eT6zLR0aclyg4QxZ4=",
        Credentials("RocketMQ", "x" * 200),
        {"topic": "orders"},
        bytes(range(256)) * 20,
    ),
)
