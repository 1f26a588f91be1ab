"""Sending a failed message back: the requests to scripted brokers."""

import asyncio
from typing import Any

import pytest

from rocket_client import SendError
from rocket_client.connection.client import RocketClient
from rocket_client.connection.shared_clients import acquire, release
from rocket_client.consuming.send_back import SendBack, failure_properties
from rocket_client.core.outgoing import OutgoingMessages
from rocket_remoting import MessageExt, RequestCode, ResponseCode
from rocket_remoting.wire.headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from rocket_remoting.wire.properties import decode_properties
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster


def failed(reconsume_times: int = 0, **properties: str) -> MessageExt:
    return MessageExt(
        "orders",
        b"coffee",
        properties={
            "UNIQ_KEY": "U1",
            "CLUSTER": "c",
            "MSG_REGION": "r",
            "MIN_OFFSET": "0",
            "MAX_OFFSET": "9",
            **properties,
        },
        queue_id=3,
        queue_offset=17,
        commit_log_offset=4711,
        store_host=("127.0.0.1", 10911),
        reconsume_times=reconsume_times,
        broker_name="a",
        flag=7,
    )


class Scene:
    """A cluster and the send-back of group `kitchen`."""

    def __init__(self, cluster: ScriptedCluster, client: RocketClient) -> None:
        self.cluster = cluster
        outgoing = OutgoingMessages("kitchen", cluster.settings(), client.clock, client.unique_ids)
        self.send_back = SendBack("kitchen", client.requests, client.routes, outgoing)

    @property
    def sent(self) -> SendMessageRequestHeaderV2:
        (header,) = [header for broker in self.cluster.brokers for header in broker.stored]
        return header

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.sent.properties or "")


def play(virtual: VirtualTime, scene: Any) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            cluster.routes["%RETRY%kitchen"] = cluster.route(queues=1)
            settings = cluster.settings()
            client = acquire(
                settings, cluster.transport, virtual.clock, instance_name=None, is_free=lambda client: True
            )
            await client.routes.refresh("%RETRY%kitchen")
            await scene(Scene(cluster, client))
            await release(client)

    virtual.run(main())


@pytest.mark.parametrize("stored", [ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT])
def test_sending_back_waits_for_the_slave(virtual: VirtualTime, stored: int) -> None:
    """The broker may wait for its slave, and has the message if the slave has not."""

    async def scene(at: Scene) -> None:
        at.cluster.brokers[0].reply = stored
        await at.send_back.retry(failed(WAIT="false"), 0, 16, ValueError("no"))
        assert "WAIT" not in at.properties

    play(virtual, scene)


def test_retry_is_sent_to_the_retry_topic_with_a_delay(virtual: VirtualTime) -> None:
    """At the message's own broker, with reconsume times + 1 and delay level 3 + reconsume times."""

    async def scene(at: Scene) -> None:
        await at.send_back.retry(failed(reconsume_times=2), 0, 16, ValueError("no"))
        assert (at.sent.topic, at.sent.broker_name, at.sent.flag) == ("%RETRY%kitchen", "a", 7)
        assert at.sent.reconsume_times == 3
        assert at.sent.max_reconsume_times is not None
        assert at.sent.max_reconsume_times > at.sent.reconsume_times
        assert at.properties["DELAY"] == "5"
        assert at.properties["RETRY_TOPIC"] == "orders"
        assert at.properties["UNIQ_KEY"] == "U1"
        assert at.properties["ORIGIN_MESSAGE_ID"] == failed().offset_message_id
        assert (at.properties["ORIGIN_QUEUE_ID"], at.properties["ORIGIN_QUEUE_OFFSET"]) == ("3", "17")
        assert not {"MIN_OFFSET", "MAX_OFFSET", "CLUSTER", "MSG_REGION", "REAL_TOPIC"} & at.properties.keys()

    play(virtual, scene)


def test_retries_keep_the_id_of_the_first_record(virtual: VirtualTime) -> None:
    """Properties of former delays and failures are removed."""

    async def scene(at: Scene) -> None:
        message = failed(ORIGIN_MESSAGE_ID="O1", DELAY="3", REAL_TOPIC="x", REAL_QID="1", FAILURE_MESSAGE="old")
        await at.send_back.retry(message, 1, 16, None)
        assert at.properties["ORIGIN_MESSAGE_ID"] == "O1"
        assert "ORIGIN_QUEUE_ID" not in at.properties
        assert at.properties["DELAY"] == "1"
        assert not {"REAL_TOPIC", "REAL_QID", "FAILURE_MESSAGE"} & at.properties.keys()

    play(virtual, scene)


def test_a_timed_message_is_not_timed_again(virtual: VirtualTime) -> None:
    """Its time has come: the retry has a delay of its own, and brokers refuse a message with both."""

    async def scene(at: Scene) -> None:
        message = failed(TIMER_DELIVER_MS="1700000000000", TIMER_OUT_MS="1700000000000", TIMETABLE="late")
        await at.send_back.retry(message, 0, 16, None)
        assert at.properties["DELAY"] == "3"
        assert at.properties["TIMETABLE"] == "late"
        assert not [name for name in at.properties if name.startswith("TIMER_")]

    play(virtual, scene)


