"""The attempts of a send, with scripted brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from rocket_client import (
    BrokerNotFoundError,
    ClientStateError,
    IllegalMessageError,
    NameServersUnreachableError,
    Producer,
    SendError,
    SendRejectedError,
    SendStatus,
    SendTimeoutError,
    TopicNotFoundError,
    select_by_hash,
)
from rocket_remoting import (
    ConnectError,
    Connection,
    ConnectionLost,
    Handler,
    Limits,
    MemoryTransport,
    Message,
    MessageQueue,
    RemotingCommand,
    RequestTimeout,
    ResponseCode,
    TooManyRequests,
)
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import PERM_READ
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedBroker, ScriptedCluster

Scene = Callable[[ScriptedCluster, Producer], Awaitable[None]]


def play(virtual: VirtualTime, scene: Scene, **settings: Any) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster, cluster.producer(**settings) as producer:
            await scene(cluster, producer)

    virtual.run(main())


def sends(*brokers: ScriptedBroker) -> list[int]:
    return [len(broker.stored) for broker in brokers]


def test_result_names_the_queue_that_the_broker_chose(virtual: VirtualTime) -> None:
    """It may differ from the requested one."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        placed = SendMessageResponseHeader(msg_id="0" * 32, queue_id=7, queue_offset=3)
        for broker in cluster.brokers:
            broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: RemotingCommand.response(
                command, ResponseCode.SUCCESS, placed
            )
        result = await producer.send(Message("orders", b"coffee"))
        assert (result.message_queue.queue_id, result.queue_offset) == (7, 3)

    play(virtual, scene)


def test_topic_that_becomes_writable_is_used_at_once(virtual: VirtualTime) -> None:
    """Its route is looked up for the send, before the next poll of routes."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        writable = cluster.routes["orders"]
        closed = [msgspec.structs.replace(queues, perm=PERM_READ) for queues in writable.queue_datas]
        cluster.routes["orders"] = msgspec.structs.replace(writable, queue_datas=closed)
        with pytest.raises(TopicNotFoundError, match="none of its queues can be written to"):
            await producer.send(Message("orders", b"coffee"))
        cluster.routes["orders"] = writable
        assert (await producer.send(Message("orders", b"coffee"))).status is SendStatus.SEND_OK

    play(virtual, scene)


def test_result_says_where_the_message_is(virtual: VirtualTime) -> None:
    """Status, ids, queue and offset."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        message = Message("orders", b"coffee")
        result = await producer.send(message)
        assert result.status is SendStatus.SEND_OK
        assert result.msg_id == message.unique_key
        assert (result.message_queue.topic, result.queue_offset) == ("orders", 0)

    play(virtual, scene)


def test_queues_are_used_in_turn(virtual: VirtualTime) -> None:
    """Four sends use four queues."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        results = [await producer.send(Message("orders", b"x")) for _ in range(4)]
        assert len({result.message_queue for result in results}) == 4

    play(virtual, scene)


@pytest.mark.parametrize("code", [17, 14, 1, 16, 204, 205])
def test_retryable_refusals_are_retried_at_another_broker(virtual: VirtualTime, code: int) -> None:
    """TOPIC_NOT_EXIST, SERVICE_NOT_AVAILABLE, SYSTEM_ERROR, NO_PERMISSION, NO_BUYER_ID, NOT_IN_CURRENT_UNIT."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        first.reply = code
        results = [await producer.send(Message("orders", b"x")) for _ in range(4)]
        assert {result.message_queue.broker_name for result in results} == {"b"}
        assert sends(first, second)[1] == 4

    play(virtual, scene)


def test_send_ends_after_three_attempts(virtual: VirtualTime) -> None:
    """The error lists each of them, with the last one as its cause."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.reply = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendError, match="after 3 attempts") as caught:
            await producer.send(Message("orders", b"x"))
        assert sum(sends(*cluster.brokers)) == caught.value.attempts == 3
        assert caught.value.brokers in {("a", "b", "a"), ("b", "a", "b")}
        assert caught.value.__cause__ is caught.value.causes[-1]

    play(virtual, scene)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL])
def test_other_refusals_are_not_retried(virtual: VirtualTime, code: ResponseCode) -> None:
    """Above all flow control, which retries would make worse."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.reply = code
        with pytest.raises(SendRejectedError, match="as the script says") as caught:
            await producer.send(Message("orders", b"x"))
        assert (caught.value.code, caught.value.attempts) == (code, 1)

    play(virtual, scene)


