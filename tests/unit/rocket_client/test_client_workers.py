"""The workers of a push consumer: the tasks that call its listener."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from rocket_client import Suspend
from rocket_client.core.process_queue import ProcessQueue
from rocket_remoting import RequestCode, ResponseCode
from rocket_remoting.wire.record import decode_records
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster


@pytest.mark.parametrize("concurrency", [1, 2])
def test_message_that_comes_when_the_only_call_ends_is_delivered(virtual: VirtualTime, concurrency: int) -> None:
    """In the same turn of the loop, when the worker of the call has ended and the loop has not called back yet."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, concurrency=concurrency)
            gate = asyncio.get_running_loop().create_future()
            script.says = lambda: asyncio.shield(gate)
            async with script.consumer:
                await asyncio.sleep(1)
                consumption = script.consumer._consumption
                (queue,) = (each for each in script.consumer.assigned if each.topic == "orders")
                process_queue = ProcessQueue(queue)
                consumption.attach(process_queue)

                def arrive(offset: int) -> None:
                    messages = list(decode_records(record(offset)))
                    process_queue.put(messages)
                    consumption.submit(process_queue, messages)

                arrive(5)
                await asyncio.sleep(1)
                for turns in range(5):
                    gate.set_result(None)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    gate = asyncio.get_running_loop().create_future()
                    arrive(6 + turns)
                    await asyncio.sleep(1)
                    assert script.heard[-1].queue_offset == 6 + turns
                gate.set_result(None)

    virtual.run(main())


class Abandoned:
    """A consumer that nobody shuts down before the loop ends, so that all its tasks are cancelled.

    Attributes:
        heard_before: The number of messages whose call had begun when the tasks were cancelled.
    """

    def __init__(self, says: Callable[[], Awaitable[None]], **settings: Any) -> None:
        self.heard_before = 0
        self._begun = asyncio.Event()
        self._says = says
        with VirtualTime() as virtual:
            virtual.run(self._main(virtual, settings))

    async def _main(self, virtual: VirtualTime, settings: Any) -> None:
        cluster = await ScriptedCluster(virtual, brokers=["a"]).__aenter__()
        self.script = ConsumerScript(cluster, **settings)
        self.script.replies = [pulled(ResponseCode.SUCCESS, 1000, b"".join(map(record, range(1000))))]
        self.script.says = self._say
        await self.script.consumer.start()
        self._watching = asyncio.create_task(self._watch())
        await self._begun.wait()

    async def _say(self) -> None:
        self._begun.set()
        await self._says()

    async def _watch(self) -> None:
        abandoned = self

        class Watched(asyncio.Future[None]):
            def cancel(self, msg: Any = None) -> bool:
                abandoned.heard_before = len(abandoned.script.heard)
                return super().cancel(msg)

        await Watched()


async def never_wait() -> None:
    """Consume a message at once."""


async def wait() -> None:
    """Consume a message in an hour."""
    await asyncio.sleep(3600)


async def fail() -> None:
    """Fail to consume a message, also when the call is cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    raise ValueError("there is no such order")


async def swallow() -> None:
    """Consume a message, also when the call is cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)


@pytest.mark.parametrize("says", [never_wait, wait, swallow])
@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency": 20}, {"orderly": True}], ids=str)
def test_no_call_begins_after_all_tasks_were_cancelled(
    says: Callable[[], Awaitable[None]], settings: dict[str, Any]
) -> None:
    """The messages that wait are neither consumed nor committed."""
    end = Abandoned(says, **settings)
    assert 0 < end.heard_before < 1000
    assert len(end.script.heard) == end.heard_before
    assert all(offset <= end.heard_before for offset in end.script.commits)


class AbandonedLong(Abandoned):
    """As `Abandoned`, but a cancelled task ends only after a minute; the loop runs until then."""

    async def _watch(self) -> None:
        try:
            await super()._watch()
        finally:
            await asyncio.sleep(60)


@pytest.mark.parametrize("says", [never_wait, wait, swallow])
@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency": 20}, {"orderly": True}], ids=str)
def test_no_call_begins_while_a_cancelled_task_takes_long_to_end(
    says: Callable[[], Awaitable[None]], settings: dict[str, Any]
) -> None:
    end = AbandonedLong(says, **settings)
    assert 0 < end.heard_before < 1000
    assert len(end.script.heard) == end.heard_before


