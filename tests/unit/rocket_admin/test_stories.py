"""The story of a message, on the bundled broker in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from rocket_admin.stories import GroupState, GroupStory, Story, story
from rocket_client import Admin, MessageModel, Reject, RetryLater
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play


def tell(scene: Callable[[ClientStage, Admin], Awaitable[None]]) -> None:
    """Run a scene with an admin and a topic `orders` of one queue."""

    async def with_admin(stage: ClientStage) -> None:
        async with stage.admin() as admin:
            await scene(stage, admin)

    play(with_admin, queues=1)


async def told(admin: Admin, message_id: str, topic: str | None = None) -> Story:
    found = await story(admin, message_id, topic)
    assert found is not None
    return found


def of(group: str, found: Story) -> GroupStory:
    return next(each for each in found.groups if each.group == group)


def test_story_of_a_consumed_and_of_a_waiting_message() -> None:
    """By both ids, with and without the topic; a waiting message says how many come before it."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard):
            await stage.send([b"a"])
            await heard.count(1)
        waiting = (await stage.send([b"b", b"c"]))[-1]
        for found in [
            await told(admin, waiting.msg_id),
            await told(admin, waiting.msg_id, "orders"),
            await told(admin, waiting.offset_msg_id),
        ]:
            assert (found.message.body, found.message.broker, found.message.offset) == ("c", "broker-a", 2)
            kitchen = of("kitchen", found)
            assert (kitchen.state, kitchen.ahead, kitchen.members) == (GroupState.WAITING, 1, None)
            assert kitchen.detail == "not consumed: no member of the group is connected; 1 of its queue come before it"
            assert [(each.number, each.outcome) for each in kitchen.deliveries] == [(1, "pending")]
        consumed = of("kitchen", await told(admin, heard.messages[0].msg_id))
        assert (consumed.state, consumed.committed, consumed.ahead) == (GroupState.CONSUMED, 1, None)
        assert await story(admin, "7F000001" * 4) is None

    tell(scene)


def test_story_of_a_message_that_waits_for_its_redelivery_and_dies() -> None:
    """Each delivery has its time and cause; the next one is known; in the end there is a dead letter."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        def fail(message: MessageExt) -> RetryLater:
            return RetryLater(0, ValueError(f"no dish in delivery {message.reconsume_times + 1}"))

        heard, other = RecordingListener(fail), RecordingListener()
        async with (
            stage.concurrent(heard, max_reconsume_times=2),
            stage.concurrent(other, "waiters"),
        ):
            (sent,) = await stage.send([b"x"])
            await heard.count(2)
            await asyncio.sleep(1)
            found = await told(admin, sent.msg_id)
            kitchen = of("kitchen", found)
            assert (kitchen.state, kitchen.redeliveries, kitchen.members) == (GroupState.RETRY_WAITING, 2, 1)
            assert kitchen.detail == "redelivery 2 is not due yet"
            first, second, third = kitchen.deliveries
            assert [each.outcome for each in kitchen.deliveries] == ["failed", "failed", "scheduled"]
            assert first.cause is not None
            assert (first.cause.type, first.cause.message) == ("builtins.ValueError", "no dish in delivery 1")
            assert second.due_at is not None
            assert first.failed_at is not None
            assert timedelta(seconds=9) < second.due_at - first.failed_at < timedelta(seconds=12)
            assert kitchen.next_delivery == third.due_at
            assert third.due_at is not None
            assert second.failed_at is not None
            assert third.due_at - second.failed_at == timedelta(seconds=30)
            assert of("waiters", found).state is GroupState.CONSUMED
            await heard.count(3)
            await asyncio.sleep(60)
        dead = of("kitchen", await told(admin, sent.msg_id))
        assert (dead.state, dead.detail) == (
            GroupState.DEAD,
            "given up after 2 redeliveries: it is in %DLQ%kitchen",
        )
        assert [each.outcome for each in dead.deliveries] == ["failed"] * 3
        assert dead.deliveries[-1].cause is not None
        assert dead.deliveries[-1].cause.message == "no dish in delivery 3"
        assert dead.dead_letter is not None
        # The dead letter tells the same story.
        again = await told(admin, dead.dead_letter)
        assert again.is_original
        assert again.message.offset_message_id == sent.offset_msg_id
        assert [copy.topic for copy in again.copies] == [
            "orders",
            "SCHEDULE_TOPIC_XXXX",
            "%RETRY%kitchen",
            "SCHEDULE_TOPIC_XXXX",
            "%RETRY%kitchen",
            "%DLQ%kitchen",
        ]

    tell(scene)


def test_story_of_a_message_that_was_consumed_by_a_redelivery() -> None:
    """The state is known from the group's offset in its retry topic."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener(lambda message: None if message.reconsume_times else RetryLater(1))
        async with stage.concurrent(heard):
            (sent,) = await stage.send([b"x"])
            await heard.count(2)
            await asyncio.sleep(30)
        kitchen = of("kitchen", await told(admin, sent.msg_id))
        assert (kitchen.state, kitchen.detail) == (GroupState.CONSUMED, "consumed after 1 redelivery")
        assert [each.outcome for each in kitchen.deliveries] == ["failed", "consumed"]

    tell(scene)


def test_story_says_what_is_not_known() -> None:
    """A rejection without a text has no cause, broadcasting has no offsets, a filter passes messages over."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async with (
            stage.concurrent(RecordingListener(lambda message: Reject()), "rejecting"),
            stage.concurrent(RecordingListener(), "everybody", message_model=MessageModel.BROADCASTING),
            stage.concurrent(RecordingListener(), "tea-drinkers", tags="tea"),
            stage.producer() as producer,
        ):
            sent = await producer.send(Message("orders", b"x", tags="coffee"))
            await asyncio.sleep(60)
            found = await told(admin, sent.msg_id)
        assert of("everybody", found).state is GroupState.UNKNOWN
        assert "broadcasting" in of("everybody", found).detail
        assert of("tea-drinkers", found).state is GroupState.FILTERED
        rejected = of("rejecting", found)
        assert (rejected.state, rejected.deliveries[0].cause) == (GroupState.DEAD, None)
        (nobody,) = await stage.send([b"x"], topic="unheard")
        assert (await told(admin, nobody.msg_id, "unheard")).unknown == (
            "no group has consumed topic 'unheard' yet, as far as brokers know",
        )

    tell(scene)


def test_story_of_a_delayed_message() -> None:
    """Before it is due no topic has it, but its time is known."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async with stage.producer() as producer:
            sent = await producer.send(Message("orders", b"x", delay_level=4))
            found = await told(admin, sent.msg_id)
            assert not found.is_original
            assert found.waits_until is not None
            assert found.waits_until - found.message.stored_at == timedelta(seconds=30)
            at = stage.time.clock.now_ms() + 50_000
            timed = Message("orders", b"x")
            timed.deliver_at_ms = at
            sent = await producer.send(timed)
            found = await told(admin, sent.msg_id)
            assert found.waits_until is not None
            assert abs(found.waits_until.timestamp() * 1000 - at) <= 1000
            await asyncio.sleep(60)
            assert (await told(admin, sent.msg_id)).is_original

    tell(scene)
