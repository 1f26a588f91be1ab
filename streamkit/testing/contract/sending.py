"""Cases: outputs, partitions, delays and failed sends."""

import json
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
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, needs, refused

LISTED = 30


class SendingCases:
    """Outputs, partitions, delays, failures."""

    @case
    async def test_a_listener_s_result_is_sent_with_the_headers_of_the_input(self, s: Scenario) -> None:
        """`@send_to` sends the returned payload with the input's headers, except for its content type."""
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
    @needs(Capability.PARTITION)
    async def test_a_list_of_results_keeps_the_order_of_each_partition(self, s: Scenario) -> None:
        """Each result of a list arrives once; a binder may send those of a partition together."""
        source, target = await s.topic("source"), await s.topic("target", partitions=2)
        received = await s.record(target, s.name("end"), ordered=True)
        app = s.app(
            {
                f"{PREFIX}.bindings.input.destination": source,
                f"{PREFIX}.bindings.input.group": s.name("group"),
                f"{PREFIX}.bindings.output.destination": target,
            }
        )

        @app.stream_listener("input")
        @send_to("output")
        async def split(count: int) -> list[Message[list[int]]]:
            # One result in five is large: a binder may compress it, or send it by itself.
            return [
                Message([number, *[0] * (5000 if number % 5 == 0 else 1)], {PARTITION_OVERRIDE: number // 2 % 2})
                for number in range(count)
            ]

        await s.start(app)
        await s.send(source, LISTED)
        messages = await received.settled(LISTED)
        numbers = [json.loads(message.payload)[0] for message in messages]
        for partition in range(2):
            expected = [number for number in range(LISTED) if number // 2 % 2 == partition]
            assert [number for number in numbers if number // 2 % 2 == partition] == expected

    @case
    async def test_messages_of_one_key_go_to_one_partition(self, s: Scenario) -> None:
        """The partition is |hash(key)| mod the number of partitions; the header `PARTITION_OVERRIDE` overrides it."""
        topic = await s.topic(partitions=4)
        received = await s.record(topic, s.name("group"))
        app = s.producer(topic, {"producer.partition-key-expression": "headers['key']"})
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
    async def test_a_header_may_choose_the_partition(self, s: Scenario) -> None:
        """On a binding without a partition key, the header `scst_partition` chooses the partition."""
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
        """The header `DELAY_LEVEL` chooses a delay of the table; a binder without delay levels refuses the send."""
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
        """The header `DELAY` is any duration; a binder that has only delay levels refuses durations between them."""
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
    @needs(Capability.DELAY_ANY)
    async def test_a_message_may_be_delivered_at_a_given_time(self, s: Scenario) -> None:
        """`DELIVER_AT` is in milliseconds since 1970; a message with a past time is delivered at once."""
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
    async def test_a_failed_send_raises_at_the_sender(self, s: Scenario) -> None:
        """Sending raises an exception with the binder's error among its causes."""
        topic = await s.topic()
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever wraps the binder's error
            await s.send(topic, "x", {"impossible": object()})
        error = next(cause for cause in causes(caught.value) if isinstance(cause, BinderError))
        assert error.binding == topic

    @case
    async def test_a_failed_send_may_be_sent_to_the_error_channel(self, s: Scenario) -> None:
        """With error-channel-enabled the send returns, and `<destination>.errors` receives the error."""
        topic = await s.topic()
        errors = s.recorder("errors")
        app = s.producer(topic, {"producer.error-channel-enabled": "true"})

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
    async def test_the_bridge_binds_destinations_when_they_are_first_used(self, s: Scenario) -> None:
        """A name without settings is a destination; beyond the cache's size, the least recently used is unbound."""
        topics = [await s.topic(f"topic{number}") for number in range(3)]
        recorders = [await s.record(topic, s.name(f"group-of-{topic}")) for topic in topics]
        app = await s.start(s.app({f"{PREFIX}.dynamic-destination-cache-size": 2}))
        for _ in range(2):
            for topic in topics:
                assert await app.bridge.asend(topic, "x")
        for recorder in recorders:
            await recorder.settled(2)

    @case
    async def test_channels_can_be_used_on_threads(self, s: Scenario) -> None:
        """`channel.send` and `bridge.send` work in a `def` listener, which is called on a thread."""
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
