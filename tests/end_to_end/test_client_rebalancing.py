"""Rebalancing on the bundled broker: members join and leave, topics grow, brokers restart."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from rocket_client import (
    AllocateMessageQueueStrategy,
    ByConfig,
    ConsistentHash,
    ConsumeContext,
    PushConsumer,
    averagely,
    averagely_by_circle,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from streamkit.binder.permits import Permits
from tests.end_to_end.client_stage import ClientStage, RecordingListener, orders_of, play, stop_and_restart, until


async def seconds_until(condition: Callable[[], bool]) -> float:
    begun = asyncio.get_running_loop().time()
    await until(condition)
    return asyncio.get_running_loop().time() - begun


def queue_ids(consumer: PushConsumer) -> list[int]:
    return sorted(queue.queue_id for queue in orders_of(consumer))


def test_consumer_has_its_queues_when_start_returns() -> None:
    """All of the topic and of the group's retry topic, if it is alone."""

    async def scene(stage: ClientStage) -> None:
        async with stage.concurrent(RecordingListener()) as consumer:
            assert queue_ids(consumer) == [0, 1, 2, 3]
            await until(lambda: MessageQueue("%RETRY%kitchen", "broker-a", 0) in consumer.assigned)
        assert consumer.assigned == frozenset()

    play(scene)


def test_two_members_share_the_queues() -> None:
    """Half each, soon after the second one started."""

    async def scene(stage: ClientStage) -> None:
        async with stage.concurrent(RecordingListener()) as one, stage.concurrent(RecordingListener()) as other:
            assert await seconds_until(lambda: len(orders_of(one)) == len(orders_of(other)) == 2) < 0.5
            assert sorted(queue_ids(one) + queue_ids(other)) == [0, 1, 2, 3]

    play(scene)


def test_members_started_together_share_at_once() -> None:
    """A notice that arrives during a start is not lost."""

    async def scene(stage: ClientStage) -> None:
        members = [stage.concurrent(RecordingListener()) for _ in range(4)]
        await asyncio.gather(*(member.start() for member in members))
        assert await seconds_until(lambda: all(len(orders_of(member)) == 1 for member in members)) < 0.5
        await asyncio.gather(*(member.shutdown() for member in members))

    play(scene)


def test_excess_members_are_idle() -> None:
    """A queue has one consumer of a group."""

    async def scene(stage: ClientStage) -> None:
        members = [stage.concurrent(RecordingListener()) for _ in range(6)]
        await asyncio.gather(*(member.start() for member in members))
        await until(lambda: sorted(len(orders_of(member)) for member in members) == [0, 0, 1, 1, 1, 1])
        await asyncio.gather(*(member.shutdown() for member in members))

    play(scene)


def test_queues_of_a_leaving_member_are_taken_over_within_half_a_second() -> None:
    """Its offsets are committed, so nothing is repeated or lost."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: asyncio.sleep(0.005))
        async with stage.concurrent(heard) as stays, stage.producer() as producer:
            leaves = stage.concurrent(heard)
            await leaves.start()
            await until(lambda: len(orders_of(leaves)) == 2)
            sent = [b"%d" % number for number in range(300)]
            results = [producer.send_async(Message("orders", body)) for body in sent[:150]]
            await leaves.shutdown()
            assert await seconds_until(lambda: len(orders_of(stays)) == 4) < 0.5
            results += [producer.send_async(Message("orders", body)) for body in sent[150:]]
            await asyncio.gather(*results)
            await heard.count(300)
            await asyncio.sleep(60)
        assert Counter(heard.bodies) == Counter(sent)

    play(scene)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_joining_member_starts_behind_the_consumed_messages(mode: str) -> None:
    """Calls in progress complete and are committed before the queue changes its owner."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: asyncio.sleep(0.07))
        first, second = (getattr(stage, mode)(heard) for _ in range(2))
        sent = [b"%d" % number for number in range(200)]
        async with first, stage.producer() as producer, asyncio.TaskGroup() as sending:
            for number, body in enumerate(sent):
                sending.create_task(producer.send(Message("orders", body)))
                if number == 100:
                    sending.create_task(second.start())
                await asyncio.sleep(0.01)
            await heard.count(200)
            assert len(orders_of(first)) == len(orders_of(second)) == 2
            await second.shutdown()
            await asyncio.sleep(60)
        assert Counter(heard.bodies) == Counter(sent)

    play(scene)


