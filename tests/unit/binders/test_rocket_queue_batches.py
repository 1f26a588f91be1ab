"""Sending lists of messages: the requests, and the effect of a refusal on each message."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from binders.rocket.producer import select_partition
from binders.rocket.queue_batches import MOST_MESSAGES, QueueBatches
from rocket_client import Producer, SendRejectedError, SendResult, SendTimeoutError
from rocket_remoting import Message, RemotingCommand, ResponseCode
from rocket_remoting.wire.codes import RequestCode
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster

Scene = Callable[[ScriptedCluster, QueueBatches], Awaitable[None]]


def play(virtual_time: VirtualTime, scene: Scene) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual_time) as cluster, cluster.producer() as producer:
            await producer.publish_queues("orders")
            await scene(cluster, batches(producer))

    virtual_time.run(main())


def batches(producer: Producer) -> QueueBatches:
    def check(message: Message, result: SendResult) -> None:
        assert result.queue_offset >= 0

    return QueueBatches(producer, "orders", select_partition, check)


def messages(count: int, partition: int | None = None) -> Sequence[tuple[Message, object]]:
    return [(Message("orders", b"%d" % number), partition) for number in range(count)]


def requests(cluster: ScriptedCluster) -> list[tuple[str, int, int]]:
    """Return broker, queue and code of each send."""
    return [
        (broker.name, header.queue_id, RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2)
        for broker in cluster.brokers
        for header in broker.stored
    ]


def test_list_takes_one_request_per_queue(virtual_time: VirtualTime) -> None:
    """Its messages go to the queues in turn, as if each were sent alone."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        assert await sender.send(messages(9)) == [None] * 9
        sent = requests(cluster)
        assert sorted((name, queue) for name, queue, _ in sent) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert {code for *_, code in sent} == {RequestCode.SEND_BATCH_MESSAGE}

    play(virtual_time, scene)


def test_short_list_is_distributed_too(virtual_time: VirtualTime) -> None:
    """Three messages for three queues are three plain sends, and a later list continues with the next queue."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        assert await sender.send(messages(3)) == [None] * 3
        assert await sender.send(messages(1)) == [None]
        sent = requests(cluster)
        assert sorted((name, queue) for name, queue, _ in sent) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert {code for *_, code in sent} == {RequestCode.SEND_MESSAGE_V2}

    play(virtual_time, scene)


def test_messages_of_a_partition_share_bounded_requests(virtual_time: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        count = MOST_MESSAGES + 2
        assert await sender.send(messages(count, partition=3)) == [None] * count
        assert requests(cluster) == [("b", 1, RequestCode.SEND_BATCH_MESSAGE)] * 2

    play(virtual_time, scene)


@pytest.mark.parametrize(
    "alone",
    [Message("orders", b"x" * 4096), Message("orders", b"x", delay_level=3)],
    ids=["large", "delayed"],
)
def test_message_that_cannot_be_batched_keeps_its_position(virtual_time: VirtualTime, alone: Message) -> None:
    """A body of 4 KiB is compressed and a delayed message is stored elsewhere first, so neither may be in a batch."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        given = [*messages(2, partition=0), (alone, 0), *messages(2, partition=0)]
        assert await sender.send(given) == [None] * 5
        assert [code for *_, code in requests(cluster)] == [
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        ]

    play(virtual_time, scene)


def test_messages_of_a_refused_batch_are_sent_individually(virtual_time: VirtualTime) -> None:
    """As to a broker without batches: each message then has its own result."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        broker = cluster.brokers[0]
        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse
        assert await sender.send(messages(3, partition=0)) == [None] * 3
        assert requests(cluster) == [("a", 0, RequestCode.SEND_MESSAGE_V2)] * 3

    play(virtual_time, scene)


def test_failed_message_stops_the_rest_of_its_partition(virtual_time: VirtualTime) -> None:
    """A sender that repeats them all keeps the order; other partitions are not affected."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        broker = cluster.brokers[0]
        store = broker.answers[RequestCode.SEND_MESSAGE_V2]
        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse
        broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: (
            refuse(command) if broker.stored else store(command)
        )
        given = [*messages(3, partition=0), *messages(2, partition=3)]
        first, second, third, *others = await sender.send(given)
        assert first is None
        assert isinstance(second, SendRejectedError)
        assert third is second
        assert others == [None, None]
        assert broker.count(RequestCode.SEND_MESSAGE_V2) == 2

    play(virtual_time, scene)


def test_batch_without_an_answer_fails_like_a_single_send(virtual_time: VirtualTime) -> None:
    """The timeout has passed then, so its messages are not sent individually."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        cluster.brokers[0].silent = True
        began = asyncio.get_running_loop().time()
        errors = await sender.send(messages(2, partition=0))
        assert [type(error) for error in errors] == [SendTimeoutError] * 2
        assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)
        assert cluster.brokers[0].count(RequestCode.SEND_MESSAGE_V2) == 0

    play(virtual_time, scene)


def test_batch_fails_over_to_another_broker(virtual_time: VirtualTime) -> None:
    """As a single message without a partition does."""

    async def scene(cluster: ScriptedCluster, sender: QueueBatches) -> None:
        await cluster.brokers[0].stop()
        assert await sender.send(messages(8)) == [None] * 8
        assert [name for name, *_ in requests(cluster)] == ["b"] * 4

    play(virtual_time, scene)


def refuse(command: RemotingCommand) -> RemotingCommand:
    """Return the answer of a broker that refuses a request."""
    return RemotingCommand.response(command, ResponseCode.MESSAGE_ILLEGAL, remark="as the script says")
