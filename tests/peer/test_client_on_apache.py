"""Our client on Apache's broker behaves as on the bundled one."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    MessageModel,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    Reject,
    RetryLater,
    SendStatus,
    Success,
    select_by_hash,
)
from rocket_remoting import Message, MessageExt, MessageQueue, RequestCode, ResponseError, TcpTransport
from rocket_remoting.wire.bodies import ConsumerRunningInfo, SubscriptionGroupConfig, decode_body
from rocket_remoting.wire.headers import GetConsumerRunningInfoRequestHeader
from tests.end_to_end.client_stage import RecordingListener, until
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, LATEST, SEND_TIMEOUT

ONLY_WHEN_TOLD = timedelta(hours=1)
"""How long a member that is not told of others goes without rebalancing, unless set 20 s."""

_numbers = itertools.count(1)


class Clients:
    """Factories of clients of one broker, with their own topic and group."""

    def __init__(self, broker: ApacheBroker, admin: Admin) -> None:
        number = next(_numbers)
        self.broker = broker
        self.admin = admin
        self.topic = f"client-topic-{number}"
        self.group = f"client-group-{number}"

    def producer(self, **settings: Any) -> Producer:
        settings.setdefault("send_timeout", SEND_TIMEOUT)
        return Producer(f"{self.group}-p", ProducerSettings(name_servers=self.broker.name_server, **settings))

    def consumer(self, topic: str = "", group: str = "", tags: str = "*", **settings: Any) -> PushConsumer:
        settings.setdefault("consume_from_where", ConsumeFromWhere.FIRST_OFFSET)
        # With a short timeout, a message could be sent back twice, and be delivered twice.
        settings.setdefault("request_timeout", ANSWER_TIMEOUT)
        consumer = PushConsumer(
            group or self.group, PushConsumerSettings(name_servers=self.broker.name_server, **settings)
        )
        consumer.subscribe(topic or self.topic, tags)
        return consumer

    def concurrent(self, listener: Any, **settings: Any) -> PushConsumer:
        consumer = self.consumer(**settings)
        consumer.listen_concurrently(listener)
        return consumer

    def orderly(self, listener: Any, **settings: Any) -> PushConsumer:
        consumer = self.consumer(**settings)
        consumer.listen_orderly(listener)
        return consumer

    def dead_letters(self, heard: RecordingListener) -> PushConsumer:
        return self.concurrent(heard, topic=f"%DLQ%{self.group}", group=f"{self.group}-graveyard")

    async def send(self, *bodies: bytes, queue: int | None = None) -> None:
        target = None if queue is None else MessageQueue(self.topic, "broker-a", queue)
        async with self.producer() as producer:
            for body in bodies:
                await producer.send(Message(self.topic, body), queue=target)

    async def await_committed(self, consumer: PushConsumer, queue: int, offset: int) -> None:
        """Wait until the broker has this offset of a running member.

        Each pull commits an offset, and Apache's broker may handle the last pull after the offset that the member
        commits at its end.
        """
        async with asyncio.timeout(60):
            while True:
                await consumer.persist_offsets()
                committed = await self.admin.committed_offset(MessageQueue(self.topic, "broker-a", queue), self.group)
                if committed == offset:
                    return
                await asyncio.sleep(0.05)

    def orders_of(self, consumer: PushConsumer) -> set[int]:
        return {queue.queue_id for queue in consumer.assigned if queue.topic == self.topic}


def play(broker: ApacheBroker, scene: Callable[[Clients], Awaitable[None]], queues: int = 4) -> None:
    async def main() -> None:
        settings = ClientSettings(name_servers=broker.name_server, request_timeout=ANSWER_TIMEOUT)
        async with Admin(settings) as admin:
            clients = Clients(broker, admin)
            await admin.create_topic(clients.topic, queues)
            await admin.await_topic(clients.topic, queues=queues, timeout=60)
            await scene(clients)

    asyncio.run(main())


def test_every_kind_of_send_arrives(apache_broker: ApacheBroker) -> None:
    """Synchronous, by future, one way, as a batch, to a queue, by a selector, compressed."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        topic, queue = clients.topic, MessageQueue(clients.topic, "broker-a", 2)
        large = b"large" * 5000
        async with clients.producer() as producer, clients.concurrent(heard):
            sync = await producer.send(Message(topic, b"sync", tags="T", keys=["k1", "k2"], properties={"table": "4"}))
            assert (sync.status, sync.message_queue.broker_name) == (SendStatus.SEND_OK, "broker-a")
            await producer.send_async(Message(topic, b"async"))
            await producer.send_oneway(Message(topic, b"oneway"))
            await producer.send_batch([Message(topic, b"batch 1"), Message(topic, b"batch 2")])
            assert (await producer.send(Message(topic, b"queue"), queue=queue)).message_queue == queue
            chosen = [
                (await producer.send(Message(topic, b"hash"), selector=select_by_hash, argument="N1")).message_queue
                for _ in range(2)
            ]
            assert chosen[0] == chosen[1]
            await producer.send(Message(topic, large))
            await heard.count(9, patience=60)
        expected = [b"sync", b"async", b"oneway", b"batch 1", b"batch 2", b"queue", b"hash", b"hash", large]
        assert sorted(heard.bodies) == sorted(expected)
        first = next(message for message in heard.messages if message.body == b"sync")
        assert (first.tags, first.keys, first.properties["table"]) == ("T", "k1 k2", "4")
        assert first.msg_id == sync.msg_id
        assert {"CLUSTER", "MIN_OFFSET", "MAX_OFFSET"} <= first.properties.keys()

    play(apache_broker, scene)


