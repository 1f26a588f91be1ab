"""Orderly consumption from the bundled broker: order, suspension, dead letters, locks."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rocket_client import ConsumeContext, MessageModel, PushConsumer, Reject, Success, Suspend
from rocket_remoting import MessageExt
from streamkit.binder.permits import Permits
from tests.end_to_end.client_stage import (
    ClientStage,
    RecordingListener,
    cancel_own_task,
    orders_of,
    play,
    restart,
    stop_and_restart,
    until,
)


def test_each_queue_is_consumed_in_order() -> None:
    """One call at a time per queue, several queues at once."""

    async def scene(stage: ClientStage) -> None:
        heard: dict[int, list[int]] = defaultdict(list)
        now: dict[int, int] = defaultdict(int)
        at_once = 0

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal at_once
            queue = context.message_queue.queue_id
            assert context.orderly
            now[queue] += 1
            assert now[queue] == 1
            at_once = max(at_once, sum(now.values()))
            await asyncio.sleep(0.01 * (1 + queue))
            heard[queue].extend(message.queue_offset for message in messages)
            now[queue] -= 1

        await stage.send([b"%d" % number for number in range(200)])
        async with stage.orderly(listen):
            await until(lambda: sum(map(len, heard.values())) == 200)
        assert all(offsets == list(range(50)) for offsets in heard.values())
        assert at_once == 4

    play(scene)


def test_concurrency_limits_the_calls_of_all_queues() -> None:
    """Four queues, two calls at once."""

    async def scene(stage: ClientStage) -> None:
        now = peak = done = 0

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal now, peak, done
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(0.01)
            now -= 1
            done += 1

        await stage.send([b"x"] * 40)
        async with stage.orderly(listen, concurrency=2):
            await until(lambda: done == 40)
        assert peak == 2

    play(scene)


def test_failure_blocks_only_its_queue() -> None:
    """It is retried every second with an increased attempt count; later messages wait."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(
            lambda message: ValueError("no") if message.body == b"bad" and message.reconsume_times < 3 else None
        )
        await stage.send([b"bad", b"behind"], queue=0)
        await stage.send([b"other"], queue=1)
        async with stage.orderly(heard):
            await heard.count(6)
        assert [body for body in heard.bodies if body != b"other"] == [b"bad"] * 4 + [b"behind"]
        bad = [time for time, body in zip(heard.times, heard.bodies, strict=True) if body == b"bad"]
        assert [round(later - earlier, 1) for earlier, later in pairwise(bad)] == [1, 1, 1]
        assert heard.bodies.index(b"other") < 3

    play(scene)


@pytest.mark.parametrize(("seconds", "pause"), [(None, 2), (5, 5), (0, 0.01), (3600, 30)])
def test_retry_pause_is_configurable(seconds: float | None, pause: float) -> None:
    """By the outcome, within 10 ms and 30 s; otherwise by the setting."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: Suspend(seconds) if message.reconsume_times == 0 else None)
        await stage.send([b"x"], queue=0)
        async with stage.orderly(heard, suspend_current_queue_time=timedelta(seconds=2)):
            await heard.count(2)
        assert heard.times[1] - heard.times[0] == pytest.approx(pause, abs=0.005)

    play(scene)


def test_failed_batch_is_retried_as_a_whole() -> None:
    """In the same order."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: Suspend() if message.reconsume_times == 0 else None)
        await stage.send([b"0", b"1", b"2"], queue=0)
        async with stage.orderly(heard, consume_message_batch_max_size=3):
            await heard.count(6)
        assert heard.bodies == [b"0", b"1", b"2"] * 2

    play(scene)


def test_message_becomes_a_dead_letter_after_too_many_failures() -> None:
    """Without a delay and with the reason; the queue continues."""

    async def scene(stage: ClientStage) -> None:
        heard, dead = (
            RecordingListener(lambda message: ValueError("no") if message.body == b"bad" else None),
            RecordingListener(),
        )
        await stage.send([b"bad", b"behind"], queue=0)
        async with (
            stage.orderly(heard, max_reconsume_times=2),
            stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen"),
        ):
            await heard.count(4)
            await dead.count(1)
            buried_after = dead.times[0] - heard.times[2]
        assert heard.bodies == [b"bad"] * 3 + [b"behind"]
        assert dead.messages[0].properties["RETRY_TOPIC"] == "orders"
        assert dead.messages[0].properties["FAILURE_MESSAGE"] == "no"
        assert buried_after < 2

    play(scene)


