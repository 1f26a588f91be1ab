"""Cases: what chooses partitions in code, and how headers travel."""

from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.messaging.headers import PARTITION
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, refused


class HookCases:
    """Partitions by registered functions; header modes; customizers."""

    @case
    async def test_customizers_see_what_the_binder_makes_before_it_starts(self, s: Scenario) -> None:
        """The binder, and each consumer and producer with its destination and group, once each."""
        topic, group = await s.topic(), s.name("group")
        seen = s.recorder("customized")

        async def note(payload: str) -> None:
            seen.add(payload)

        app = s.consumer(topic, group, note)
        app.customize_binder(lambda binder: seen.add(("binder", binder.type)))
        app.customize_consumer(lambda native, to: seen.add((native is not None, to.name, to.group)))
        app.customize_producer(lambda native, to: seen.add((native is not None, to.name)))
        await s.start(app)
        await app.bridge.asend(topic, "x")
        kind = s.environment.binder_type
        assert await seen.settled(4) == [("binder", kind), (True, topic, group), (True, topic), "x"]

    @case
    async def test_registered_functions_choose_the_partition(self, s: Scenario) -> None:
        """`partition-key-extractor-name` makes the key, `partition-selector-name` the partition."""
        topic = await s.topic(partitions=4)
        app = s.app(
            {
                f"{PREFIX}.bindings.output.destination": topic,
                f"{PREFIX}.bindings.output.producer.partition-key-extractor-name": "customer",
                f"{PREFIX}.bindings.output.producer.partition-selector-name": "by-length",
                f"{PREFIX}.bindings.output.producer.partition-count": 4,
                f"{PREFIX}.output-bindings": "output",
            }
        )
        app.register("customer", lambda message: message.headers["customer"])
        app.register("by-length", lambda key, count: -len(key))
        if s.lacks(Capability.PARTITION):
            error = await refused(s.start(app))
            assert str(error.key).endswith("partition-key-extractor-name")
            return
        received = await s.record(topic, s.name("group"))
        await s.start(app)
        for customer in ("a", "bb", "ccc"):
            await app.bridge.asend("output", Message(customer, {"customer": customer}))
        messages = await received.settled(3)
        found = {message.headers["customer"]: message.headers[PARTITION] for message in messages}
        assert found == {"a": 1, "bb": 2, "ccc": 3}

    @case
    async def test_header_mode_none_sends_no_headers(self, s: Scenario) -> None:
        """The payload arrives and is read by the consumer's content type; what the sender set does not."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"), settings={"content-type": "text/plain"})
        await self._send(s, topic, {"producer.header-mode": "none"}, Message("hello", {"colour": "red"}))
        (message,) = await received.settled(1)
        assert message.payload == b"hello"
        assert "colour" not in message.headers

    @case
    async def test_embedded_headers_travel_in_front_of_the_payload(self, s: Scenario) -> None:
        """A consumer with header-mode=embeddedHeaders takes them off again; one without sees the bytes."""
        topic = await s.topic()
        mode: dict[str, Scalar] = {"consumer.header-mode": "embeddedHeaders"}
        received = await s.record(topic, s.name("group"), settings=mode)
        raw = await s.record(topic, s.name("raw"))
        sent = Message("hello", {"colour": "red", "sizes": [1, 2]})
        await self._send(s, topic, {"producer.header-mode": "embeddedHeaders"}, sent)
        (message,) = await received.settled(1)
        assert message.payload == b"hello"
        assert (message.headers["colour"], message.headers["sizes"]) == ("red", [1, 2])
        (bare,) = await raw.settled(1)
        assert bare.payload.startswith(b"\xff\x03")
        assert bare.payload.endswith(b"hello")

    async def _send(
        self, s: Scenario, topic: str, settings: dict[str, str], message: Message[object]
    ) -> None:
        """Send through a binding with these settings."""
        output = f"{PREFIX}.bindings.output"
        own = {f"{output}.{key}": value for key, value in settings.items()}
        app = await s.start(s.app({f"{output}.destination": topic, **own}))
        await app.bridge.asend("output", message)
