"""Stories of messages, and dead letters, on Apache's brokers; one message each way through Kafka."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta

from rocket_admin.dead_letters import DeadLetter, by_cause, dead_letter_groups, dead_letters, drop_dead_letters
from rocket_admin.messages import messages_between, messages_with_id, messages_with_key, send_message
from rocket_admin.replays import Replay, replay_dead_letters
from rocket_admin.stories import GroupState, GroupStory, story
from rocket_admin.tailing import Tail, tail
from rocket_admin.times import moment
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    PushConsumer,
    PushConsumerSettings,
    RetryLater,
)
from rocket_remoting import Message, MessageExt
from streamkit.cli.destinations import Asked, receive, send
from streamkit.messaging.message import Message as FrameworkMessage
from tests.end_to_end.client_stage import RecordingListener
from tests.peer.apache import ApacheBroker
from tests.peer.kafka import KafkaServer
from tests.peer.stage import ANSWER_TIMEOUT

_numbers = itertools.count(1)
REDELIVERIES = 1
"""Redeliveries of a message before it is a dead letter."""


def operate(broker: ApacheBroker, scene: Callable[[Admin, str], Awaitable[None]]) -> None:
    """Run a scene with an admin and a topic of its own with one queue."""

    async def main() -> None:
        settings = ClientSettings(name_servers=broker.name_server, request_timeout=ANSWER_TIMEOUT)
        async with Admin(settings) as admin:
            topic = f"operated-{next(_numbers)}"
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, queues=1, timeout=60)
            await scene(admin, topic)

    asyncio.run(main())


def consumer(admin: Admin, topic: str, group: str, heard: RecordingListener) -> PushConsumer:
    """Return a member of a group that receives from the first message on."""
    made = PushConsumer(
        group,
        PushConsumerSettings(
            name_servers=admin.settings.name_servers,
            request_timeout=ANSWER_TIMEOUT,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            max_reconsume_times=REDELIVERIES,
        ),
    )
    made.subscribe(topic)
    made.listen_concurrently(heard)
    return made


async def until_state(admin: Admin, message_id: str, topic: str, group: str, state: GroupState) -> GroupStory:
    """Return a group's part of a story once it is in a state: brokers build indexes a moment after they answer."""
    async with asyncio.timeout(60):
        while True:
            found = await story(admin, message_id, topic, [group])
            if found is not None and found.groups[0].state is state:
                return found.groups[0]
            await asyncio.sleep(0.1)


async def last_of(admin: Admin, topic: str, count: int) -> MessageExt:
    """Return the last of a topic's messages once it has so many: Apache's brokers add them after their answers."""
    async with asyncio.timeout(60):
        while True:
            found = [each async for each in tail(admin, Tail(topic=topic, offset=0, follows=False))]
            if len(found) >= count:
                return found[-1]
            await asyncio.sleep(0.05)


def test_story_and_dead_letter_of_a_message(apache_broker: ApacheBroker) -> None:
    """It is found, followed through its redeliveries, sent back and dropped as on the bundled broker."""

    async def scene(admin: Admin, topic: str) -> None:
        group, other = f"{topic}-kitchen", f"{topic}-waiters"

        def fail(message: MessageExt) -> RetryLater:
            return RetryLater(1, ValueError(f"no dish {message.reconsume_times}"))

        heard, fine = RecordingListener(fail), RecordingListener()
        async with consumer(admin, topic, group, heard), consumer(admin, topic, other, fine):
            sent = await send_message(admin, Message(topic, b"coffee", keys="o-1", properties={"colour": "red"}))
            await fine.count(1, patience=60)
            await heard.count(REDELIVERIES + 1, patience=60)
            dead = await until_state(admin, sent.message_id, topic, group, GroupState.DEAD)
        await until_state(admin, sent.message_id, topic, other, GroupState.CONSUMED)
        assert [each.outcome for each in dead.deliveries] == ["failed"] * 2
        causes = [each.cause and each.cause.message for each in dead.deliveries]
        assert causes == ["no dish 0", "no dish 1"]
        times = [each.failed_at for each in dead.deliveries]
        assert sorted(filter(None, times)) == times

        (stored,) = await messages_with_id(admin, sent.message_id, topic)
        assert [each.queue_offset for each in await messages_with_key(admin, topic, "o-1")] == [0]
        at = moment(stored.store_timestamp)
        around = await messages_between(admin, topic, at, at + timedelta(minutes=1))
        assert [bytes(each.body) for each in around] == [b"coffee"]
        whole = await story(admin, sent.message_id)
        assert whole is not None
        assert {each.group for each in whole.groups} == {group, other}

        assert [each.count async for each in dead_letter_groups(admin, [group])] == [1]
        (letter,) = [letter async for letter in dead_letters(admin, group)]
        told = DeadLetter.of(letter)
        assert (told.origin_topic, told.origin_queue, told.origin_offset) == (topic, 0, 0)
        assert [(each.type, each.count) for each in by_cause([letter])] == [("builtins.ValueError", 1)]
        (again,) = [each async for each in replay_dead_letters(admin, Replay(group=group))]
        replayed = await last_of(admin, topic, 2)
        assert (replayed.unique_key, replayed.reconsume_times, replayed.keys) == (again.message_id, 0, "o-1")
        assert [letter async for letter in dead_letters(admin, group)] == []
        assert [each.count for each in await drop_dead_letters(admin, group)] == [0]

        alone = Replay(group=group, to_group_alone=True, with_dropped=True)
        assert [each.topic async for each in replay_dead_letters(admin, alone)] == [f"%RETRY%{group}"]
        mended = RecordingListener()
        async with consumer(admin, topic, group, mended):
            await mended.count(2, patience=60)
        assert {(each.topic, each.body, each.reconsume_times) for each in mended.messages} == {(topic, b"coffee", 0)}

    operate(apache_broker, scene)


def test_message_sent_by_a_command_arrives_through_kafka(kafka_server: KafkaServer) -> None:
    """`streamkit send` and `streamkit tail` reach Kafka by its binder."""
    settings = (f"--spring.cloud.stream.kafka.binder.brokers={kafka_server.address}",)
    asked = Asked(f"operated-{next(_numbers)}", "kafka", settings)

    async def exchange() -> FrameworkMessage[bytes]:
        arrived: list[FrameworkMessage[bytes]] = []
        listening = asyncio.Event()
        receiving = asyncio.create_task(receive(asked, arrived.append, 1, lambda place: listening.set()))
        begun = asyncio.create_task(listening.wait())
        await asyncio.wait({receiving, begun}, return_when=asyncio.FIRST_COMPLETED)
        while not receiving.done():
            await send(asked, b'{"table": 7}', {"priority": "5"}, None)
        await receiving
        return arrived[0]

    message = asyncio.run(exchange())
    assert bytes(message.payload) == b'{"table": 7}'
    assert message.headers["priority"] == "5"