@pytest.mark.parametrize("says", [wait, fail])
@pytest.mark.parametrize("abandoned", [Abandoned, AbandonedLong])
def test_nothing_is_sent_back_after_all_tasks_were_cancelled(
    says: Callable[[], Awaitable[None]], abandoned: type[Abandoned], caplog: pytest.LogCaptureFixture
) -> None:
    """The messages stay unsettled, so that the next member gets them; a send would be dropped under way."""
    end = abandoned(says, concurrency=20)
    assert RequestCode.SEND_MESSAGE_V2 not in {command.code for command in end.script.broker.asked}
    assert not [record for record in caplog.records if record.name == "asyncio"]
    if says is wait:
        assert "the listener failed" not in caplog.text


@pytest.mark.parametrize("orderly", [False, True])
def test_listener_that_catches_the_cancellation_of_its_task_gets_the_next_messages(
    virtual: VirtualTime, orderly: bool
) -> None:
    """In another task, because only this one was cancelled."""

    async def scene(script: ConsumerScript) -> None:
        tasks = []

        async def catch() -> None:
            tasks.append(asyncio.current_task())
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

        script.says = catch
        await asyncio.sleep(1)
        first = tasks[0]
        assert first is not None
        first.cancel()
        await asyncio.sleep(10)
        assert [message.queue_offset for message in script.heard] == [5, 6]
        assert tasks[1] is not first
        script.says = None
        tasks[1].cancel()  # type: ignore[union-attr]

    both = pulled(ResponseCode.SUCCESS, 7, record(5) + record(6))
    play(virtual, scene, both, committed=5, orderly=orderly, concurrency=1)


class CancelsItself:
    """A listener whose task is cancelled 0.01 s after each call has begun; it catches the cancellation.

    Attributes:
        began: The times of the calls, from the first one on.
    """

    def __init__(self, outcome: Any = None) -> None:
        self._times: list[float] = []
        self._outcome = outcome

    @property
    def began(self) -> list[float]:
        return [round(time - self._times[0], 3) for time in self._times]

    async def __call__(self) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._times.append(loop.time())
        loop.call_later(0.01, task.cancel)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return self._outcome


@pytest.mark.parametrize("orderly", [False, True])
def test_queue_does_not_wait_after_a_call_that_catches_its_cancellation(virtual: VirtualTime, orderly: bool) -> None:
    says = CancelsItself()

    async def scene(script: ConsumerScript) -> None:
        script.says = says
        await asyncio.sleep(60)
        assert [message.queue_offset for message in script.heard] == [5, 6, 7, 8]

    four = pulled(ResponseCode.SUCCESS, 9, b"".join(map(record, range(5, 9))))
    play(virtual, scene, four, committed=5, orderly=orderly, concurrency=1)
    assert says.began == [0, 0.01, 0.02, 0.03]


def test_ordered_queue_waits_as_a_call_that_catches_its_cancellation_asks(virtual: VirtualTime) -> None:
    says = CancelsItself(Suspend(3))

    async def scene(script: ConsumerScript) -> None:
        script.says = says
        await asyncio.sleep(10)
        assert {message.queue_offset for message in script.heard} == {5}
        script.says = None
        await asyncio.sleep(10)

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 6, record(5)), committed=5, orderly=True)
    assert says.began == [0, 3.01, 6.02, 9.03]


TENANT: ContextVar[str] = ContextVar("tenant", default="none")


class Caller:
    """A listener that notes its tasks, and the tenant that it finds.

    Attributes:
        tasks: The task of each call.
        tenants: The tenant that each call has found.
    """

    def __init__(self, also: Callable[[], object] | None = None) -> None:
        self.tasks: list[asyncio.Task[object] | None] = []
        self.tenants: list[str] = []
        self._also = also

    async def __call__(self) -> None:
        self.tasks.append(asyncio.current_task())
        self.tenants.append(TENANT.get())
        if self._also is not None:
            self._also()