def test_many_sends_share_a_connection(apache_broker: ApacheBroker) -> None:
    """Two thousand concurrently, in requests that several share. Each is delivered once, from where its result says."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        sent = [b"%d" % number for number in range(2000)]
        async with (
            clients.producer() as producer,
            clients.concurrent(heard),
        ):
            results = await asyncio.gather(*(producer.send_async(Message(clients.topic, body)) for body in sent))
            await heard.count(2000, patience=60)
        assert len(heard.bodies) == len(sent)
        places = {(each.queue_id, each.queue_offset): (each.body, each.offset_message_id) for each in heard.messages}
        for body, result in zip(sent, results, strict=True):
            assert places[result.message_queue.queue_id, result.queue_offset] == (body, result.offset_msg_id)

    play(apache_broker, scene)


def test_first_message_creates_a_topic(apache_broker: ApacheBroker) -> None:
    """By the default topic's route; the waiting consumer finds it."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        topic = f"{clients.topic}-new"
        async with clients.producer() as producer, clients.concurrent(heard, topic=topic):
            await producer.send(Message(topic, b"x"))
            await heard.count(1, patience=60)

    play(apache_broker, scene)


def test_tags_select_the_messages(apache_broker: ApacheBroker) -> None:
    """``Aa`` and ``BB`` have one hash code, which is all the broker compares."""

    async def scene(clients: Clients) -> None:
        heard, queue = RecordingListener(), MessageQueue(clients.topic, "broker-a", 0)
        async with clients.producer() as producer, clients.concurrent(heard, tags="Aa || C"):
            for tag in ("BB", "Aa", "D", "C"):
                await producer.send(Message(clients.topic, tag.encode(), tags=tag), queue=queue)
            await heard.count(2, patience=60)
        assert heard.bodies == [b"Aa", b"C"]

    play(apache_broker, scene)


def test_failed_message_is_redelivered_and_becomes_a_dead_letter(apache_broker: ApacheBroker) -> None:
    """As often as configured, under its own topic and id; the dead letter has the reason."""

    async def scene(clients: Clients) -> None:
        heard, dead = RecordingListener(lambda message: ValueError("no such dish")), RecordingListener()
        async with clients.concurrent(heard, max_reconsume_times=2), clients.dead_letters(dead):
            await clients.send(b"bad")
            await dead.count(1, patience=60)
            await asyncio.sleep(1.5)
        assert [message.reconsume_times for message in heard.messages] == [0, 1, 2]
        assert {message.topic for message in heard.messages} == {clients.topic}
        assert {message.msg_id for message in [*heard.messages, *dead.messages]} == {heard.messages[0].msg_id}
        letter = dead.messages[0]
        assert letter.reconsume_times == 0  # counted anew for the group that reads it
        assert letter.properties["RETRY_TOPIC"] == clients.topic
        assert letter.properties["ORIGIN_MESSAGE_ID"] == heard.messages[0].offset_message_id
        assert letter.properties["FAILURE_MESSAGE"] == "no such dish"

    play(apache_broker, scene)


