"""Consumers that stop or lose a queue while requests to brokers are pending."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocket_client import Reject, RetryLater, SendStatus, Suspend
from rocket_remoting import Message, RequestCode, ResponseCode
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record
from tests.unit.rocket_client.scripted_cluster import SEND_CODES, ScriptedCluster

LATE = 0.1
"""Seconds a broker takes to answer what is sent back: less than who gives a queue back waits for it."""

Scene = Callable[[ConsumerScript], Awaitable[None]]

FATES = [(False, Reject("bad")), (False, RetryLater()), (True, Reject("bad"))]


async def until_sent_back(script: ConsumerScript, said: Any) -> None:
    """Wait until the message is being sent back, and not yet stored."""
    script.says = said
    script.broker.late[RequestCode.SEND_MESSAGE_V2] = LATE
    async with asyncio.timeout(60):
        while not script.broker.stored:  # noqa: ASYNC110  # the broker sets no event
            await asyncio.sleep(LATE / 10)


def busy_for(
    seconds: float, scene: Callable[[ConsumerScript], Awaitable[None]]
) -> Callable[[ConsumerScript], Awaitable[None]]:
    """Return the scene with a listener whose calls take so long."""

    async def played(script: ConsumerScript) -> None:
        script.says = lambda: asyncio.sleep(seconds)
        await scene(script)

    return played


@pytest.mark.parametrize(("orderly", "said"), FATES)
def test_shutdown_waits_for_pending_send_backs(virtual: VirtualTime, orderly: bool, said: object) -> None:
    """Otherwise the message would be delivered again beside its copy."""

    async def scene(script: ConsumerScript) -> None:
        await until_sent_back(script, said)
        await script.consumer.shutdown()
        assert (len(script.broker.stored), script.commits[-1]) == (1, 8)

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7, orderly=orderly)


@pytest.mark.parametrize(("orderly", "said"), FATES)
def test_revoked_queue_waits_for_pending_send_backs(virtual: VirtualTime, orderly: bool, said: object) -> None:
    """The queue's next member starts behind the message."""

    async def scene(script: ConsumerScript) -> None:
        await until_sent_back(script, said)
        script.consumer.unsubscribe("orders")
        await asyncio.sleep(1)
        assert (len(script.broker.stored), script.commits[-1]) == (1, 8)

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7, orderly=orderly)


@pytest.mark.parametrize(("orderly", "said"), [(False, RetryLater()), (False, Reject()), (True, Suspend(30))])
def test_shutdown_does_not_wait_for_delayed_retries(virtual: VirtualTime, orderly: bool, said: object) -> None:
    """A message whose send-back failed, or one in a suspended queue, is delivered again anyway."""

    async def scene(script: ConsumerScript) -> None:
        script.says = said
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK):
            script.broker.answers[code] = script.broker.refuse
        await asyncio.sleep(1)
        begun = asyncio.get_running_loop().time()
        await script.consumer.shutdown()
        assert asyncio.get_running_loop().time() == begun
        assert (len(script.heard), script.commits) == (1, [7])

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7, orderly=orderly)


@pytest.mark.parametrize("revoked", [False, True])
def test_shutdown_waits_for_a_call_but_not_for_the_pause_after_it(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture, revoked: bool
) -> None:
    """Whether the queue was revoked or the consumer stops."""

    async def scene(script: ConsumerScript) -> None:
        async def says() -> Suspend:
            await asyncio.sleep(10 * LATE)
            return Suspend(30)

        script.says = says
        async with asyncio.timeout(60):
            while not script.heard:  # noqa: ASYNC110  # the broker sets no event
                await asyncio.sleep(LATE)
        if revoked:
            script.consumer.unsubscribe("orders")
            await asyncio.sleep(LATE)
        begun = asyncio.get_running_loop().time()
        await script.consumer.shutdown()
        assert asyncio.get_running_loop().time() - begun <= 10 * LATE
        assert len(script.heard) == 1
        assert "did not end" not in caplog.text

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7, orderly=True)


def test_expired_message_is_sent_back_before_the_shutdown_ends(virtual: VirtualTime) -> None:
    """Otherwise it would be delivered again beside its copy."""

    async def scene(script: ConsumerScript) -> None:
        script.says = asyncio.Event().wait
        script.broker.late[RequestCode.SEND_MESSAGE_V2] = LATE
        async with asyncio.timeout(3600):
            while not script.broker.stored:  # noqa: ASYNC110  # the broker sets no event
                await asyncio.sleep(LATE / 10)
        await script.consumer.shutdown(timeout=1)
        assert (len(script.broker.stored), script.commits[-1]) == (1, 8)

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 8, record(7)), committed=7)


