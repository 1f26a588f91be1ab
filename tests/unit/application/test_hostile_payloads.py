"""Hostile payloads become dead letters and block nothing."""

import bz2
from dataclasses import dataclass

import pydantic
import pytest

from streamkit import StreamApplication
from streamkit.messaging.document_limits import UNCOUNTED_SIZE

DEEP = 200_000


@dataclass
class Node:
    """A type that contains itself."""

    child: "Node | None" = None


class Basket(pydantic.BaseModel):
    """A type that contains many."""

    items: list["Basket"] = []


HOSTILE = [
    (str, bz2.compress(bytes(1 << 20)), "text/plain;charset=bz2"),
    (str, b"x", "text/plain;charset=" + "x" * 500),
    (dict, b'{"a":' * DEEP, "application/json"),
    (dict, b'{"a":[' + b"[]," * UNCOUNTED_SIZE + b"1]}", "application/json"),
    (Node, b'{"child":' * DEEP + b"null" + b"}" * DEEP, "application/json"),
    (Basket, b'{"items":' + b"[" * DEEP, "application/json"),
    (Basket, b'{"items":[' + b"1," * 50_000 + b"1]}", "application/json"),
    (Node, b"\0" * DEEP, "application/avro"),
]


@pytest.mark.parametrize(("type_", "payload", "content_type"), HOSTILE)
def test_hostile_payload_becomes_a_dead_letter(type_: type, payload: bytes, content_type: str) -> None:
    """It is tried once, its error is short, and the next message is handled."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.bindings.orders.destination": "orders",
            "spring.cloud.stream.bindings.orders.group": "kitchen",
        },
    )
    heard: list[object] = []

    @app.stream_listener("orders")
    async def listen(order: type_) -> None:  # type: ignore[valid-type]
        heard.append(order)

    good = {str: b"good", dict: b'{"a":1}', Node: b"{}", Basket: b"{}"}[type_]
    with app.test() as test:
        test.input("orders").send(payload, headers={"contentType": content_type})
        test.input("orders").send(good, headers={"contentType": "application/json"})
        test.advance(seconds=10)
        assert heard == [{str: "good", dict: {"a": 1}, Node: Node(), Basket: Basket()}[type_]]
        letter = test.dead_letters("orders").receive()
        assert letter.payload == payload
        assert len(str(letter.headers["FAILURE_MESSAGE"])) < 2000
