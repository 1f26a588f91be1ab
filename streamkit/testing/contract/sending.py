"""Cases: how messages are sent."""

from datetime import timedelta

import pytest

from streamkit.binder.attempts import causes
from streamkit.binder.capabilities import Capability
from streamkit.binder.partitioning import partition_of
from streamkit.clock import SystemClock
from streamkit.errors import BinderError, MessageDeliveryError
from streamkit.listeners.listener import send_to
from streamkit.messaging.headers import DELAY, DELAY_LEVEL, DELIVER_AT, PARTITION, PARTITION_OVERRIDE
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, refused


class SendingCases:
    """Outputs, partitions, delays, failures."""

    @case
    async def test_a_listener_s_result_goes_on_with_the_headers_it_came_with(self, s: Scenario) -> None:
        """@send_to sends what is returned; the input's headers are copied, but for its content type."""
        source, target = await s.topic("source"), await s.topic("target")
        received = await s.record(target, s.name("end"))
        app = s.app(
            {
                f"{PREFIX}.bindings.input.destination": source,
                f"{PREFIX}.bindings.input.group": s.name("group"),
                f"{PREFIX}.bindings.output.destination": target,
            }
        )

        @app.stream_listener("input")
        @send_to("output")
        async def shout(text: str) -> dict[str, str] | None:
            return {"text": text.upper()} if text != "nothing" else None

        await s.start(app)
        await s.send(source, "nothing")
        await s.send(source, "hello", {"colour": "red", "contentType": "text/plain"})
        (message,) = await received.settled(1)
        assert message.payload == b'{"text":"HELLO"}'
        assert message.headers["colour"] == "red"
        assert message.headers.content_type == "application/json"

    @case
    async def test_one_key_goes_to_one_partition(self, s: Scenario) -> None:
        """partition-key-expression sends by |hash(key)| mod the number of partitions; an override wins."""
        topic = await s.topic(partitions=4)
        received = await s.record(topic, s.name("group"))
        app = s.app(
            {
                f"{PREFIX}.bindings.output.destination": topic,
                f"{PREFIX}.bindings.output.producer.partition-key-expression": "headers['key']",
                f"{PREFIX}.output-bindings": "output",
            }
        )
        if s.lacks(Capability.PARTITION):
            await refused(s.start(app))
            return
        await s.start(app)
        keys = [f"key-{number}" for number in range(12)]
        for key in keys:
            await app.bridge.asend("output", Message(key, {"key": key}))
        await app.bridge.asend("output", Message("override", {"key": "x", PARTITION_OVERRIDE: 3}))
        messages = await received.settled(13)
        found = {message.payload.decode(): message.headers[PARTITION] for message in messages}
        assert found == {key: partition_of(key, 4) for key in keys} | {"override": 3}

    @case
    async def test_a_header_alone_chooses_the_partition(self, s: Scenario) -> None:
        """On a binding without a partition key the header `scst_partition` counts."""
        topic = await s.topic(partitions=4)
        if s.lacks(Capability.PARTITION):
            await refused(s.send(topic, "x", {PARTITION: 2}))
            return
        received = await s.record(topic, s.name("group"))
        for _ in range(5):
            await s.send(topic, "x", {PARTITION: 2})
        assert {message.headers[PARTITION] for message in await received.settled(5)} == {2}

    @case
    async def test_a_message_may_be_delayed_by_a_level(self, s: Scenario) -> None:
        """Header `DELAY` is a level of the table; a binder without one refuses before anything is written."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        if s.lacks(Capability.DELAY_LEVEL):
            await refused(s.send(topic, "x", {DELAY_LEVEL: 1}))
            assert not await received.settled(0)
            return
        now = s.recorder("sent")
        now.add(0)
        await s.send(topic, "x", {DELAY_LEVEL: 1})
        await received.settled(1)
        delay = s.environment.delay_levels[0]
        assert delay * 0.95 <= received.times[0] - now.times[0] <= delay + s.environment.slack

    @case
    async def test_a_message_may_be_delayed_by_a_duration(self, s: Scenario) -> None:
        """Any delay, or one of the table where there is only a table: others are refused at send."""
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        odd = timedelta(milliseconds=1234)
        if s.lacks(Capability.DELAY_ANY):
            await refused(s.send(topic, "odd", {DELAY: odd}))
            assert not await received.settled(0)
            if s.lacks(Capability.DELAY_LEVEL):
                return
        delay = s.environment.delay_levels[0] if s.lacks(Capability.DELAY_ANY) else odd.total_seconds()
        now = s.recorder("sent")
        now.add(0)
        await s.send(topic, "x", {DELAY: timedelta(seconds=delay)})
        await received.settled(1)
        longest = delay + s.environment.delay_precision + s.environment.slack
        assert delay * 0.95 <= received.times[0] - now.times[0] <= longest

    @case
    async def test_a_message_may_name_the_time_of_its_delivery(self, s: Scenario) -> None:
        """As milliseconds since 1970; a time that is past is none."""
        if s.lacks(Capability.DELAY_ANY):
            return
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        clock = s.environment.clock or SystemClock()
        sent = s.recorder("sent")
        await s.send(topic, "past", {DELIVER_AT: clock.now_ms() - 60_000})
        await received.wait(1)
        sent.add(0)
        await s.send(topic, "x", {DELIVER_AT: clock.now_ms() + 1234})
        await received.settled(2)
        longest = 1.234 + s.environment.delay_precision + s.environment.slack
        assert 1.2 <= received.times[1] - sent.times[0] <= longest

    @case
    async def test_a_failed_send_is_the_sender_s_exception(self, s: Scenario) -> None:
        """What cannot be sent raises at the sender, with the binder's error as a cause."""
        topic = await s.topic()
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever wraps the binder's error
            await s.send(topic, "x", {"impossible": object()})
        error = next(cause for cause in causes(caught.value) if isinstance(cause, BinderError))
        assert error.binding == topic

    @case
    async def test_a_failed_send_may_go_to_the_error_channel_instead(self, s: Scenario) -> None:
        """error-channel-enabled: the sender goes on, `<destination>.errors` hears of it."""
        topic = await s.topic()
        errors = s.recorder("errors")
        app = s.app(
            {
                f"{PREFIX}.bindings.output.destination": topic,
                f"{PREFIX}.bindings.output.producer.error-channel-enabled": "true",
                f"{PREFIX}.output-bindings": "output",
            }
        )

        @app.error_listener(f"{topic}.errors")
        async def note(error: ErrorMessage) -> None:
            errors.add(error)

        await s.start(app)
        assert await app.bridge.asend("output", Message("x", {"impossible": object()}))
        (error,) = await errors.settled(1)
        assert isinstance(error.payload, MessageDeliveryError)
        assert error.payload.failed_message is not None
        assert error.payload.failed_message.payload == b"x"

    @case
    async def test_the_bridge_binds_destinations_as_they_are_needed(self, s: Scenario) -> None:
        """A name nobody configured is a destination; the least recently used bindings are unbound."""
        topics = [await s.topic(f"topic{number}") for number in range(3)]
        recorders = [await s.record(topic, s.name(f"group-of-{topic}")) for topic in topics]
        app = await s.start(s.app({f"{PREFIX}.dynamic-destination-cache-size": 2}))
        for _ in range(2):
            for topic in topics:
                assert await app.bridge.asend(topic, "x")
        for recorder in recorders:
            await recorder.settled(2)

    @case
    async def test_channels_can_be_sent_to_from_threads(self, s: Scenario) -> None:
        """`channel.send` works in a `def` listener, which runs on a thread."""
        source, target = await s.topic("source"), await s.topic("target")
        received = await s.record(target, s.name("end"))
        app = s.app(
            {
                f"{PREFIX}.bindings.input.destination": source,
                f"{PREFIX}.bindings.input.group": s.name("group"),
                f"{PREFIX}.bindings.output.destination": target,
                f"{PREFIX}.output-bindings": "output",
            }
        )

        @app.stream_listener("input")
        def forward(text: str) -> None:
            app.channel("output").send(Message(text))
            app.bridge.send("output", text)

        await s.start(app)
        await s.send(source, "x")
        await received.settled(2)