def one_by_one(virtual: VirtualTime, says: Callable[[], Awaitable[None]], **settings: Any) -> None:
    """Submit four messages to a listener, each after the one before is consumed."""

    async def scene(script: ConsumerScript) -> None:
        script.says = says
        script.broker.late[RequestCode.PULL_MESSAGE] = 1.0
        await asyncio.sleep(10)
        assert [message.queue_offset for message in script.heard] == [5, 6, 7, 8]

    replies = [pulled(ResponseCode.SUCCESS, offset + 1, record(offset), end=offset + 1) for offset in range(5, 9)]
    play(virtual, scene, *replies, committed=5, **settings)


def test_messages_that_come_one_after_the_other_have_one_worker(virtual: VirtualTime) -> None:
    caller = Caller()
    one_by_one(virtual, caller)
    assert len(set(caller.tasks)) == 1
    assert all(task is not None and task.done() for task in caller.tasks)


def test_context_variables_of_a_listener_end_with_its_messages(virtual: VirtualTime) -> None:
    """A worker whose listener has set some waits for no further messages."""
    caller = Caller(lambda: TENANT.set("Ann"))
    one_by_one(virtual, caller)
    assert caller.tenants == ["none"] * 4


def test_waiting_worker_that_is_cancelled_is_replaced(virtual: VirtualTime) -> None:
    def cancel_later() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.5, task.cancel)

    caller = Caller(cancel_later)
    one_by_one(virtual, caller)
    assert len(set(caller.tasks)) == 4


@pytest.mark.parametrize("turns", range(4))
def test_worker_that_is_cancelled_when_its_message_comes_is_replaced(virtual: VirtualTime, turns: int) -> None:
    """Before the worker has taken the message."""

    async def scene(script: ConsumerScript) -> None:
        script.says = caller = Caller()
        await asyncio.sleep(1)
        consumption = script.consumer._consumption
        (queue,) = (each for each in script.consumer.assigned if each.topic == "orders")
        process_queue = ProcessQueue(queue)
        consumption.attach(process_queue)
        messages = list(decode_records(record(6)))
        process_queue.put(messages)
        consumption.submit(process_queue, messages)
        for _ in range(turns):
            await asyncio.sleep(0)
        worker = caller.tasks[0]
        assert worker is not None
        worker.cancel()
        await asyncio.sleep(10)
        assert [message.queue_offset for message in script.heard] == [5, 6]

    play(virtual, scene, pulled(ResponseCode.SUCCESS, 6, record(5), end=6), committed=5)


def test_messages_that_come_when_a_worker_goes_on_get_all_their_calls(virtual: VirtualTime) -> None:
    """They come after its turn, and before the start of further workers that it has scheduled."""

    async def scene(script: ConsumerScript) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        consumption = script.consumer._consumption
        (queue,) = (each for each in script.consumer.assigned if each.topic == "orders")
        process_queue = ProcessQueue(queue)
        consumption.attach(process_queue)

        def submit(first: int, count: int) -> None:
            messages = list(decode_records(b"".join(map(record, range(first, first + count)))))
            process_queue.put(messages)
            consumption.submit(process_queue, messages)

        async def wait_after_a_turn() -> None:
            if len(script.heard) == 64:
                loop.call_soon(loop.call_soon, submit, 165, 3)
            if len(script.heard) > 64:
                await asyncio.sleep(3600)

        script.says = wait_after_a_turn
        submit(100, 65)
        await asyncio.sleep(1)
        assert [message.queue_offset for message in script.heard] == list(range(100, 168))

    play(virtual, scene, committed=5, concurrency=20)


def test_worker_that_is_cancelled_before_its_first_step_is_replaced(virtual: VirtualTime) -> None:
    """Otherwise all later messages would wait for it."""

    async def scene(script: ConsumerScript) -> None:
        await asyncio.sleep(1)
        consumption = script.consumer._consumption
        (queue,) = (each for each in script.consumer.assigned if each.topic == "orders")
        process_queue = ProcessQueue(queue)
        consumption.attach(process_queue)
        messages = list(decode_records(record(6)))
        process_queue.put(messages)
        before = asyncio.all_tasks()
        consumption.submit(process_queue, messages)
        (worker,) = asyncio.all_tasks() - before
        worker.cancel()
        await asyncio.sleep(10)
        assert [message.queue_offset for message in script.heard] == [6]

    play(virtual, scene, committed=5)
