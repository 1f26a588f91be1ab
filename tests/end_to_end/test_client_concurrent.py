"""Concurrent consumption from the bundled broker: delivery, batches, limits, failures, offsets."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from binders.rocket.headers import from_message
from rocket_client import ConsumeContext, ConsumeFromWhere, Reject, RetryLater, Success
from rocket_remoting import Message, MessageExt, MessageQueue
from rocket_remoting.wire.java_hash import java_hash
from tests.end_to_end.client_stage import PATIENCE, ClientStage, RecordingListener, cancel_own_task, play, until

# The pauses before the 16 redeliveries.
PAUSES = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def test_every_message_is_delivered_once() -> None:
    """From all queues, with the properties that broker and client add."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        sent = [b"%d" % number for number in range(200)]
        await stage.send(sent)
        async with stage.concurrent(heard):
            await heard.count(200)
        assert sorted(heard.bodies) == sorted(sent)
        message = heard.messages[0]
        assert (message.topic, message.broker_name, message.reconsume_times) == ("orders", "broker-a", 0)
        assert int(message.properties["MIN_OFFSET"]) == 0
        assert int(message.properties["MAX_OFFSET"]) == 50

    play(scene)


def test_message_is_delivered_as_soon_as_it_is_sent() -> None:
    """The held pull is answered at once."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard), stage.producer() as producer:
            await asyncio.sleep(7)
            begun = asyncio.get_running_loop().time()
            await producer.send(Message("orders", b"x"))
            await heard.count(1)
            assert heard.times[0] - begun < 0.01

    play(scene)


def test_large_body_is_delivered_unchanged() -> None:
    """Compressed in transit."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        body = bytes(range(256)) * 400
        await stage.send([body])
        async with stage.concurrent(heard):
            await heard.count(1)
        assert heard.bodies == [body]
        assert heard.messages[0].store_size < len(body) / 10

    play(scene)