def test_unavailable_broker_is_skipped(virtual: VirtualTime) -> None:
    """The next attempt goes to another broker."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await cluster.brokers[0].stop()
        for _ in range(4):
            assert (await producer.send(Message("orders", b"x"))).message_queue.broker_name == "b"

    play(virtual, scene)


def test_with_all_brokers_down_the_error_says_so(virtual: VirtualTime) -> None:
    """Three refused connections."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            await broker.stop()
        with pytest.raises(SendError) as caught:
            await producer.send(Message("orders", b"x"))
        assert all(isinstance(cause, ConnectError) for cause in caught.value.causes)

    play(virtual, scene)


def test_timeout_covers_the_whole_send(virtual: VirtualTime) -> None:
    """A broker that does not answer uses all of it, leaving no time for another attempt."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.silent = True
        begun = asyncio.get_running_loop().time()
        with pytest.raises(SendTimeoutError, match="in 3 s") as caught:
            await producer.send(Message("orders", b"x"))
        assert asyncio.get_running_loop().time() == pytest.approx(begun + 3)
        assert isinstance(caught.value.__cause__, RequestTimeout)
        assert caught.value.attempts == 1

    play(virtual, scene)


def test_send_may_have_its_own_timeout(virtual: VirtualTime) -> None:
    """In seconds, for this send alone."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.silent = True
        with pytest.raises(SendTimeoutError) as caught:
            await producer.send(Message("orders", b"x"), timeout=0.25)
        assert caught.value.timeout == 0.25

    play(virtual, scene)


def test_timeout_covers_the_route_lookup(virtual: VirtualTime) -> None:
    """Looking up the topic counts too."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for server in cluster.name_servers:
            server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: None
        with pytest.raises(SendTimeoutError, match="nothing was sent"):
            await producer.send(Message("orders", b"x"), timeout=1)

    play(virtual, scene)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_unsafe_store_is_a_status(virtual: VirtualTime, code: ResponseCode, status: SendStatus) -> None:
    """No error, since the message is stored."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.reply = code
        assert (await producer.send(Message("orders", b"x"))).status is status
        assert sum(sends(*cluster.brokers)) == 1

    play(virtual, scene)


def test_unsafe_store_may_be_retried_elsewhere(virtual: VirtualTime) -> None:
    """With `retry_another_broker_when_not_store_ok`; without a better result, the last one counts."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        first.reply = ResponseCode.FLUSH_DISK_TIMEOUT
        results = [await producer.send(Message("orders", b"x")) for _ in range(4)]
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        second.reply = ResponseCode.FLUSH_DISK_TIMEOUT
        assert (await producer.send(Message("orders", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT

    play(virtual, scene, retry_another_broker_when_not_store_ok=True)


def test_fixed_queue_has_one_attempt(virtual: VirtualTime) -> None:
    """Another queue would break the order that the caller wants."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        queue = MessageQueue("orders", "a", 1)
        assert (await producer.send(Message("orders", b"x"), queue=queue)).message_queue == queue
        first.reply = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendError):
            await producer.send(Message("orders", b"x"), queue=queue)
        assert sends(first, second) == [2, 0]

    play(virtual, scene)


def test_only_the_first_attempt_goes_to_the_first_queue(virtual: VirtualTime) -> None:
    """Whoever took the next queue in turn still gets the message stored if that queue's broker is away."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        for _ in range(3):
            await producer.send(Message("orders", b"x"), first=MessageQueue("orders", "a", 1))
        assert [header.queue_id for header in first.stored] == [1, 1, 1]
        await first.stop()
        await producer.send(Message("orders", b"x"), first=MessageQueue("orders", "a", 1))
        assert sends(second) == [1]

    play(virtual, scene)


def test_selector_chooses_the_queue(virtual: VirtualTime) -> None:
    """Equal arguments give the same queue."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        results = [
            await producer.send(Message("orders", b"x"), selector=select_by_hash, argument="order-7") for _ in range(4)
        ]
        assert len({result.message_queue for result in results}) == 1
        assert results[0].message_queue == select_by_hash(
            await producer.publish_queues("orders"), Message("orders", b"x"), "order-7"
        )

    play(virtual, scene)


