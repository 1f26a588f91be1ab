"""Sends that are ready in the same turn of the loop: the requests, and the result of each send."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocket_client import (
    Producer,
    SendError,
    SendRejectedError,
    SendResult,
    SendStatus,
    SendTimeoutError,
)
from rocket_client.producing.shared_requests import MOST_MESSAGES
from rocket_remoting import Message, MessageExt, MessageQueue, RemotingCommand, ResponseCode
from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import SEND_CODES, ScriptedBroker, ScriptedCluster

Scene = Callable[[ScriptedCluster, Producer], Awaitable[None]]
FIXED = MessageQueue("orders", "a", 1)


def play(virtual: VirtualTime, scene: Scene) -> None:
    """Run the scene with a producer that is connected to both brokers, and forget its first requests."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster, cluster.producer() as producer:
            for broker in cluster.brokers:
                await producer.send(Message("orders", b"first"), queue=MessageQueue("orders", broker.name, 0))
            for broker in cluster.brokers:
                broker.asked.clear()
                broker.stored.clear()
                broker.answers |= dict.fromkeys(SEND_CODES, numbering(broker))
            await scene(cluster, producer)

    virtual.run(main())


def numbering(broker: ScriptedBroker) -> Callable[[RemotingCommand], RemotingCommand | None]:
    """Return a store that gives each message an offset and an id, as brokers do."""
    offsets: list[int] = []

    def store(command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(SendMessageRequestHeaderV2)
        broker.stored.append(header)
        first = len(offsets)
        offsets.extend(range(first, first + len(bodies(command))))
        placed = SendMessageResponseHeader(
            msg_id=",".join(map(str, offsets[first:])), queue_id=header.queue_id, queue_offset=first
        )
        return None if broker.silent else RemotingCommand.response(command, broker.reply, placed)

    return store


def bodies(command: RemotingCommand) -> list[bytes]:
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        return [entry.body for entry in decode_batch(command.body)]
    return [bytes(command.body)]


def requests(broker: ScriptedBroker) -> list[list[bytes]]:
    """Return the bodies of each send request."""
    return [bodies(command) for command in broker.asked if command.code in SEND_CODES]


def refuse(code: int) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda command: RemotingCommand.response(command, code, remark="as the script says")


async def send_all(producer: Producer, *messages: Message | bytes, **arguments: Any) -> list[SendResult]:
    made = [each if isinstance(each, Message) else Message("orders", each) for each in messages]
    return await asyncio.gather(*(producer.send(each, **arguments) for each in made))


async def outcomes(producer: Producer, *messages: bytes, **arguments: Any) -> list[SendResult | BaseException]:
    sends = (producer.send(Message("orders", each), **arguments) for each in messages)
    return await asyncio.gather(*sends, return_exceptions=True)


def test_sends_of_one_turn_share_a_request(virtual: VirtualTime) -> None:
    """The first of them does not wait for the end of the turn, as it cannot know of the others."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await send_all(producer, b"0", b"1", b"2", b"3")
        sent = [each for broker in cluster.brokers for each in requests(broker)]
        assert sorted(sent) == [[b"0"], [b"1", b"2", b"3"]]

    play(virtual, scene)


def test_each_send_has_its_own_ids_and_offset(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        messages = [Message("orders", b"%d" % number) for number in range(4)]
        results = await send_all(producer, *messages, queue=FIXED)
        assert [result.queue_offset for result in results] == [0, 1, 2, 3]
        assert [result.offset_msg_id for result in results] == ["0", "1", "2", "3"]
        assert [result.msg_id for result in results] == [message.unique_key for message in messages]
        assert {(result.status, result.message_queue) for result in results} == {(SendStatus.SEND_OK, FIXED)}

    play(virtual, scene)


def test_send_alone_in_its_turn_is_a_plain_request(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for body in (b"0", b"1", b"2"):
            await producer.send(Message("orders", body), queue=FIXED)
        assert requests(cluster.brokers[0]) == [[b"0"], [b"1"], [b"2"]]
        assert cluster.brokers[0].count(RequestCode.SEND_BATCH_MESSAGE) == 0

    play(virtual, scene)


def test_requests_are_bounded_and_go_to_the_queues_in_turn(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        count = 1 + 3 * MOST_MESSAGES + 1
        await send_all(producer, *(b"%d" % number for number in range(count)))
        stored = [(broker.name, header.queue_id) for broker in cluster.brokers for header in broker.stored]
        assert len(stored) == 5
        assert len(set(stored)) == 4

    play(virtual, scene)


@pytest.mark.parametrize(
    "alone",
    [
        Message("orders", b"2", delay_level=3),
        Message("orders", b"2", wait_store_ok=False),
        Message("orders", b"2" * 4096),
        Message("orders", b"2", properties={"REPLY_TO_CLIENT": "1@one"}),
    ],
    ids=["delayed", "not flushed", "compressed", "asks for a reply"],
)
def test_message_that_shares_no_request_keeps_its_place(virtual: VirtualTime, alone: Message) -> None:
    """In its queue. The messages behind a shared request wait for its answer."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await send_all(producer, b"0", b"1", b"1", alone, b"3", b"3", b"3", queue=FIXED)
        sent = requests(cluster.brokers[0])
        assert [len(each) for each in sent] == [1, 2, 1, 3]
        assert sent[3] == [b"3"] * 3

    play(virtual, scene)


def test_sends_to_a_fixed_queue_wait_for_the_shared_request_before_them(virtual: VirtualTime) -> None:
    """So the order is the same if that request is refused and its messages are sent one by one."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        broker = cluster.brokers[0]
        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse(ResponseCode.MESSAGE_ILLEGAL)
        broker.late[RequestCode.SEND_BATCH_MESSAGE] = 1
        early = asyncio.ensure_future(send_all(producer, b"0", b"1", b"2", queue=FIXED))
        await asyncio.sleep(0.5)
        await producer.send(Message("orders", b"3"), queue=FIXED)
        await early
        assert requests(broker) == [[b"0"], [b"1", b"2"], [b"1"], [b"2"], [b"3"]]

    play(virtual, scene)


def test_refused_request_fails_only_the_messages_that_are_refused_alone(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        broker = cluster.brokers[0]
        store = broker.answers[RequestCode.SEND_MESSAGE_V2]
        no = refuse(ResponseCode.MESSAGE_ILLEGAL)
        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = no
        broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: (
            no(command) if command.body == b"bad" else store(command)
        )
        first, good, bad, last = await outcomes(producer, b"0", b"1", b"bad", b"3", queue=FIXED)
        assert isinstance(bad, SendRejectedError)
        assert all(isinstance(each, SendResult) for each in (first, good, last))

    play(virtual, scene)


def test_busy_broker_refuses_all_messages_of_a_request(virtual: VirtualTime) -> None:
    """It would have refused each of them; sending them again would only add to its load."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        broker = cluster.brokers[0]
        broker.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse(ResponseCode.SYSTEM_BUSY)
        first, *others = await outcomes(producer, b"0", b"1", b"2", queue=FIXED)
        assert isinstance(first, SendResult)
        assert [type(each) for each in others] == [SendRejectedError] * 2
        assert requests(broker) == [[b"0"], [b"1", b"2"]]

    play(virtual, scene)


def test_each_send_has_its_own_time_limit(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.silent = True
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ended(seconds: float, queue: MessageQueue | None) -> float:
            with pytest.raises(SendTimeoutError):
                await producer.send(Message("orders", b"x"), timeout=seconds, queue=queue)
            return loop.time() - began

        for queue in (None, FIXED):
            began = loop.time()
            # The second and the third share a request; the last one waits for its answer.
            ends = [asyncio.ensure_future(ended(seconds, queue)) for seconds in (1, 3, 2)]
            await asyncio.sleep(0.5)
            ends.append(asyncio.ensure_future(ended(0.5, queue)))
            assert await asyncio.gather(*ends) == pytest.approx([1, 3, 2, 1])

    play(virtual, scene)


def test_shared_request_fails_over_to_another_broker(virtual: VirtualTime) -> None:
    """As single sends do, each with its own attempts."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        gone, left = cluster.brokers
        gone.silent = True
        sending = asyncio.ensure_future(send_all(producer, *(b"%d" % number for number in range(2 * MOST_MESSAGES))))
        await asyncio.sleep(0.1)
        assert gone.stored
        await gone.stop()
        results = await sending
        assert {result.message_queue.broker_name for result in results} == {left.name}

    play(virtual, scene)


def test_sends_to_a_broker_that_is_gone_fail_each(virtual: VirtualTime) -> None:
    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await cluster.brokers[0].stop()
        await asyncio.sleep(0.1)
        failed = await outcomes(producer, b"0", b"1", b"2", queue=FIXED)
        assert [type(each) for each in failed] == [SendError] * 3
        await cluster.brokers[0].start()
        assert await producer.send(Message("orders", b"3"), queue=FIXED)

    play(virtual, scene)


def test_sends_keep_their_order_while_the_broker_is_being_connected(virtual: VirtualTime) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster, cluster.producer() as producer:
            await producer.publish_queues("orders")
            sends: list[asyncio.Future[SendResult]] = []
            for number in range(9):
                sends.append(producer.send_async(Message("orders", b"%d" % number), queue=FIXED))
                if number > 2:
                    await asyncio.sleep(0)
            await asyncio.wait(sends)
            assert b"".join(body for each in requests(cluster.brokers[0]) for body in each) == b"012345678"

    virtual.run(main())


def test_cancelled_send_does_not_disturb_the_others(virtual: VirtualTime) -> None:
    """It is not sent, if it has not left yet."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        sends = [asyncio.ensure_future(producer.send(Message("orders", b"%d" % n), queue=FIXED)) for n in range(4)]
        await asyncio.sleep(0)
        sends[2].cancel()
        await asyncio.wait(sends)
        assert requests(cluster.brokers[0]) == [[b"0"], [b"1", b"3"]]

    play(virtual, scene)


def test_shutdown_waits_for_sends_that_wait_for_the_turn(virtual: VirtualTime) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            async with cluster.producer() as producer:
                futures = [producer.send_async(Message("orders", b"x"), queue=FIXED) for _ in range(10)]
            assert all(future.done() and future.result().status is SendStatus.SEND_OK for future in futures)

    virtual.run(main())


def test_replies_share_no_request(virtual: VirtualTime) -> None:
    """Brokers pass them on to the clients that wait for them, one by one."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        cluster.routes["c_REPLY_TOPIC"] = cluster.route(queues=1)
        asked = {"CLUSTER": "c", "CORRELATION_ID": "7", "REPLY_TO_CLIENT": "1@one"}
        for broker in cluster.brokers:
            broker.answers[RequestCode.SEND_REPLY_MESSAGE_V2] = numbering(broker)
        request = MessageExt("orders", b"?", properties=asked)
        await asyncio.gather(*(producer.reply(request, b"!") for _ in range(3)))
        assert sum(broker.count(RequestCode.SEND_REPLY_MESSAGE_V2) for broker in cluster.brokers) == 3

    play(virtual, scene)