def test_reject_makes_a_dead_letter_at_once() -> None:
    """One call, and on."""

    async def scene(stage: ClientStage) -> None:
        heard, dead = (
            RecordingListener(lambda message: Reject("bad") if message.body == b"bad" else Success()),
            RecordingListener(),
        )
        await stage.send([b"bad", b"behind"], queue=0)
        async with stage.orderly(heard), stage.concurrent(dead, "graveyard", topic="%DLQ%kitchen"):
            await heard.count(2)
            await dead.count(1)
        assert heard.bodies == [b"bad", b"behind"]

    play(scene)


def test_failed_dead_letter_blocks_its_queue() -> None:
    """The broker is unavailable: when it is back, and has granted its lock again, the message is delivered again."""

    async def scene(stage: ClientStage) -> None:
        async def reject() -> Reject:
            await stage.broker.broker.stop()
            return Reject("bad")

        heard = RecordingListener(lambda message: reject() if message.reconsume_times < 1 else None)
        await stage.send([b"bad", b"behind"], queue=0)
        port = int(stage.broker.broker_address.rpartition(":")[2])
        async with stage.orderly(heard):
            await heard.count(1)
            await asyncio.sleep(20)
            assert heard.bodies == [b"bad"]
            await restart(stage, port)
            await heard.count(3)
        assert heard.bodies == [b"bad"] * 2 + [b"behind"]

    play(scene)


def test_invalid_outcome_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The log lists the valid ones."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: "yes" if message.reconsume_times == 0 else None)
        await stage.send([b"x"])
        async with stage.orderly(heard):
            await heard.count(2)

    play(scene)
    assert "an orderly listener returns Success, Suspend, Reject, None or one of them for each" in caplog.text


def test_joining_member_takes_queues_over_in_order() -> None:
    """No queue has two consumers at a time, and no message overtakes an earlier one of its queue."""

    async def scene(stage: ClientStage) -> None:
        owner: dict[int, str] = {}
        seen: dict[int, list[int]] = defaultdict(list)

        def listener(name: str) -> object:
            async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
                queue = context.message_queue.queue_id
                assert queue not in owner
                owner[queue] = name
                await asyncio.sleep(0.05)
                del owner[queue]
                seen[queue].extend(message.queue_offset for message in messages)
                heard_by[name].add(queue)

            return listen

        heard_by: dict[str, set[int]] = defaultdict(set)
        await stage.send([b"%d" % number for number in range(400)])
        async with stage.orderly(listener("first")) as first:
            await until(lambda: sum(map(len, seen.values())) > 40)
            async with stage.orderly(listener("second")) as second:
                await until(lambda: len(second.assigned) >= 2)
                assert not first.assigned & second.assigned
                await until(lambda: sum(len(set(offsets)) for offsets in seen.values()) == 400)
        assert len(heard_by["second"]) == 2
        for offsets in seen.values():
            firsts = list(dict.fromkeys(offsets))
            assert firsts == sorted(firsts)

    play(scene)


def test_leaving_member_unlocks_its_queues() -> None:
    """The others take them within a second."""

    async def scene(stage: ClientStage) -> None:
        async with stage.orderly(RecordingListener()) as stays:
            leaves = stage.orderly(RecordingListener())
            await leaves.start()
            await until(lambda: len(orders_of(leaves)) == 2)
            await leaves.shutdown()
            begun = asyncio.get_running_loop().time()
            await until(lambda: len(orders_of(stays)) == 4)
            assert asyncio.get_running_loop().time() - begun < 0.5

    play(scene)