def test_batches_have_the_configured_size() -> None:
    """Ten messages in batches of four make three calls."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        await stage.send([b"%d" % number for number in range(10)], queue=0)
        async with stage.concurrent(heard, consume_message_batch_max_size=4):
            await heard.count(10)
        assert heard.batches == [4, 4, 2]

    play(scene)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (7, 7), (None, 60)])
def test_concurrency_is_limited(concurrency: int | None, most: int) -> None:
    """To the setting; None means one call per message."""

    async def scene(stage: ClientStage) -> None:
        now = peak = done = 0

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal now, peak, done
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(1)
            now -= 1
            done += 1

        await stage.send([b"x"] * 60)
        async with stage.concurrent(listen, concurrency=concurrency):
            await until(lambda: done == 60)
        assert peak == most

    play(scene)


def test_tags_select_the_messages() -> None:
    """Also tags with equal hash codes, which the broker cannot distinguish."""
    assert java_hash("Aa") == java_hash("BB")

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.producer() as producer:
            for tag in ("Aa", "BB", "C", "D"):
                await producer.send(Message("orders", tag.encode(), tags=tag))
            await producer.send(Message("orders", b"none"))
        async with stage.concurrent(heard, tags="Aa || C"):
            await heard.count(2)
            await asyncio.sleep(60)
        assert sorted(heard.bodies) == [b"Aa", b"C"]

    play(scene)


def test_failed_message_is_redelivered_sixteen_times_then_a_dead_letter() -> None:
    """After 10 s, 30 s, 1 min … 2 h, with its topic and id; the dead letter has the reason."""

    async def scene(stage: ClientStage) -> None:
        heard, dead = RecordingListener(lambda message: ValueError("no such dish")), RecordingListener()
        seldom: dict[str, Any] = {
            "broker_suspend_max_time": timedelta(hours=1),
            "consumer_timeout_when_suspend": timedelta(hours=2),
            "rebalance_interval": timedelta(hours=1),
            "persist_consumer_offset_interval": timedelta(hours=1),
            "poll_name_server_interval": timedelta(hours=1),
        }
        async with (
            stage.concurrent(heard, **seldom),
            stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen", **seldom),
        ):
            (sent,) = await stage.send([b"x"])
            await dead.count(1, PATIENCE)
        pauses = [round(later - earlier) for earlier, later in pairwise(heard.times)]
        assert pauses == PAUSES
        assert [message.reconsume_times for message in heard.messages] == list(range(17))
        assert {message.topic for message in heard.messages} == {"orders"}
        assert {message.msg_id for message in [*heard.messages, *dead.messages]} == {sent.msg_id}
        letter = dead.messages[0].properties
        assert letter["RETRY_TOPIC"] == "orders"
        assert letter["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
        assert letter["FAILURE_TYPE"] == "builtins.ValueError"
        assert letter["FAILURE_MESSAGE"] == "no such dish"
        assert "client_stage.py" in letter["FAILURE_PLACE"]

    play(scene, queues=1)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_number_of_redeliveries_is_a_setting(most: int) -> None:
    """After the first delivery, on any broker."""

    async def scene(stage: ClientStage) -> None:
        heard, dead = RecordingListener(lambda message: RetryLater(1)), RecordingListener()
        async with (
            stage.concurrent(heard, max_reconsume_times=most),
            stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen"),
        ):
            await stage.send([b"x"])
            await dead.count(1)
            await asyncio.sleep(600)
        assert len(heard.messages) == most + 1

    play(scene)


def test_dead_letter_is_redelivered_to_the_group_of_its_own_listener() -> None:
    """Its redeliveries are counted anew, and it keeps the topic that it was first sent to."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: RetryLater(1))
        dead = RecordingListener(lambda message: RetryLater(1) if message.reconsume_times < 2 else None)
        async with (
            stage.concurrent(heard, max_reconsume_times=3),
            stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen", max_reconsume_times=3),
        ):
            (sent,) = await stage.send([b"x"])
            await dead.count(3)
            await asyncio.sleep(600)
        assert len(dead.messages) == 3
        headers = [from_message(message) for message in dead.messages]
        assert [each["rocketmq_RECONSUME_TIMES"] for each in headers] == [0, 1, 2]
        assert {each["rocketmq_TOPIC"] for each in headers} == {"%DLQ%kitchen"}
        assert {each["ORIGIN_DESTINATION"] for each in headers} == {"orders"}
        assert {each["ORIGIN_MESSAGE_ID"] for each in headers} == {sent.offset_msg_id}
        assert "ORIGIN_DESTINATION" not in from_message(heard.messages[-1])

    play(scene)


def test_delay_level_can_be_set() -> None:
    """Level 5 is a minute, each time."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: RetryLater(5) if message.reconsume_times < 2 else None)
        async with stage.concurrent(heard):
            await stage.send([b"x"])
            await heard.count(3)
        assert [round(heard.times[1] - heard.times[0]), round(heard.times[2] - heard.times[1])] == [60, 60]

    play(scene)


def test_reject_makes_a_dead_letter_at_once() -> None:
    """Without redelivery; it has the cause as text."""

    async def scene(stage: ClientStage) -> None:
        heard, dead = RecordingListener(lambda message: Reject("not edible")), RecordingListener()
        async with stage.concurrent(heard), stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen"):
            await stage.send([b"x"])
            await dead.count(1)
            await asyncio.sleep(60)
        assert len(heard.messages) == 1
        assert dead.messages[0].properties["FAILURE_MESSAGE"] == "not edible"

    play(scene)


def test_batch_may_succeed_partly() -> None:
    """`ack_index` is the last successful message; later ones are redelivered."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: Success(ack_index=1) if message.reconsume_times == 0 else None)
        await stage.send([b"0", b"1", b"2", b"3"], queue=0)
        async with stage.concurrent(heard, consume_message_batch_max_size=4):
            await heard.count(6)
            await asyncio.sleep(60)
        assert heard.bodies[:4] == [b"0", b"1", b"2", b"3"]
        assert sorted(heard.bodies[4:]) == [b"2", b"3"]

    play(scene)


