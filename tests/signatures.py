"""Requests with the signatures that Apache's client gives them; a peer test compares them with Apache's own."""

from dataclasses import dataclass, field

from rocket_remoting.wire.credentials import Credentials


@dataclass(frozen=True)
class Vector:
    """A request, and the signature of Apache's client."""

    name: str
    signature: str
    credentials: Credentials = field(default_factory=lambda: Credentials("RocketMQ", "12345678"))
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


VECTORS = (
    Vector("nothing but the account", "IUc8rrO/0gDch8CjObLQsW2rsiA="),
    Vector("a body alone", "NvzMFfCIQacUYtQ4qJdXdV0UTRs=", body=b'{"clientID":"1@2"}'),
    Vector(
        "a send",
        "PzyZjG0a7ExHbG9TMjC1Gm1w1KU=",
        fields={"b": "orders", "a": "shop", "e": "3", "i": "KEYS\x01k\x02TAGS\x01t\x02"},
        body=b"tea",
    ),
    Vector(
        "names on both sides of the access key",
        "iQ33Tj2Kv972L/IF3UivuvBlktk=",
        fields={"A": "1", "a": "2", "AccessKex": "3", "_x": "4", "z": ""},
    ),
    Vector(
        "a text beyond ASCII",
        "Tsey2+vrDxS3QvJ+Il1qV9feFiQ=",
        fields={"topic": "Bestellung für 5 €", "key": "\N{PILE OF POO}"},
        body=b"\xff\x00",
    ),
    Vector(
        "names that Java sorts by UTF-16",
        "owLmTNGEPLPC+6dWQCEeZlGWAAA=",
        fields={"\N{PILE OF POO}": "first", "\uffee": "second"},
    ),
    Vector(
        "a token", "bbfE1bTZx3u+8+vbsfOrbur5nJk=", Credentials("RocketMQ", "12345678", "token"), {"topic": "orders"}
    ),
    Vector(
        "a secret beyond ASCII",
        "L7jZlSVXHRlZjV0zWWqtkFlPkLE=",
        Credentials("Müller", "geheimnisvoll€"),
        {"topic": "orders"},
    ),
    Vector(
        "a long secret",
        "4tNtDAP9ZQrHH5KTYkG1TjYNpTE=",
        Credentials("RocketMQ", "x" * 200),
        {"topic": "orders"},
        bytes(range(256)) * 20,
    ),
)