def test_rejected_and_delayed_messages(apache_broker: ApacheBroker) -> None:
    """One becomes a dead letter at once, the other is redelivered after its delay level."""

    async def scene(clients: Clients) -> None:
        def say(message: MessageExt) -> object:
            if message.body == b"bad":
                return Reject("not edible")
            return RetryLater(2) if message.reconsume_times == 0 else Success()

        heard, dead = RecordingListener(say), RecordingListener()
        async with clients.concurrent(heard), clients.dead_letters(dead):
            await clients.send(b"bad", b"later")
            await heard.count(3, patience=60)
            await dead.count(1, patience=60)
        later = [time for time, body in zip(heard.times, heard.bodies, strict=True) if body == b"later"]
        assert 1.9 < later[1] - later[0] < 2 + LATEST
        assert (dead.bodies, dead.messages[0].properties["FAILURE_MESSAGE"]) == ([b"bad"], "not edible")

    play(apache_broker, scene)


def test_failure_blocks_its_orderly_queue(apache_broker: ApacheBroker) -> None:
    """It is retried in place, then becomes a dead letter; the queue continues."""

    async def scene(clients: Clients) -> None:
        heard, dead = (
            RecordingListener(lambda message: ValueError("no") if message.body == b"bad" else None),
            RecordingListener(),
        )
        settings: dict[str, Any] = {
            "max_reconsume_times": 2,
            "suspend_current_queue_time": timedelta(milliseconds=50),
        }
        await clients.send(b"0", b"bad", b"1", b"2", queue=0)
        async with clients.orderly(heard, **settings), clients.dead_letters(dead):
            await heard.count(6, patience=60)
            await dead.count(1, patience=60)
        assert heard.bodies == [b"0", b"bad", b"bad", b"bad", b"1", b"2"]
        assert dead.messages[0].properties["RETRY_TOPIC"] == clients.topic

    play(apache_broker, scene)