def test_batch_may_have_an_outcome_per_message() -> None:
    """A list of outcomes."""

    async def scene(stage: ClientStage) -> None:
        calls: list[list[bytes]] = []
        dead = RecordingListener()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> object:
            calls.append([message.body for message in messages])
            return [Success(), RetryLater(1), Reject("bad")] if len(messages) == 3 else None

        await stage.send([b"good", b"later", b"bad"], queue=0)
        async with (
            stage.concurrent(listen, consume_message_batch_max_size=3),
            stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen"),
        ):
            await until(lambda: len(calls) == 2)
            await dead.count(1)
        assert calls == [[b"good", b"later", b"bad"], [b"later"]]
        assert dead.bodies == [b"bad"]

    play(scene)


@pytest.mark.parametrize("said", ["yes", [Success()] * 2, True])
def test_invalid_outcome_is_a_failure(said: object, caplog: pytest.LogCaptureFixture) -> None:
    """The log lists the valid ones; the message is redelivered."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: said if message.reconsume_times == 0 else None)
        async with stage.concurrent(heard):
            await stage.send([b"x"])
            await heard.count(2)

    play(scene)
    assert "a concurrent listener returns Success, RetryLater, Reject, None" in caplog.text


def test_listener_error_is_logged_with_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """Group, topic, queue, offset, id and the exception."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: ValueError("no") if message.reconsume_times == 0 else None)
        async with stage.concurrent(heard):
            (sent,) = await stage.send([b"x"], queue=2)
            await heard.count(2)
        record = next(record for record in caplog.records if "listener failed" in record.message)
        assert record.levelno == logging.WARNING
        assert record.exc_info is not None
        for part in ("kitchen", "orders", "queue 2", "offset 0", sent.msg_id):
            assert part in record.message

    play(scene)


@pytest.mark.parametrize("cancel", [asyncio.CancelledError, cancel_own_task])
def test_call_cancelled_while_the_consumer_runs_is_a_failure(cancel: Callable[[], object]) -> None:
    """The message is sent back, and later messages are handled, whoever cancelled the call."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(
            lambda message: cancel() if message.reconsume_times == 0 and message.body == b"x" else None
        )
        async with stage.concurrent(heard, concurrency=1):
            await stage.send([b"x", b"y"])
            await heard.count(3)
        assert sorted(heard.bodies) == [b"x", b"x", b"y"]

    play(scene)


def test_message_that_cannot_be_sent_back_is_retried_locally_after_5_seconds() -> None:
    """The broker is unavailable when the call fails; the attempt counts."""

    async def scene(stage: ClientStage) -> None:
        async def fail() -> None:
            await stage.broker.broker.stop()
            raise ValueError("no")

        heard = RecordingListener(lambda message: fail() if message.reconsume_times < 2 else None)
        async with stage.concurrent(heard):
            await stage.send([b"x"])
            await heard.count(3)
        assert heard.messages[-1].reconsume_times == 2
        assert [round(heard.times[1] - heard.times[0]), round(heard.times[2] - heard.times[1])] == [5, 5]

    play(scene)


def test_call_beyond_its_timeout_is_sent_back() -> None:
    """After 15 minutes, at level 3; the queue continues, and the late result is ignored."""

    async def scene(stage: ClientStage) -> None:
        release = asyncio.Event()
        hang = RecordingListener(
            lambda message: release.wait() if message.body == b"slow" and not message.reconsume_times else None
        )
        await stage.send([b"slow", b"quick"], queue=0)
        async with stage.concurrent(hang) as consumer, stage.admin() as admin:
            await hang.count(3, PATIENCE)
            assert hang.bodies == [b"slow", b"quick", b"slow"]
            assert 900 < hang.times[2] <= 1820
            release.set()
            await asyncio.sleep(20)
            queue = next(queue for queue in consumer.assigned if queue.queue_id == 0 and queue.topic == "orders")
            assert await admin.committed_offset(queue, "kitchen") == 2
            await asyncio.sleep(3600)
        assert len(hang.messages) == 3

    play(scene)


def test_expired_messages_are_sent_back_sixteen_at_a_time() -> None:
    """Per queue; the others a quarter of an hour later."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()

        async def wait() -> None:
            await never.wait()

        hang = RecordingListener(lambda message: None if message.reconsume_times else wait())
        await stage.send([b"%d" % number for number in range(20)], queue=0)
        async with stage.concurrent(hang, concurrency=40):
            await hang.count(40, PATIENCE)
            never.set()
        first = hang.times[20]
        assert first - hang.times[19] > 900
        assert hang.times[20:36] == pytest.approx([first] * 16, abs=1)
        assert hang.times[36:] == pytest.approx([first + 900] * 4, abs=1)

    play(scene)