@pytest.mark.parametrize("leaves", [False, True])
def test_member_that_lost_a_queue_during_a_call_does_not_commit(leaves: bool) -> None:
    """The call outlasts the lock at the broker: the new member's offset stays."""

    async def scene(stage: ClientStage) -> None:
        calls, second = 0, RecordingListener()

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal calls
            await asyncio.sleep(300)
            calls += 1

        for queue in range(2):
            await stage.send([b"%d" % number for number in range(10)], queue=queue)
        first = stage.orderly(slow, await_termination=timedelta(hours=1))
        await first.start()
        async with stage.orderly(second) as taker:
            await second.count(10)
            (queue_id,) = {queue.queue_id for queue in orders_of(taker)}
            if not leaves:
                await until(lambda: calls == 2, 600)
                await asyncio.sleep(1)
                assert stage.broker.broker.offsets.get("kitchen", "orders", queue_id) == 10
            await first.shutdown()
            assert stage.broker.broker.offsets.get("kitchen", "orders", queue_id) == 10

    play(scene, queues=2)


def test_a_queue_that_comes_back_waits_for_the_call_that_is_under_way() -> None:
    """The broker would give the lock: it is this member's still. Two calls of the queue would run at once."""

    async def scene(stage: ClientStage) -> None:
        under_way, most, heard = Counter[int](), Counter[int](), Counter[bytes]()

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            queue = messages[0].queue_id
            under_way[queue] += 1
            most[queue] = max(most[queue], under_way[queue])
            await asyncio.sleep(20)
            under_way[queue] -= 1
            heard.update(message.body for message in messages)

        for queue in range(2):
            await stage.send([b"%d" % queue, b"%d again" % queue], queue=queue)
        async with stage.orderly(slow, await_termination=timedelta(hours=1)) as first:
            await until(lambda: under_way.total() == 2)
            async with stage.orderly(RecordingListener()):
                await until(lambda: len(orders_of(first)) == 1)
            await until(lambda: len(orders_of(first)) == 2)
            await until(lambda: heard.total() == 4, 600)
        assert set(heard.values()) == set(most.values()) == {1}

    play(scene, queues=2)


def test_locks_are_renewed() -> None:
    """After an idle hour the consumer still has its queues, and gets the next message at once."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.orderly(heard) as consumer:
            await asyncio.sleep(3600)
            assert all(queue.locked_at is not None for queue in consumer.process_queues)
            begun = asyncio.get_running_loop().time()
            await stage.send([b"x"])
            await heard.count(1)
            assert heard.times[0] - begun < 0.1

    play(scene)


def test_lock_taken_by_another_member_releases_the_queue() -> None:
    """It is taken again when the lock is free."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.orderly(heard) as consumer:
            queues = orders_of(consumer)
            client = consumer._client
            address = stage.broker.broker_address
            await client.requests.unlock(address, "kitchen", client.client_id, queues)
            assert await client.requests.lock(address, "kitchen", "somebody else", queues) == queues
            await until(lambda: not consumer.assigned & queues)
            await stage.send([b"x"])
            await asyncio.sleep(20)
            assert heard.messages == []
            await client.requests.unlock(address, "kitchen", "somebody else", queues)
            await heard.count(1)

    play(scene)


def test_two_renewals_that_find_a_lock_lost_release_the_queue_once() -> None:
    """The queue's driver and the timer ask concurrently; then one driver delivers each message once."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        async with stage.orderly(heard) as consumer:
            queues = orders_of(consumer)
            client, rebalancer = consumer._client, consumer._rebalancer
            address = stage.broker.broker_address
            await client.requests.unlock(address, "kitchen", client.client_id, queues)
            assert await client.requests.lock(address, "kitchen", "somebody else", queues) == queues
            last = max(consumer.process_queues, key=lambda queue: queue.message_queue.queue_id)
            await asyncio.gather(rebalancer.renew_lock(last), rebalancer.renew_locks())
            await until(lambda: not consumer.assigned & queues)
            await client.requests.unlock(address, "kitchen", "somebody else", queues)
            await until(lambda: consumer.assigned >= queues)
            for queue in queues:
                await stage.send([b"%d" % queue.queue_id], queue=queue.queue_id)
            await asyncio.sleep(60)
            assert sorted(heard.bodies) == [b"0", b"1", b"2", b"3"]

    play(scene)


def test_orderly_broadcasting_needs_no_locks(tmp_path: Path) -> None:
    """Each member receives everything in order; rejected messages are dropped."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: Reject("bad") if message.body == b"1" else None)
        await stage.send([b"0", b"1", b"2"], queue=0)
        settings: dict[str, Any] = {
            "message_model": MessageModel.BROADCASTING,
            "local_offset_store_dir": tmp_path,
        }
        async with stage.orderly(heard, **settings):
            await heard.count(3)
        assert heard.bodies == [b"0", b"1", b"2"]

    play(scene)


