"""Cases: customizers, functions that choose partitions, and header modes."""

from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.messaging.headers import PARTITION
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import Scenario, case, refused


class HookCases:
    """Customizers, partition functions, header modes."""

    @case
    async def test_customizers_receive_the_binder_and_its_native_objects_before_they_start(self, s: Scenario) -> None:
        """Customizers are called once for the binder, and once for each consumer and producer, with its destination."""
        topic, group = await s.topic(), s.name("group")
        seen = s.recorder("customized")

        app = s.consumer(topic, group, seen.listen_to_text)
        app.customize_binder(lambda binder: seen.add(("binder", binder.type)))
        app.customize_consumer(lambda native, to: seen.add((native is not None, to.name, to.group)))
        app.customize_producer(lambda native, to: seen.add((native is not None, to.name)))
        await s.start(app)
        await app.bridge.asend(topic, "x")
        kind = s.environment.binder_type
        assert await seen.settled(4) == [("binder", kind), (True, topic, group), (True, topic), "x"]

    @case
    async def test_registered_functions_choose_the_partition(self, s: Scenario) -> None:
        """`partition-key-extractor-name` names the function of the key, `partition-selector-name` of the partition."""
        topic = await s.topic(partitions=4)
        app = s.producer(
            topic,
            {
                "producer.partition-key-extractor-name": "customer",
                "producer.partition-selector-name": "by-length",
                "producer.partition-count": 4,
            },
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
        """The payload arrives without the sender's headers and is read by the consumer's content type."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"), settings={"content-type": "text/plain"})
        await self._send(s, topic, {"producer.header-mode": "none"}, Message("hello", {"colour": "red"}))
        (message,) = await received.settled(1)
        assert message.payload == b"hello"
        assert "colour" not in message.headers

    @case
    async def test_embedded_headers_are_sent_in_front_of_the_payload(self, s: Scenario) -> None:
        """A consumer with header-mode=embeddedHeaders reads them; any other receives them in the payload."""
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

    async def _send(self, s: Scenario, topic: str, settings: dict[str, str], message: Message[object]) -> None:
        """Send through a binding with these settings."""
        app = await s.start(s.producer(topic, settings))
        await app.bridge.asend("output", message)