def test_smallest_unsettled_offset_is_committed() -> None:
    """One call hangs: its message and all later ones are redelivered to the next member."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()
        stuck = RecordingListener(lambda message: never.wait() if message.body == b"3" else None)
        await stage.send([b"%d" % number for number in range(10)], queue=0)
        consumer = stage.concurrent(stuck)
        await consumer.start()
        await stuck.count(10)
        await consumer.shutdown(timeout=1)
        heard = RecordingListener()
        async with stage.concurrent(heard):
            await heard.count(7)
        assert sorted(heard.bodies) == [b"%d" % number for number in range(3, 10)]

    play(scene)


def test_shutdown_completes_calls_in_progress() -> None:
    """Their messages are committed; messages not begun are left to others."""

    async def scene(stage: ClientStage) -> None:
        first = RecordingListener(lambda message: asyncio.sleep(2))
        await stage.send([b"%d" % number for number in range(10)], queue=0)
        async with stage.concurrent(first, concurrency=3):
            await first.count(3)
        assert len(first.messages) == 3
        second = RecordingListener()
        async with stage.concurrent(second):
            await second.count(7)
        assert sorted(first.bodies + second.bodies) == [b"%d" % number for number in range(10)]

    play(scene)


def test_settled_messages_are_committed_every_5_seconds() -> None:
    """Without a pull that carries the offset, and without a shutdown."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer, stage.admin() as admin:
            await stage.send([b"x"], queue=1)
            await heard.count(1)
            consumer.suspend()
            await asyncio.sleep(16)
            assert await admin.committed_offset(MessageQueue("orders", "broker-a", 1), "kitchen") == 1

    play(scene)


def test_queue_with_too_many_unsettled_messages_is_not_pulled() -> None:
    """At most the threshold and one more pull."""

    async def scene(stage: ClientStage) -> None:
        peak = 0

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal peak
            peak = max(peak, *(len(queue) for queue in consumer.process_queues))
            await asyncio.sleep(0.01)

        heard = RecordingListener(lambda message: listen([], None))  # type: ignore[arg-type]
        await stage.send([b"x"] * 300, queue=0)
        consumer = stage.concurrent(heard, concurrency=5, pull_threshold_for_queue=50)
        async with consumer:
            await heard.count(300)
        assert 50 < peak <= 50 + 32

    play(scene)


def test_topic_threshold_is_divided_among_its_queues() -> None:
    """Forty for four queues are ten each."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()
        heard = RecordingListener(lambda message: never.wait())
        await stage.send([b"x"] * 400)
        settings: dict[str, Any] = {"pull_threshold_for_topic": 40, "pull_batch_size": 4, "concurrency": None}
        consumer = stage.concurrent(heard, **settings)
        await consumer.start()
        await asyncio.sleep(30)
        assert all(len(queue) <= 10 + 4 for queue in consumer.process_queues)
        never.set()
        await heard.count(400)
        await consumer.shutdown()

    play(scene)


@pytest.mark.parametrize("limit", [{"pull_threshold_size_for_queue": 1}, {"pull_threshold_size_for_topic": 4}], ids=str)
def test_unsettled_messages_are_limited_by_size(limit: dict[str, Any]) -> None:
    """A MiB per queue, set for it or as its share of the topic's, and one more pull."""

    async def scene(stage: ClientStage) -> None:
        never, body = asyncio.Event(), bytes(200 * 1024)
        heard = RecordingListener(lambda message: never.wait())
        await stage.send([body] * 20, queue=0)
        async with stage.concurrent(heard, pull_batch_size=1, **limit) as consumer:
            await asyncio.sleep(30)
            held = [queue.size for queue in consumer.process_queues if len(queue)]
            assert held == [6 * len(body)]  # the first that leads beyond the MiB is the last
            never.set()
            await heard.count(20)

    play(scene)