def test_late_call_of_a_leaving_member_does_not_move_the_offset_back() -> None:
    """It outlasts the stop; the new member's offset stays."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()
        first, second = RecordingListener(lambda message: never.wait()), RecordingListener()
        for queue in range(2):
            await stage.send([b"%d" % queue], queue=queue)
        leaver = stage.concurrent(first, await_termination=timedelta(seconds=20))
        await leaver.start()
        await first.count(2)
        taker = stage.concurrent(second)
        joining = asyncio.create_task(taker.start())
        while len(orders_of(leaver)) == 2:  # noqa: ASYNC110  # a moment later the queue is given back
            await asyncio.sleep(0.01)
        leaving = asyncio.create_task(leaver.shutdown())
        await joining
        await second.count(1)
        (taken,) = {queue.queue_id for queue in orders_of(taker)}
        await asyncio.sleep(12)
        assert not leaving.done()
        assert stage.broker.broker.offsets.get("kitchen", "orders", taken) == 1
        await leaving
        assert stage.broker.broker.offsets.get("kitchen", "orders", taken) == 1
        await taker.shutdown()

    play(scene, queues=2)


def test_waiting_messages_leave_with_their_queue() -> None:
    """Calls start within the concurrency limit only, so a queue's new member alone handles its waiting messages."""

    async def scene(stage: ClientStage) -> None:
        def member() -> PushConsumer:
            capacity = Permits(2)

            async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
                assert capacity.free > 0
                await capacity.acquire()
                await heard(messages, context)
                await asyncio.sleep(0.05)
                capacity.release()

            consumer = stage.consumer()
            consumer.listen_concurrently(listen, capacity)
            return consumer

        heard = RecordingListener()
        sent = [b"%d" % number for number in range(200)]
        await stage.send(sent)
        async with member():
            await heard.count(20)
            assert len(heard.messages) < 40
            async with member():
                await heard.count(200)
            await asyncio.sleep(60)
        assert Counter(heard.bodies) == Counter(sent)

    play(scene)


def test_dead_member_is_replaced_when_its_connection_closes() -> None:
    """The broker notifies the others."""

    async def scene(stage: ClientStage) -> None:
        async with stage.concurrent(RecordingListener()) as lives:
            dies = stage.concurrent(RecordingListener())
            await dies.start()
            await until(lambda: len(orders_of(dies)) == 2)
            for task in (*dies._client._tasks, *dies._rebalancer._pulls.values(), dies._rebalancer._running):
                if task is not None:
                    task.cancel()
            await dies._client.brokers.close()
            assert await seconds_until(lambda: len(orders_of(lives)) == 4) < 0.5
            await dies.shutdown()

    play(scene)


def test_queues_added_to_a_live_topic_are_picked_up() -> None:
    """By consumer and producer at the next refresh of routes, within 30 s."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer, stage.producer() as producer, stage.admin() as admin:
            await producer.send(Message("orders", b"x"))
            await admin.create_topic("orders", 12)
            assert await seconds_until(lambda: len(orders_of(consumer)) == 12) <= 61
            queues = {(await producer.send(Message("orders", b"x"))).message_queue for _ in range(12)}
            assert len(queues) == 12
            await heard.count(13)

    play(scene)


def test_failing_strategy_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and retried; at the start it is an error."""

    async def scene(stage: ClientStage) -> None:
        broken = False

        def strategy(
            group: str, client: str, queues: Sequence[MessageQueue], members: Sequence[str]
        ) -> list[MessageQueue]:
            if broken:
                raise RuntimeError("no idea")
            return averagely(group, client, queues, members)

        async with stage.concurrent(RecordingListener(), allocate_message_queue_strategy=strategy) as consumer:
            broken = True
            consumer.rebalance_soon()
            await asyncio.sleep(5)
            assert queue_ids(consumer) == [0, 1, 2, 3]
            with pytest.raises(RuntimeError, match="no idea"):
                await stage.concurrent(RecordingListener(), allocate_message_queue_strategy=strategy).start()

    play(scene)
    assert "rebalancing failed" in caplog.text


def test_strategy_that_fails_for_one_topic_assigns_the_others() -> None:
    """A queue revoked elsewhere is taken over nevertheless."""

    async def scene(stage: ClientStage) -> None:
        def strategy(
            group: str, client: str, queues: Sequence[MessageQueue], members: Sequence[str]
        ) -> list[MessageQueue]:
            if queues[0].topic == "odd":
                raise RuntimeError("no idea")
            return averagely(group, client, queues, members)

        await stage.topic("odd")
        leaver = stage.concurrent(RecordingListener(), allocate_message_queue_strategy=strategy)
        await leaver.start()
        async with stage.concurrent(RecordingListener(), allocate_message_queue_strategy=strategy) as stays:
            await until(lambda: len(orders_of(stays)) == 2)
            stays.subscribe("odd")
            await asyncio.sleep(1)
            await leaver.shutdown()
            await until(lambda: queue_ids(stays) == [0, 1, 2, 3], 30)

    play(scene)