def test_two_members_share_and_one_takes_over(apache_broker: ApacheBroker) -> None:
    """Half the queues each; when one leaves, the other is notified and takes all of them."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        reported: dict[str, Any] = {"rebalance_interval": ONLY_WHEN_TOLD}
        async with clients.concurrent(heard, **reported) as stays, clients.producer() as producer:
            leaves = clients.concurrent(heard, **reported)
            await leaves.start()
            await until(lambda: clients.orders_of(stays) | clients.orders_of(leaves) == {0, 1, 2, 3}, seconds=60)
            await until(lambda: len(clients.orders_of(stays)) == len(clients.orders_of(leaves)) == 2, seconds=60)
            await asyncio.gather(*(producer.send(Message(clients.topic, b"%d" % number)) for number in range(100)))
            await heard.count(100, patience=60)
            await leaves.shutdown()
            await until(lambda: clients.orders_of(stays) == {0, 1, 2, 3}, seconds=60)
        assert sorted(heard.bodies) == sorted(b"%d" % number for number in range(100))

    play(apache_broker, scene)


def test_orderly_members_hand_their_queues_over(apache_broker: ApacheBroker) -> None:
    """Locked by one, then by the other, in order."""

    async def scene(clients: Clients) -> None:
        seen: dict[int, list[int]] = {number: [] for number in range(4)}

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            await asyncio.sleep(0.005)
            seen[context.message_queue.queue_id].extend(message.queue_offset for message in messages)

        await clients.send(*(b"%d" % number for number in range(200)))
        async with clients.orderly(listen):
            await until(lambda: sum(map(len, seen.values())) > 20, seconds=60)
            async with clients.orderly(listen) as second:
                await until(lambda: len(clients.orders_of(second)) == 2, seconds=60)
                await until(lambda: all(len(set(offsets)) == 50 for offsets in seen.values()), seconds=60)
        for offsets in seen.values():
            assert list(dict.fromkeys(offsets)) == list(range(50))

    play(apache_broker, scene)


def test_next_member_starts_at_the_committed_offsets(apache_broker: ApacheBroker) -> None:
    """Without duplicates or loss."""

    async def scene(clients: Clients) -> None:
        first, second = RecordingListener(), RecordingListener()
        await clients.send(b"1", b"2", queue=1)
        async with clients.concurrent(first) as member:
            await first.count(2, patience=60)
            await clients.await_committed(member, 1, 2)
        await clients.send(b"3", queue=1)
        async with clients.concurrent(second) as member:
            await second.count(1, patience=60)
            await clients.await_committed(member, 1, 3)
        assert (first.bodies, second.bodies) == ([b"1", b"2"], [b"3"])
        assert await clients.admin.committed_offset(MessageQueue(clients.topic, "broker-a", 1), clients.group) == 3

    play(apache_broker, scene)


@pytest.mark.parametrize("committed", [None, 0])
def test_new_group_may_start_at_a_time(apache_broker: ApacheBroker, committed: int | None) -> None:
    """It gets the messages stored since then, also from a young queue; a group at offset 0 gets all of them."""

    async def scene(clients: Clients) -> None:
        await clients.send(*(b"%d" % number for number in range(8)), queue=0)
        first = RecordingListener()
        async with clients.concurrent(first, group=f"{clients.group}-all"):
            await first.count(8)
        stored = {message.body: message.store_timestamp for message in first.messages}
        since = stored[b"4"]
        if committed is not None:
            await clients.admin.create_group(SubscriptionGroupConfig(group_name=clients.group))
            await clients.admin.commit_offset(MessageQueue(clients.topic, "broker-a", 0), clients.group, committed)
        expected = [body for body in stored if committed is not None or stored[body] >= since]
        heard = RecordingListener()
        moment = datetime.fromtimestamp(since / 1000, UTC)
        start = {"consume_from_where": ConsumeFromWhere.TIMESTAMP, "consume_timestamp": moment}
        async with clients.concurrent(heard, **start):
            await clients.send(b"last", queue=0)
            await until(lambda: b"last" in heard.bodies, 60)
        assert sorted(heard.bodies) == sorted([*expected, b"last"])

    play(apache_broker, scene, queues=2)


def test_broadcasting_reaches_every_member(apache_broker: ApacheBroker, tmp_path: Path) -> None:
    """Each receives everything; a returning one continues at its offsets."""

    async def scene(clients: Clients) -> None:
        one, two, again = RecordingListener(), RecordingListener(), RecordingListener()
        settings: dict[str, Any] = {
            "message_model": MessageModel.BROADCASTING,
            "local_offset_store_dir": tmp_path,
        }
        async with (
            clients.concurrent(one, instance_name="one", **settings),
            clients.concurrent(two, instance_name="two", **settings),
        ):
            await clients.send(b"a", b"b", b"c", queue=0)
            await one.count(3, patience=60)
            await two.count(3, patience=60)
        await clients.send(b"d", queue=0)
        async with clients.concurrent(again, instance_name="one", **settings):
            await again.count(1, patience=60)
        assert (one.bodies, two.bodies, again.bodies) == ([b"a", b"b", b"c"], [b"a", b"b", b"c"], [b"d"])

    play(apache_broker, scene)


def test_queues_added_to_a_live_topic_are_picked_up(apache_broker: ApacheBroker) -> None:
    """At the next refresh of routes, here every second."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        often: dict[str, Any] = {"poll_name_server_interval": timedelta(seconds=1)}
        async with clients.concurrent(heard, **often) as consumer, clients.producer(**often) as producer:
            await producer.send(Message(clients.topic, b"x"))
            await clients.admin.create_topic(clients.topic, 8)
            await until(lambda: len(clients.orders_of(consumer)) == 8, seconds=60)
            await producer.send(Message(clients.topic, b"y"), queue=MessageQueue(clients.topic, "broker-a", 7))
            await heard.count(2, patience=60)

    play(apache_broker, scene)