def test_offset_span_is_limited() -> None:
    """One unsettled message lets the others run ahead by the span only."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()
        heard = RecordingListener(lambda message: never.wait() if message.queue_offset in {0, 120} else None)
        await stage.send([b"x"] * 500, queue=0)
        async with stage.concurrent(heard, consume_concurrently_max_span=100):
            await asyncio.sleep(60)
            assert 120 < max(message.queue_offset for message in heard.messages) <= 120 + 64
            never.set()
            await heard.count(500)

    play(scene)


def test_late_result_of_a_timed_out_call_is_ignored() -> None:
    """After consume_timeout the message is redelivered at level 3, and the offset advances."""

    async def scene(stage: ClientStage) -> None:
        end = asyncio.Event()

        async def fail_late() -> None:
            await end.wait()
            raise ValueError("too late to matter")

        heard = RecordingListener(lambda one: fail_late() if (one.body, one.reconsume_times) == (b"slow", 0) else None)
        queue = MessageQueue("orders", "broker-a", 0)
        async with stage.admin() as admin, stage.concurrent(heard, consume_timeout=timedelta(minutes=1)):
            await asyncio.sleep(150)
            await stage.send([b"slow", b"next"], queue=0)
            await heard.count(3)
            assert heard.bodies == [b"slow", b"next", b"slow"]
            assert 60 + 10 <= heard.times[2] - heard.times[0] <= 120 + 11
            await asyncio.sleep(6)
            assert await admin.committed_offset(queue, "kitchen") == 2
            end.set()
            await asyncio.sleep(600)
        assert len(heard.messages) == 3

    play(scene)


@pytest.mark.parametrize("where", [ConsumeFromWhere.FIRST_OFFSET, ConsumeFromWhere.LAST_OFFSET])
def test_new_group_misses_nothing_of_a_young_queue(where: ConsumeFromWhere) -> None:
    """The broker returns 0 for a queue with its first message, whatever the group's start position."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        await stage.send([b"old"], queue=0)
        async with stage.concurrent(heard, consume_from_where=where):
            await stage.send([b"new"], queue=0)
            await heard.count(2)
        assert heard.bodies == [b"old", b"new"]

    play(scene)


def test_new_group_may_start_at_a_time() -> None:
    """Earlier messages are skipped, also in a queue that still has its first message."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        for number in range(6):
            await stage.send([b"%d" % number], queue=0)
            await asyncio.sleep(60)
        moment = datetime.fromtimestamp(stage.time.clock.now_ms() / 1000 - 130, UTC)
        async with stage.concurrent(heard, consume_from_where=ConsumeFromWhere.TIMESTAMP, consume_timestamp=moment):
            await until(lambda: b"5" in heard.bodies)
        assert heard.bodies == [b"4", b"5"]

    play(scene)


def test_suspended_consumer_does_not_pull() -> None:
    """Until it is resumed."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer:
            await asyncio.sleep(1)
            consumer.suspend()
            await asyncio.sleep(60)
            await stage.send([b"x"] * 100)
            await asyncio.sleep(60)
            assert len(heard.messages) <= 4 * 32
            before = len(heard.messages)
            assert consumer.is_suspended
            consumer.resume()
            await heard.count(100)
            assert before < 100

    play(scene)


def test_pull_interval_is_the_pause_between_pulls() -> None:
    """64 messages of a queue take two pulls and one pause."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        await stage.send([b"x"] * 64, queue=0)
        async with stage.concurrent(heard, pull_interval=timedelta(seconds=3)):
            await heard.count(64)
        assert 3 <= heard.times[-1] - heard.times[0] < 4

    play(scene)


def test_expression_may_be_sent_with_each_pull() -> None:
    """`post_subscription_when_pull`: the broker does not need the heartbeat."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.producer() as producer:
            for tag in ("A", "B"):
                await producer.send(Message("orders", tag.encode(), tags=tag))
        async with stage.concurrent(heard, tags="A", post_subscription_when_pull=True):
            await heard.count(1)
            await asyncio.sleep(30)
        assert heard.bodies == [b"A"]

    play(scene)