def test_topic_created_later_is_found() -> None:
    """Its first message creates it, after the consumer started."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        consumer = stage.consumer(topic="later")
        consumer.listen_concurrently(heard)
        async with consumer:
            await asyncio.sleep(5)
            assert not [queue for queue in consumer.assigned if queue.topic == "later"]
            await stage.send([b"x"], topic="later")
            assert await seconds_until(lambda: bool(heard.messages)) <= 30
        assert heard.bodies == [b"x"]

    play(scene)


def test_subscriptions_can_change_while_running() -> None:
    """Further topics are consumed, removed ones are not."""

    async def scene(stage: ClientStage) -> None:
        await stage.topic("bills", queues=1)
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer:
            consumer.subscribe("bills")
            await until(lambda: MessageQueue("bills", "broker-a", 0) in consumer.assigned)
            await stage.send([b"bill"], topic="bills")
            await heard.count(1)
            consumer.unsubscribe("orders")
            await until(lambda: not orders_of(consumer))
            await stage.send([b"order"])
            await asyncio.sleep(60)
        assert heard.bodies == [b"bill"]

    play(scene)


def test_changed_expression_applies_to_the_next_pull() -> None:
    """The broker gets it before."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard, tags="A") as consumer, stage.producer() as producer:
            await producer.send(Message("orders", b"A", tags="A"))
            await heard.count(1)
            consumer.subscribe("orders", "B")
            await asyncio.sleep(20)
            for tag in ("A", "B"):
                await producer.send(Message("orders", tag.encode(), tags=tag))
            await heard.count(2)
            await asyncio.sleep(20)
        assert heard.bodies == [b"A", b"B"]

    play(scene)


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (averagely_by_circle, {(0, 2), (1, 3)}),
        (ByConfig([MessageQueue("orders", "broker-a", 1)]), {(1,)}),
        (ConsistentHash(), None),
    ],
)
def test_allocation_strategy_is_a_setting(
    strategy: AllocateMessageQueueStrategy, shares: set[tuple[int, ...]] | None
) -> None:
    """All members use the same one."""

    async def scene(stage: ClientStage) -> None:
        settings: dict[str, Any] = {"allocate_message_queue_strategy": strategy}
        async with (
            stage.concurrent(RecordingListener(), **settings) as one,
            stage.concurrent(RecordingListener(), **settings) as other,
        ):
            await asyncio.sleep(1)
            found = {tuple(queue_ids(one)), tuple(queue_ids(other))}
            if shares is not None:
                assert found == shares
            else:
                assert sorted(queue_ids(one) + queue_ids(other)) == [0, 1, 2, 3]

    play(scene)


def test_consumers_register_with_a_restarted_broker() -> None:
    """They send a heartbeat on the new connection before they pull; no acknowledged message is lost."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard), stage.producer() as producer:
            await producer.send(Message("orders", b"before"))
            await heard.count(1)
            await asyncio.sleep(6)
            await stop_and_restart(stage)
            await producer.send(Message("orders", b"after"))
            assert await seconds_until(lambda: len(heard.messages) == 2) < 10
            await asyncio.sleep(60)
        assert heard.bodies == [b"before", b"after"]

    play(scene)


def test_outage_is_logged_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Not for each queue of the broker."""

    async def scene(stage: ClientStage) -> None:
        async with stage.concurrent(RecordingListener()):
            await stop_and_restart(stage, seconds=30)
            await asyncio.sleep(60)

    play(scene)
    reported = [record.getMessage() for record in caplog.records if record.name == "rocket_client.consuming.pulling"]
    assert len(reported) == len(set(reported)) <= 3
    assert "of orders at broker-a at offset 0 failed" in reported[0]
    assert reported[-1] == "group kitchen: broker broker-a can be reached again"


def test_orderly_consumer_survives_a_broker_restart() -> None:
    """Its locks were lost and are taken again."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.orderly(heard) as consumer:
            await stage.send([b"before"], queue=0)
            await heard.count(1)
            await asyncio.sleep(6)
            await stop_and_restart(stage)
            await asyncio.sleep(60)
            assert all(queue.locked_at is not None for queue in consumer.process_queues)
            await stage.send([b"after"], queue=0)
            await heard.count(2)
        assert heard.bodies == [b"before", b"after"]

    play(scene)


def test_traffic_continues_without_the_name_server() -> None:
    """With the known routes; members still join and leave."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with (
            stage.concurrent(heard) as one,
            stage.concurrent(heard) as other,
            stage.producer() as producer,
        ):
            await producer.send(Message("orders", b"0"))
            await stage.broker.name_server.stop()
            await asyncio.sleep(300)
            for number in range(1, 20):
                await producer.send(Message("orders", b"%d" % number))
            await heard.count(20)
            await other.shutdown()
            assert await seconds_until(lambda: len(orders_of(one)) == 4) < 0.5

    play(scene)