def test_queue_of_another_topic_is_refused(virtual: VirtualTime) -> None:
    """Nothing is sent."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        with pytest.raises(IllegalMessageError, match="belongs to topic bills"):
            await producer.send(Message("orders", b"x"), queue=MessageQueue("bills", "a", 0))

    play(virtual, scene)


def test_asynchronous_send_retries_only_lost_connections(virtual: VirtualTime) -> None:
    """A refusal is final, an unavailable broker is not."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        first.reply = second.reply = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendRejectedError):
            await producer.send_async(Message("orders", b"x"))
        assert sum(sends(first, second)) == 1
        second.reply = ResponseCode.SUCCESS
        await first.stop()
        results = await asyncio.gather(*(producer.send_async(Message("orders", b"x")) for _ in range(4)))
        assert {result.message_queue.broker_name for result in results} == {"b"}

    play(virtual, scene)


def test_asynchronous_send_to_a_fixed_queue_stays_there(virtual: VirtualTime) -> None:
    """All its attempts go to one broker."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await cluster.brokers[0].stop()
        with pytest.raises(SendError) as caught:
            await producer.send_async(Message("orders", b"x"), queue=MessageQueue("orders", "a", 0))
        assert caught.value.brokers == ("a", "a", "a")

    play(virtual, scene)


def test_illegal_message_is_raised_at_once(virtual: VirtualTime) -> None:
    """Not through the future, which may never be awaited."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        with pytest.raises(IllegalMessageError):
            producer.send_async(Message("orders", b""))

    play(virtual, scene)


def test_one_way_send_does_not_wait(virtual: VirtualTime) -> None:
    """The broker gets the message and sends no answer."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.silent = True
        await producer.send_oneway(Message("orders", b"x"))
        await asyncio.sleep(0.1)
        sent = [command for broker in cluster.brokers for command in broker.asked if command.code == 310]
        assert [command.is_oneway for command in sent] == [True]

    play(virtual, scene)


def test_one_way_send_without_a_connection_is_an_error(virtual: VirtualTime) -> None:
    """That much is known without an answer."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            await broker.stop()
        with pytest.raises(SendError):
            await producer.send_oneway(Message("orders", b"x"))

    play(virtual, scene)


def test_batch_is_one_request(virtual: VirtualTime) -> None:
    """Code 320 with the batch flag."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        result = await producer.send_batch([Message("orders", b"a"), Message("orders", b"b")])
        assert result.msg_id.count(",") == 1
        assert sum(broker.count(RequestCode.SEND_BATCH_MESSAGE) for broker in cluster.brokers) == 1
        assert [header.batch for broker in cluster.brokers for header in broker.stored] == [True]

    play(virtual, scene)


def test_slow_broker_is_avoided_and_returns(virtual: VirtualTime) -> None:
    """With the fault table on: ten minutes after it failed."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first = cluster.brokers[0]
        first.reply = ResponseCode.SYSTEM_ERROR
        for _ in range(8):
            await producer.send(Message("orders", b"x"))
        failed = len(first.stored)
        assert failed == 1
        first.reply = ResponseCode.SUCCESS
        await asyncio.sleep(599)
        for _ in range(8):
            await producer.send(Message("orders", b"x"))
        assert len(first.stored) == failed
        await asyncio.sleep(2)
        for _ in range(8):
            await producer.send(Message("orders", b"x"))
        assert len(first.stored) == failed + 4

    play(virtual, scene, send_latency_fault_enable=True)


