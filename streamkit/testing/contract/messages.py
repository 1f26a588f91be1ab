"""Cases: payloads, headers and filters of messages."""

from dataclasses import dataclass
from typing import Annotated

from streamkit.binder.capabilities import Capability
from streamkit.listeners.listener import Header
from streamkit.messaging.headers import KEY, TAGS
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, refused


@dataclass
class Order:
    """A payload."""

    number: int
    customer: str


class MessageCases:
    """Payloads, headers, tags."""

    @case
    async def test_objects_are_sent_as_json(self, s: Scenario) -> None:
        """A dataclass is sent as JSON and received as a dataclass."""
        topic, group = await s.topic(), s.name("group")
        orders, raw = s.recorder("orders"), await s.record(topic, s.name("raw"))

        async def note(order: Order) -> None:
            orders.add(order)

        await s.consume(topic, group, note)
        await s.send(topic, Order(7, "Ærøskøbing"))
        assert await orders.settled(1) == [Order(7, "Ærøskøbing")]
        (message,) = raw.items
        assert message.payload == '{"number":7,"customer":"Ærøskøbing"}'.encode()
        assert message.headers.content_type == "application/json"

    @case
    async def test_text_is_sent_without_quotes(self, s: Scenario) -> None:
        """A `str` is sent as its UTF-8 bytes, also with content type application/json."""
        topic, group = await s.topic(), s.name("group")
        texts, raw = s.recorder("texts"), await s.record(topic, s.name("raw"))

        await s.consume(topic, group, texts.listen_to_text)
        await s.send(topic, "Grüße, 世界")
        assert await texts.settled(1) == ["Grüße, 世界"]
        assert raw.items[0].payload == "Grüße, 世界".encode()

    @case
    async def test_bytes_are_sent_unchanged(self, s: Scenario) -> None:
        """Bytes of any value and size arrive unchanged."""
        topic, group = await s.topic(), s.name("group")
        payloads = [bytes(range(256)), b"\x00" * 20_000, b"x"]
        received = await s.record(topic, group)
        for payload in payloads:
            await s.send(topic, payload, {"contentType": "application/octet-stream"})
        messages = await received.settled(3)
        assert sorted(message.payload for message in messages) == sorted(payloads)
        assert {message.headers.content_type for message in messages} == {"application/octet-stream"}

    @case
    async def test_the_message_s_content_type_overrides_the_binding_s(self, s: Scenario) -> None:
        """The header `contentType` decides how the payload is read."""
        topic, group = await s.topic(), s.name("group")
        numbers = s.recorder("numbers")

        async def note(number: int) -> None:
            numbers.add(number)

        await s.consume(topic, group, note, settings={"content-type": "application/json"})
        await s.send(topic, " 42 ", {"contentType": "text/plain"})
        assert await numbers.settled(1) == [42]

    @case
    async def test_headers_arrive_with_their_types(self, s: Scenario) -> None:
        """Text, numbers, booleans, lists and dictionaries arrive with equal values and types."""
        topic, group = await s.topic(), s.name("group")
        received = await s.record(topic, group)
        headers: dict[str, object] = {
            "text": "red",
            "umlaut": "Grüße",
            "empty": "",
            "digits": "42",
            "integer": 42,
            "long": 2**40,
            "float": 1.5,
            "true": True,
            "list": [1, "two", None],
            "table": {"a": 1},
        }
        await s.send(topic, "x", headers)
        (message,) = await received.settled(1)
        found = {name: message.headers[name] for name in headers if name in message.headers}
        assert found == headers
        assert [type(value) for value in found.values()] == [type(value) for value in headers.values()]

    @case
    async def test_listeners_receive_headers_as_arguments(self, s: Scenario) -> None:
        """A header is converted to the argument's type; without the header the argument has its default."""
        topic, group = await s.topic(), s.name("group")
        seen = s.recorder("headers")

        async def note(
            payload: str, number: Annotated[int, Header("number")], colour: Annotated[str, Header()] = "none"
        ) -> None:
            seen.add((payload, number, colour))

        await s.consume(topic, group, note)
        await s.send(topic, "x", {"number": "7"})
        assert await seen.settled(1) == [("x", 7, "none")]

    @case
    async def test_id_and_timestamp_are_the_sender_s(self, s: Scenario) -> None:
        """A message arrives with the id and timestamp it was sent with."""
        topic, group = await s.topic(), s.name("group")
        received = await s.record(topic, group)
        sent: Message[str] = Message("x")
        await (await s.sender()).bridge.asend(topic, sent)
        (message,) = await received.settled(1)
        assert message.headers.id == sent.headers.id
        assert message.headers.timestamp == sent.headers.timestamp

    @case
    async def test_key_and_tags_arrive(self, s: Scenario) -> None:
        """The headers `KEY` and `TAGS` arrive with their values."""
        topic, group = await s.topic(), s.name("group")
        received = await s.record(topic, group)
        await s.send(topic, "x", {KEY: "order-1", TAGS: "TagA"})
        (message,) = await received.settled(1)
        assert message.headers[KEY] == "order-1"
        assert message.headers[TAGS] == "TagA"

    @case
    async def test_a_group_receives_only_the_tags_it_subscribes_to(self, s: Scenario) -> None:
        """`tags=a||b` selects messages with either tag; a binder without the capability refuses the setting."""
        topic = await s.topic()

        async def ignore(payload: str) -> None:
            """Do nothing."""

        if s.lacks(Capability.TAG):
            await refused(s.consume(topic, s.name("group"), ignore, tags="a||b"))
            return
        some = await s.record(topic, s.name("some"), tags="a||b")
        everything = await s.record(topic, s.name("all"))
        for tag in ("a", "b", "c", None):
            await s.send(topic, str(tag), {TAGS: tag} if tag else {})
        assert sorted(message.payload for message in await some.settled(2)) == [b"a", b"b"]
        await everything.settled(4)

    @case
    async def test_an_sql_filter_selects_messages_or_is_refused_at_the_start(self, s: Scenario) -> None:
        """A binder with the capability filters by headers; the refusal of any other names the setting and its place."""
        topic = await s.topic()

        async def ignore(payload: str) -> None:
            """Do nothing."""

        if s.lacks(Capability.SQL):
            error = await refused(s.consume(topic, s.name("group"), ignore, sql="colour = 'red'"))
            assert error.key is not None
            assert error.origin is not None
            return
        red = await s.record(topic, s.name("group"), sql="colour = 'red'")
        for colour in ("red", "blue"):
            await s.send(topic, colour, {"colour": colour})
        assert [message.payload for message in await red.settled(1)] == [b"red"]

    @case
    async def test_conditions_choose_the_listener(self, s: Scenario) -> None:
        """An input may have several listeners; each is called for the messages that match its condition."""
        topic, group = await s.topic(), s.name("group")
        seen = s.recorder("calls")
        app = s.app({f"{PREFIX}.bindings.input.destination": topic, f"{PREFIX}.bindings.input.group": group})

        @app.stream_listener("input", condition="headers['kind'] == 'a'")
        async def of_kind_a(payload: str) -> None:
            seen.add(("a", payload))

        @app.stream_listener("input", condition="payload.amount > 10")
        async def of_much(payload: dict[str, int]) -> None:
            seen.add(("much", payload["amount"]))

        await s.start(app)
        await s.send(topic, {"amount": 5}, {"kind": "a"})
        await s.send(topic, {"amount": 50}, {"kind": "b"})
        await s.send(topic, {"amount": 1}, {"kind": "b"})
        assert sorted(await seen.settled(2)) == [("a", '{"amount":5}'), ("much", 50)]
