"""Queue locks, with brokers that answer late."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from rocket_client.consuming.locks import QueueLocks
from rocket_client.core.process_queue import ProcessQueue
from rocket_remoting import RemotingCommand, RemotingError, RequestCode
from rocket_remoting.wire.bodies import LockBatchResponseBody, encode_body
from rocket_remoting.wire.message import MessageQueue
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import give_locks
from tests.unit.rocket_client.scripted_cluster import ScriptedBroker, ScriptedCluster

LATE = 0.1
"""Seconds a broker takes to answer."""

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ

Scene = Callable[[QueueLocks, dict[str, ProcessQueue], dict[str, ScriptedBroker]], Awaitable[None]]


def asked(broker: ScriptedBroker) -> list[int]:
    """Return the lock requests that the broker got."""
    return [command.code for command in broker.asked if command.code in (LOCK, UNLOCK)]


def play(time: VirtualTime, scene: Scene) -> None:
    """Run the scene with a member's locks, a queue at each of two brokers `a` and `b`, and these brokers."""

    async def main() -> None:
        async with ScriptedCluster(time) as cluster, cluster.client() as client:
            for broker in cluster.brokers:
                broker.answers[LOCK] = give_locks
            locks = QueueLocks(client.requests, "kitchen", client.client_id)
            queues = {name: ProcessQueue(MessageQueue("orders", name, 0)) for name in "ab"}
            await scene(locks, queues, {broker.name: broker for broker in cluster.brokers})

    time.run(main())


def test_unlock_waits_for_the_answer_to_the_lock(virtual: VirtualTime) -> None:
    """Also when the caller was cancelled: otherwise the broker could grant the lock after the unlock, for a minute."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        brokers["a"].late[LOCK] = LATE
        driver = asyncio.create_task(locks.lock([queues["a"]]))
        await asyncio.sleep(LATE / 4)
        driver.cancel()
        unlocking = asyncio.create_task(locks.unlock([queues["a"].message_queue]))
        await asyncio.sleep(LATE / 2)
        assert asked(brokers["a"]) == [LOCK]
        await unlocking
        assert asked(brokers["a"]) == [LOCK, UNLOCK]
        await locks.unlock_all()
        assert asked(brokers["a"]) == [LOCK, UNLOCK]

    play(virtual, scene)


def test_lock_error_after_the_caller_was_cancelled_is_ignored(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller has already left the queue."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        brokers["a"].late[LOCK] = LATE
        driver = asyncio.create_task(locks.lock([queues["a"]]))
        await asyncio.sleep(LATE / 2)
        driver.cancel()
        await brokers["a"].stop()
        await asyncio.sleep(LATE)

    play(virtual, scene)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(("slow", "other"), ["ab", "ba"])
def test_brokers_are_asked_for_locks_concurrently(virtual: VirtualTime, slow: str, other: str) -> None:
    """A queue released while another broker is slow is not locked again afterwards."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        brokers[slow].late[LOCK] = LATE
        renewal = asyncio.create_task(locks.lock(queues.values()))
        await asyncio.sleep(LATE / 2)
        await locks.unlock([queues[other].message_queue])
        assert not renewal.done()
        assert await renewal == []
        assert asked(brokers[other]) == [LOCK, UNLOCK]
        assert asked(brokers[slow]) == [LOCK]

    play(virtual, scene)


@pytest.mark.parametrize(("away", "other"), ["ab", "ba"])
def test_unavailable_broker_does_not_prevent_other_renewals(virtual: VirtualTime, away: str, other: str) -> None:
    """The state of its own locks is unknown, which is an error."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        await brokers[away].stop()
        with pytest.raises(RemotingError):
            await locks.lock(queues.values())
        await asyncio.sleep(LATE)
        assert queues[other].locked_at is not None
        assert queues[away].locked_at is None

    play(virtual, scene)


def test_lock_time_counts_from_the_request(virtual: VirtualTime) -> None:
    """The broker may have granted it at once, so a late answer must not extend it."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        brokers["a"].late[LOCK] = 2.0
        began = asyncio.get_running_loop().time()
        assert await locks.lock([queues["a"]]) == []
        assert asyncio.get_running_loop().time() == began + 2.0
        assert queues["a"].locked_at == began

    play(virtual, scene)


def test_lock_of_another_member_is_not_held(virtual: VirtualTime) -> None:
    """Also when this member held it before."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        await locks.lock([queues["a"]])
        brokers["a"].answers[LOCK] = lambda command: RemotingCommand.response(
            command, body=encode_body(LockBatchResponseBody(lock_ok_mq_set=set()))
        )
        assert await locks.lock([queues["a"]]) == [queues["a"]]
        assert queues["a"].locked_at is None
        await locks.unlock_all()
        assert asked(brokers["a"]) == [LOCK, LOCK]

    play(virtual, scene)


def test_lock_without_an_answer_is_released(virtual: VirtualTime) -> None:
    """The broker may have granted it."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        brokers["a"].answers[LOCK] = lambda command: None
        with pytest.raises(RemotingError):
            await locks.lock([queues["a"]])
        await locks.unlock_all()
        assert asked(brokers["a"]) == [LOCK, UNLOCK]

    play(virtual, scene)


def test_lock_requested_during_unlock_all_is_released(virtual: VirtualTime) -> None:
    """Its request is sent after `unlock_all` was called."""

    async def scene(locks: QueueLocks, queues: dict[str, ProcessQueue], brokers: dict[str, ScriptedBroker]) -> None:
        driver = asyncio.create_task(locks.lock([queues["a"]]))
        await asyncio.sleep(0)
        assert asked(brokers["a"]) == []
        await locks.unlock_all()
        assert await driver == []
        assert asked(brokers["a"]) == [LOCK, UNLOCK]

    play(virtual, scene)