def test_with_all_brokers_avoided_one_is_still_used(virtual: VirtualTime) -> None:
    """A bad broker is better than none."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        for broker in cluster.brokers:
            broker.reply = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendError):
            await producer.send(Message("orders", b"x"))
        for broker in cluster.brokers:
            broker.reply = ResponseCode.SUCCESS
        assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SEND_OK

    play(virtual, scene, send_latency_fault_enable=True)


def test_topic_that_cannot_be_created_is_not_found(virtual: VirtualTime) -> None:
    """It has no route, and the default topic has none either."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        with pytest.raises(TopicNotFoundError, match="no broker creates topics by itself"):
            await producer.send(Message("unknown", b"x"))

    play(virtual, scene)


def test_new_topic_is_sent_by_the_default_route(virtual: VirtualTime) -> None:
    """With at most `default_topic_queue_nums` queues per broker; its own route is looked up soon after."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        cluster.routes["TBW102"] = cluster.route(queues=8)
        assert len(await producer.publish_queues("new")) == 8
        assert (await producer.send(Message("new", b"x"))).message_queue.topic == "new"
        cluster.routes["new"] = cluster.route(queues=1)
        await asyncio.sleep(1)
        assert len(await producer.publish_queues("new")) == 2

    play(virtual, scene)


def test_broker_without_an_address_is_not_found(virtual: VirtualTime) -> None:
    """An order configuration may name brokers that no route has."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        cluster.routes["orders"].order_topic_conf = "gone:4"
        with pytest.raises(SendError) as caught:
            await producer.send(Message("orders", b"x"))
        assert all(isinstance(cause, BrokerNotFoundError) for cause in caught.value.causes)

    play(virtual, scene)


def test_known_topics_work_without_name_servers(virtual: VirtualTime) -> None:
    """Cached routes serve; for a new topic the error names each name server."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await producer.send(Message("orders", b"x"))
        for server in cluster.name_servers:
            await server.stop()
        await asyncio.sleep(300)
        assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SEND_OK
        with pytest.raises(NameServersUnreachableError, match=r"127\.0\.0\.1:9877") as caught:
            await producer.send(Message("unknown", b"x"))
        assert len(caught.value.causes) == 2

    play(virtual, scene)


def test_one_available_name_server_is_enough(virtual: VirtualTime) -> None:
    """Whichever it is."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        await cluster.name_servers[0].stop()
        await producer.send(Message("orders", b"x"))
        await cluster.name_servers[0].start()
        await cluster.name_servers[1].stop()
        cluster.routes["bills"] = cluster.route(queues=1)
        await producer.send(Message("bills", b"x"))

    play(virtual, scene)


def test_vip_channel_is_used_if_configured(virtual: VirtualTime) -> None:
    """Two ports below the broker's."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            vip = ScriptedBroker(cluster.transport, "a", 10909)
            await vip.start()
            async with cluster.producer(vip_channel_enabled=True) as producer:
                await producer.send(Message("orders", b"x"))
            assert sends(cluster.brokers[0], vip) == [0, 1]
            await vip.stop()

    virtual.run(main())


def test_lost_connection_is_opened_again(virtual: VirtualTime) -> None:
    """The current send fails over, the next one reconnects."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, queue = cluster.brokers[0], MessageQueue("orders", "a", 0)
        await producer.send(Message("orders", b"x"), queue=queue)
        first.silent = True
        hanging = producer.send_async(Message("orders", b"x"), queue=queue)
        await asyncio.sleep(0.1)
        await first.stop()
        with pytest.raises(SendError) as caught:
            await hanging
        assert isinstance(caught.value.causes[0], ConnectionLost)
        first.silent = False
        await first.start()
        assert (await producer.send(Message("orders", b"x"), queue=queue)).status is SendStatus.SEND_OK

    play(virtual, scene)


def test_sending_needs_a_started_producer(virtual: VirtualTime) -> None:
    """Neither before the start nor after the end."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            producer = cluster.producer()
            with pytest.raises(ClientStateError, match="not started"):
                await producer.send(Message("orders", b"x"))
            async with producer:
                with pytest.raises(ClientStateError, match="started once"):
                    await producer.start()
            with pytest.raises(ClientStateError, match="shut down"):
                producer.send_async(Message("orders", b"x"))
            await producer.shutdown()

    virtual.run(main())


def test_shutdown_waits_for_pending_sends(virtual: VirtualTime) -> None:
    """No future is left pending."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            async with cluster.producer() as producer:
                futures = [producer.send_async(Message("orders", b"x")) for _ in range(10)]
            assert all(future.done() and future.result().status is SendStatus.SEND_OK for future in futures)

    virtual.run(main())