@pytest.mark.parametrize(("level", "times"), [(-1, 0), (0, 16), (5, 17)])
def test_dead_letter_is_a_retry_above_its_limit(virtual: VirtualTime, level: int, times: int) -> None:
    """For 4.9, which compares ``>=``, and for 5.x, which compares ``>``; without a delay."""

    async def scene(at: Scene) -> None:
        await at.send_back.retry(failed(reconsume_times=times), level, 16, "enough")
        assert at.sent.reconsume_times == times + 1
        assert at.sent.max_reconsume_times == times
        assert "DELAY" not in at.properties
        assert at.properties["FAILURE_MESSAGE"] == "enough"

    play(virtual, scene)


def test_retry_fails_over_to_another_broker(virtual: VirtualTime) -> None:
    """To one with the group's retry topic."""

    async def scene(at: Scene) -> None:
        await at.cluster.brokers[0].stop()
        await at.send_back.retry(failed(), 0, 16, None)
        assert at.sent.broker_name == "b"

    play(virtual, scene)


def test_broker_side_copy_is_the_fallback(virtual: VirtualTime) -> None:
    """Request 36, when sending is refused everywhere."""

    async def scene(at: Scene) -> None:
        for broker in at.cluster.brokers:
            broker.reply = ResponseCode.NO_PERMISSION
        await at.send_back.retry(failed(), 4, 16, None)
        (asked,) = [
            command for command in at.cluster.brokers[0].asked if command.code == RequestCode.CONSUMER_SEND_MSG_BACK
        ]
        header = asked.header(ConsumerSendMsgBackRequestHeader)
        assert (header.offset, header.group, header.delay_level, header.origin_topic) == (
            4711,
            "kitchen",
            4,
            "orders",
        )

    play(virtual, scene)


def test_message_that_cannot_be_sent_is_copied_by_the_broker(virtual: VirtualTime) -> None:
    """Other clients send messages without a body; refusing them would block the queue."""

    async def scene(at: Scene) -> None:
        message = failed()
        message.body = b""
        await at.send_back.retry(message, 0, 16, None)
        assert at.cluster.brokers[0].count(RequestCode.CONSUMER_SEND_MSG_BACK) == 1
        assert at.cluster.brokers[0].stored == []

    play(virtual, scene)


def test_send_back_refused_by_all_is_an_error(virtual: VirtualTime) -> None:
    """It lists every attempt."""

    async def scene(at: Scene) -> None:
        for broker in at.cluster.brokers:
            await broker.stop()
        with pytest.raises(SendError) as caught:
            await at.send_back.retry(failed(), 0, 16, None)
        assert caught.value.brokers == ("a", "b", "a")

    play(virtual, scene)


def test_failure_properties_are_bounded_and_sanitised() -> None:
    """All properties share 32 KiB, with separators that a value must not contain."""
    try:
        raise ValueError("x" * 5000 + "\x01\x02")
    except ValueError as error:
        reported = failure_properties(error)
    assert reported["FAILURE_TYPE"] == "builtins.ValueError"
    assert len(reported["FAILURE_MESSAGE"]) == 800
    assert reported["FAILURE_PLACE"].endswith("in test_failure_properties_are_bounded_and_sanitised")
    assert failure_properties("a\x01b") == {"FAILURE_MESSAGE": "a b"}
    assert failure_properties(None) == {}
    assert failure_properties(asyncio.CancelledError()) == {"FAILURE_TYPE": "asyncio.exceptions.CancelledError"}


class Unprintable(Exception):  # noqa: N818 - it is named after what it does
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (ValueError("unknown \ud800"), "unknown ?"),
        ("unknown \ud800", "unknown ?"),
        (Unprintable(), "<its text cannot be made: RuntimeError>"),
    ],
)
def test_message_is_sent_back_whatever_its_cause(virtual: VirtualTime, cause: Exception | str, message: str) -> None:
    """Including a lone surrogate, as from hostile JSON, and an error whose text cannot be made."""

    async def scene(at: Scene) -> None:
        await at.send_back.retry(failed(), 0, 16, cause)
        assert at.properties["FAILURE_MESSAGE"] == message

    play(virtual, scene)


@pytest.mark.parametrize("size", [31_000, 32_100])
def test_failure_properties_are_omitted_if_there_is_no_space(virtual: VirtualTime, size: int) -> None:
    """The message is sent back without them."""

    async def scene(at: Scene) -> None:
        await at.send_back.retry(failed(note="x" * size), 0, 16, ValueError("y" * 800))
        assert "FAILURE_MESSAGE" not in at.properties
        assert len(at.properties["note"]) == size

    play(virtual, scene)


@pytest.mark.parametrize(("times", "limit", "message"), [(15, 16, 17), (0, 1, 2), (3, 2**31 - 1, 2**31 - 1)])
def test_last_retry_is_within_its_limit(virtual: VirtualTime, times: int, limit: int, message: int) -> None:
    """4.9 counts reconsume times equal to the limit as too many; the limit is a number of four bytes."""

    async def scene(at: Scene) -> None:
        await at.send_back.retry(failed(reconsume_times=times), 0, limit, None)
        assert (at.sent.reconsume_times, at.sent.max_reconsume_times) == (times + 1, message)

    play(virtual, scene)