def test_unrenewed_lock_is_valid_for_30_seconds() -> None:
    """Afterwards local messages wait until the broker confirms it, since another member may have it."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: asyncio.sleep(5))
        await stage.send([b"%d" % number for number in range(20)], queue=0)
        async with stage.orderly(heard):
            await heard.count(2)
            port = int(stage.broker.broker_address.rpartition(":")[2])
            await stage.broker.broker.stop()
            begun = asyncio.get_running_loop().time()
            await asyncio.sleep(100)
            assert heard.times[-1] - begun < 31
            before = len(heard.messages)
            assert before < 12
            await restart(stage, port)
            await heard.count(20)
        assert heard.bodies[: before + 1] == [b"%d" % number for number in range(before + 1)]

    play(scene)


@pytest.mark.parametrize("has_capacity", [False, True])
def test_lock_that_expires_while_its_queue_waits_is_not_used(has_capacity: bool) -> None:
    """With calls of 40 s, one at a time, the second queue's lock is too old when its turn comes."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: asyncio.sleep(40))
        for queue in range(2):
            await stage.send([b"%d" % queue], queue=queue)
        async with one_at_a_time(stage, heard, Permits(1) if has_capacity else None):
            await heard.count(1)
            port = int(stage.broker.broker_address.rpartition(":")[2])
            await stage.broker.broker.stop()
            await asyncio.sleep(100)
            assert len(heard.messages) == 1
            await restart(stage, port)
            await heard.count(2)
        assert {*heard.bodies} == {b"0", b"1"}

    play(scene, queues=2)


def one_at_a_time(stage: ClientStage, heard: RecordingListener, capacity: Permits | None) -> PushConsumer:
    """Return a consumer that makes one call at a time, or whose listener does one call's work at a time."""
    if capacity is None:
        return stage.orderly(heard, concurrency=1)

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> object:
        await capacity.acquire()
        try:
            return await heard(messages, context)
        finally:
            capacity.release()

    return stage.orderly(listen, capacity=capacity)


def test_queues_take_turns_for_one_call() -> None:
    """A served queue goes to the end of the line, and one that is released leaves it."""

    async def scene(stage: ClientStage) -> None:
        capacity = Permits(1)
        first, second = (RecordingListener(lambda message: asyncio.sleep(1)) for _ in range(2))
        for queue in range(4):
            await stage.send([b"%d" % queue] * 6, queue=queue)
        capacity.withhold()
        async with one_at_a_time(stage, first, capacity):
            await asyncio.sleep(30)
            assert not first.messages
            capacity.grant()
            await first.count(8)
            assert {*first.bodies[:4]} == {*first.bodies[4:]} == {b"0", b"1", b"2", b"3"}
            async with one_at_a_time(stage, second, Permits(1)):
                await until(lambda: len(first.messages) + len(second.messages) == 24)
        assert sorted(first.bodies + second.bodies) == sorted([b"0", b"1", b"2", b"3"] * 6)
        assert capacity.free == 1

    play(scene)


def test_call_that_ends_before_its_turn_passes_it_on() -> None:
    """For example by a failure: the next in line is called."""

    async def scene(stage: ClientStage) -> None:
        capacity, heard = Permits(1), RecordingListener()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> object:
            if messages[0].body != b"0":
                return await heard(messages, context)
            await capacity.acquire()
            try:
                await asyncio.sleep(1)
                return await heard(messages, context)
            finally:
                capacity.release()

        for queue in range(4):
            await stage.send([b"%d" % queue] * 3, queue=queue)
        async with stage.orderly(listen, capacity=capacity):
            await heard.count(12)

    play(scene)