class NarrowTransport:
    """A memory transport whose connections carry few requests at once."""

    def __init__(self, wide: MemoryTransport, requests: int) -> None:
        self._wide = wide
        self._limits = Limits(max_pending_requests=requests)
        self.serve = wide.serve

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
    ) -> Connection:
        return await self._wide.connect(address, handler=handler, timeout=timeout, limits=self._limits, tls=tls)


class SlowTransport(NarrowTransport):
    """A memory transport whose connections to one address take two seconds to open."""

    def __init__(self, wide: MemoryTransport, address: str) -> None:
        super().__init__(wide, 64)
        self._address = address

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
    ) -> Connection:
        if address == self._address:
            await asyncio.sleep(2)
        return await super().connect(address, handler=handler, timeout=timeout, limits=limits, tls=tls)


def test_the_time_to_connect_counts_towards_the_timeout(virtual: VirtualTime) -> None:
    """A broker that does not answer has only the rest."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            broker = cluster.brokers[0]
            broker.silent = True
            slow = SlowTransport(cluster.transport, broker.address)
            async with Producer("shop", cluster.settings(), transport=slow, clock=virtual.clock) as producer:
                begun = asyncio.get_running_loop().time()
                with pytest.raises(SendTimeoutError):
                    await producer.send(Message("orders", b"x"), timeout=5)
                assert asyncio.get_running_loop().time() - begun == pytest.approx(5)

    virtual.run(main())


def test_full_connection_does_not_count_as_a_broker_fault(virtual: VirtualTime) -> None:
    """The send is retried elsewhere, and the broker is not avoided."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            broker = cluster.brokers[0]
            broker.silent = True
            settings = cluster.settings(send_latency_fault_enable=True)
            async with Producer("shop", settings, transport=NarrowTransport(cluster.transport, 4)) as producer:
                # Messages that share no request.
                sends = [producer.send_async(Message("orders", b"x", wait_store_ok=False)) for _ in range(5)]
                done, _ = await asyncio.wait(sends, timeout=1)
                (failed,) = done
                error = failed.exception()
                assert isinstance(error, SendError)
                assert all(isinstance(cause, TooManyRequests) for cause in error.causes)
                await broker.stop()
                await asyncio.wait(sends)

    virtual.run(main())


def test_unread_sends_are_bounded_in_memory(virtual: VirtualTime) -> None:
    """Their senders wait and time out there; the write buffer is bounded."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            broker, far = cluster.brokers[0], list[Connection]()
            await broker.stop()

            def read_nothing(connection: Connection) -> None:
                assert connection._transport is not None
                connection._transport.pause_reading()
                far.append(connection)

            deaf = await cluster.transport.serve("127.0.0.1", 10911, lambda *_: None, on_connect=read_nothing)
            async with cluster.producer(compress_body_threshold=1 << 30) as producer:
                sends = [producer.send_async(Message("orders", bytes(1_000_000)), timeout=20) for _ in range(60)]
                await asyncio.wait(sends)
                assert all(isinstance(send.exception(), SendTimeoutError) for send in sends)
                near = producer._client.brokers.get(broker.address)
                assert near is not None
                assert near.is_stalled
                assert near._transport is not None
                assert near._transport.get_write_buffer_size() < 7_000_000
                far[0].abort("enough")
            await deaf.close()

    virtual.run(main())


def test_asynchronous_send_with_unsafe_store_is_not_retried(virtual: VirtualTime) -> None:
    """Only `send` retries elsewhere: another copy would be a duplicate."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        first, second = cluster.brokers
        first.reply = second.reply = ResponseCode.FLUSH_DISK_TIMEOUT
        result = await producer.send_async(Message("orders", b"x"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert sum(sends(first, second)) == 1

    play(virtual, scene, retry_another_broker_when_not_store_ok=True)