@pytest.mark.parametrize("orderly", [False, True])
def test_cancelled_shutdown_completes(virtual: VirtualTime, orderly: bool) -> None:
    """A half-stopped consumer would keep its queues from the others as long as the process lives."""

    async def scene(script: ConsumerScript) -> None:
        script.says = lambda: asyncio.sleep(5)
        await asyncio.sleep(1)
        assert len(script.heard) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(script.consumer.shutdown(), timeout=1)
        assert script.broker.count(RequestCode.UNREGISTER_CLIENT) == 0
        await script.consumer.shutdown()
        assert (script.commits[-1], script.broker.count(RequestCode.UNREGISTER_CLIENT)) == (8, 1)

    late = pulled(ResponseCode.PULL_NOT_FOUND, 7), pulled(ResponseCode.SUCCESS, 8, record(7))
    play(virtual, scene, *late, committed=7, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True])
def test_listener_may_shut_its_own_consumer_down(virtual: VirtualTime, orderly: bool) -> None:
    """The shutdown does not cancel the call that asked for it."""

    async def scene(script: ConsumerScript) -> None:
        over = asyncio.Event()

        async def stop() -> None:
            await script.consumer.shutdown(1)
            over.set()

        script.says = stop
        async with asyncio.timeout(60):
            await over.wait()
        assert script.broker.count(RequestCode.UNREGISTER_CLIENT) == 1

    late = pulled(ResponseCode.PULL_NOT_FOUND, 7), pulled(ResponseCode.SUCCESS, 8, record(7))
    play(virtual, scene, *late, committed=7, orderly=orderly)


def test_cancelled_shutdown_of_a_producer_completes(virtual: VirtualTime) -> None:
    """The broker is notified that it left."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            (broker,) = cluster.brokers
            broker.late = dict.fromkeys(SEND_CODES, 3)
            producer = cluster.producer()
            await producer.start()
            sending = asyncio.create_task(producer.send(Message("orders", b"x")))
            await asyncio.sleep(1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.shutdown(), timeout=1)
            await producer.shutdown()
            assert sending.done()
            assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1

    virtual.run(main())


@pytest.mark.parametrize("batch", [False, True])
def test_shutdown_of_a_producer_waits_for_pending_sends(virtual: VirtualTime, batch: bool) -> None:
    """Senders get their result, not a closed connection."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            for broker in cluster.brokers:
                broker.late = dict.fromkeys(SEND_CODES, LATE)
            producer = cluster.producer()
            await producer.start()
            message = Message("orders", b"x")
            sending = asyncio.create_task(producer.send_batch([message]) if batch else producer.send(message))
            await asyncio.sleep(LATE / 2)
            await producer.shutdown()
            assert sending.done()
            assert (await sending).status is SendStatus.SEND_OK

    virtual.run(main())


@pytest.mark.parametrize(("seconds", "commits"), [(45, True), (60, False)])
@pytest.mark.parametrize("shuts_down", [False, True])
def test_call_that_outlives_its_lock_commits_nothing(
    virtual: VirtualTime, seconds: int, commits: bool, shuts_down: bool
) -> None:
    """The queue is revoked during the call. Brokers keep a lock for 60 s, then the next member may commit."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        script.consumer.unsubscribe("orders")
        await asyncio.sleep(seconds - 2)
        if shuts_down:
            await script.consumer.shutdown()
        await asyncio.sleep(10)
        assert len(script.heard) == 1
        assert (8 in script.commits) == commits

    answer = pulled(ResponseCode.SUCCESS, 8, record(7))
    play(virtual, busy_for(seconds, scene), answer, committed=7, orderly=True)


def test_queue_whose_lock_is_not_renewed_is_given_back_without_a_commit(virtual: VirtualTime) -> None:
    """The call has ended before, but the broker has not answered for 50 s, so that another member may have the lock."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        script.broker.answers[RequestCode.LOCK_BATCH_MQ] = lambda command: None
        await asyncio.sleep(55.2)
        script.consumer.unsubscribe("orders")
        await asyncio.sleep(10)
        assert len(script.heard) == 1
        assert 8 not in script.commits

    answer = pulled(ResponseCode.SUCCESS, 8, record(7))
    play(virtual, busy_for(56.1, scene), answer, committed=7, orderly=True)


def test_shutdown_releases_locks_being_requested(virtual: VirtualTime) -> None:
    """After the broker answered: it handles requests on many threads and might grant the lock last."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, orderly=True)
            script.broker.late[RequestCode.LOCK_BATCH_MQ] = LATE
            starting = asyncio.create_task(script.consumer.start())
            async with asyncio.timeout(60):
                while not script.broker.count(RequestCode.LOCK_BATCH_MQ):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(LATE / 10)
            starting.cancel()
            await asyncio.sleep(LATE / 2)
            assert script.broker.count(RequestCode.UNLOCK_BATCH_MQ) == 0
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert script.broker.count(RequestCode.UNLOCK_BATCH_MQ) == 1

    virtual.run(main())