def test_restarted_broker_keeps_the_owners_of_queues() -> None:
    """The first member to return is alone for a moment and requests all queues, while others still work on theirs."""

    async def scene(stage: ClientStage) -> None:
        at_work: dict[int, str] = {}
        owners: list[tuple[str, str]] = []
        done: list[tuple[int, bytes]] = []

        def member(name: str) -> PushConsumer:
            async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
                (message,) = messages
                owners.append((name, at_work.setdefault(message.queue_id, name)))
                await asyncio.sleep(8)
                at_work.pop(message.queue_id, None)
                done.append((message.queue_id, message.body))

            return stage.orderly(listen, instance_name=name)

        for queue in range(4):
            await stage.send([b"%d" % number for number in range(6)], queue=queue)
        async with member("first") as first, member("second") as second:
            await until(lambda: len(orders_of(first)) == len(orders_of(second)) == 2)
            for _ in range(2):
                await stop_and_restart(stage)
                await asyncio.sleep(10)
            await until(lambda: len({*done}) == 24, seconds=400)
        assert {*owners} == {("first", "first"), ("second", "second")}

    play(scene)


def test_shutdown_completes_the_call_in_progress() -> None:
    """No later message is delivered; the next member starts there."""

    async def scene(stage: ClientStage) -> None:
        first, second = RecordingListener(lambda message: asyncio.sleep(3)), RecordingListener()
        await stage.send([b"0", b"1", b"2"], queue=0)
        async with stage.orderly(first):
            await first.count(1)
        async with stage.orderly(second):
            await second.count(2)
        assert (first.bodies, second.bodies) == ([b"0"], [b"1", b"2"])

    play(scene)


def test_shutdown_completes_calls_of_revoked_queues() -> None:
    """Another member joined just before; the call is not interrupted."""

    async def scene(stage: ClientStage) -> None:
        begun: list[int] = []
        ended: list[int] = []
        may_end = [asyncio.Event(), asyncio.Event()]

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
            queue_id = context.message_queue.queue_id
            begun.append(queue_id)
            await may_end[queue_id].wait()
            ended.append(queue_id)

        for queue in range(2):
            await stage.send([b"%d %d" % (queue, number) for number in range(3)], queue=queue)
        first, second = stage.orderly(slow), RecordingListener()
        await first.start()
        await until(lambda: len(begun) == 2)
        async with stage.orderly(second):
            await until(lambda: len(orders_of(first)) == 1)
            (kept,) = (queue.queue_id for queue in orders_of(first))
            leaving = asyncio.create_task(first.shutdown())
            await asyncio.sleep(0)
            may_end[kept].set()
            await asyncio.sleep(1)
            assert not leaving.done()
            may_end[1 - kept].set()
            await leaving
            assert sorted(ended) == sorted(begun) == [0, 1]
            await second.count(4)
        assert sorted(second.bodies) == [b"0 1", b"0 2", b"1 1", b"1 2"]

    play(scene, queues=2)


def test_unfinished_call_is_cancelled() -> None:
    """Its message is not settled and is redelivered."""

    async def scene(stage: ClientStage) -> None:
        never = asyncio.Event()
        first, second = RecordingListener(lambda message: never.wait()), RecordingListener()
        await stage.send([b"0", b"1"], queue=0)
        consumer = stage.orderly(first)
        await consumer.start()
        await first.count(1)
        await consumer.shutdown(timeout=2)
        async with stage.orderly(second):
            await second.count(2)
        assert second.bodies == [b"0", b"1"]

    play(scene)


@pytest.mark.parametrize("cancel", [asyncio.CancelledError, cancel_own_task])
def test_call_cancelled_while_the_consumer_runs_is_a_failure(cancel: Callable[[], object]) -> None:
    """The message is redelivered in its place, whoever cancelled the call."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: cancel() if message.reconsume_times == 0 else None)
        await stage.send([b"0", b"1"], queue=0)
        async with stage.orderly(heard):
            await heard.count(4)
        assert heard.bodies == [b"0", b"0", b"1", b"1"]

    play(scene)


def test_offset_reset_reaches_a_suspended_queue() -> None:
    """The failed message is abandoned, and the queue continues from the new offset in order."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: ValueError("no") if message.body == b"5" and not healed else None)
        healed = False
        await stage.send([b"%d" % number for number in range(10)], queue=0)
        async with stage.orderly(heard) as consumer, stage.admin() as admin:
            await heard.count(8)
            await consumer.persist_offsets()
            healed, before = True, len(heard.messages)
            await admin.reset_offsets("kitchen", "orders", 0)
            await heard.count(before + 10)
            await asyncio.sleep(60)
        assert heard.bodies[:6] == [b"%d" % number for number in range(6)]
        assert heard.bodies[before:] == [b"%d" % number for number in range(10)]

    play(scene)