def test_order_configuration_determines_producers_queues(apache_broker: ApacheBroker) -> None:
    """The name server returns it in the route."""

    async def scene(clients: Clients) -> None:
        await clients.admin.set_order_conf(clients.topic, "broker-a:2")
        async with clients.producer(instance_name="a client of its own, with no route yet") as producer:
            assert [queue.queue_id for queue in await producer.publish_queues(clients.topic)] == [0, 1]
            assert (await producer.send(Message(clients.topic, b"x"))).message_queue.queue_id in {0, 1}
        await clients.admin.delete_order_conf(clients.topic)

    play(apache_broker, scene)


def test_administration(apache_broker: ApacheBroker) -> None:
    """Offset ranges, messages by id and by key, resets of an online group, running info."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        admin, queue = clients.admin, MessageQueue(clients.topic, "broker-a", 0)
        async with (
            clients.producer() as producer,
            clients.concurrent(heard, broker_suspend_max_time=timedelta(seconds=1)) as consumer,
        ):
            result = await producer.send(Message(clients.topic, b"coffee", keys="table-4"), queue=queue)
            await heard.count(1, patience=60)
            assert (await admin.topic_stats(clients.topic))[queue].max_offset == 1
            assert (await admin.view_message(result.offset_msg_id)).body == b"coffee"
            found: list[MessageExt] = []
            while not found:  # the index is built a moment later
                found = await admin.query_by_key(clients.topic, "table-4")
                await asyncio.sleep(0.05)
            assert found[0].msg_id == result.msg_id
            assert (await admin.query_by_unique_key(clients.topic, result.msg_id))[0].body == b"coffee"
            info = await running_info(clients, consumer)
            assert queue in info.mq_table
            assert clients.topic in {subscription.topic for subscription in info.subscription_set}
            await consumer.persist_offsets()
            await reset_to_the_begin(clients)
            await heard.count(2, patience=60)
            connection = await admin.consumer_connections(clients.group)
            assert [member.client_id for member in connection.connection_set] == [consumer.client_id]

    play(apache_broker, scene)


async def reset_to_the_begin(clients: Clients) -> None:
    """Reset the group to the beginning; Apache's broker refuses until every queue has a committed offset."""
    async with asyncio.timeout(60):
        while True:
            try:
                await clients.admin.reset_offsets(clients.group, clients.topic, 0)
            except ResponseError:
                await asyncio.sleep(0.1)
            else:
                return


async def running_info(clients: Clients, consumer: PushConsumer) -> ConsumerRunningInfo:
    connection = await TcpTransport().connect(clients.broker.address)
    header = GetConsumerRunningInfoRequestHeader(consumer_group=clients.group, client_id=consumer.client_id)
    response = await connection.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=60)
    await connection.close()
    return decode_body(response.body, ConsumerRunningInfo)


@pytest.mark.slow
def test_traffic_continues_without_the_name_server(
    apache_broker_factory: Callable[..., ApacheBroker], apache_broker: ApacheBroker
) -> None:
    """Running producers and consumers have their routes; members still take over from each other."""

    async def scene(clients: Clients) -> None:
        heard = RecordingListener()
        reported: dict[str, Any] = {"rebalance_interval": ONLY_WHEN_TOLD}
        async with clients.concurrent(heard, **reported) as stays, clients.producer() as producer:
            leaves = clients.concurrent(heard, **reported)
            await leaves.start()
            await producer.send(Message(clients.topic, b"0"))
            await asyncio.to_thread(clients.broker.stop_name_server)
            for number in range(1, 20):
                await producer.send(Message(clients.topic, b"%d" % number))
            await heard.count(20, patience=60)
            await leaves.shutdown()
            await until(lambda: clients.orders_of(stays) == {0, 1, 2, 3}, seconds=60)

    play(apache_broker_factory(apache_broker.version), scene)
