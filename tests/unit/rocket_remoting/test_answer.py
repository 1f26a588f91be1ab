"""Responses: when the task that awaits one goes on."""

import asyncio
import contextvars

import pytest

from rocket_remoting.session.answer import deliver
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost

RESPONSE = RemotingCommand(0, body=b"response")


class Read:
    """A step of the loop that reads the response to a request, and what happens in which order.

    Attributes:
        events: What has happened: the bodies that the tasks got, and `read` at the end of the step.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.events: list[object] = []

    async def ask(self) -> None:
        self.events.append((await self.answer).body)

    def now(self) -> None:
        deliver(RESPONSE, self.answer)
        self.events.append("read")

    def soon(self) -> None:
        self._loop.call_soon(self.now)


def test_task_goes_on_within_the_step_that_reads_the_response() -> None:
    async def main() -> None:
        read = Read()
        task = asyncio.create_task(read.ask())
        await asyncio.sleep(0)
        read.soon()
        await task
        assert read.events == [b"response", "read"]

    asyncio.run(main())


def test_several_tasks_go_on_in_the_next_turn() -> None:
    async def main() -> None:
        read = Read()
        tasks = [asyncio.create_task(read.ask()) for _ in range(2)]
        await asyncio.sleep(0)
        read.soon()
        await asyncio.gather(*tasks)
        assert read.events == ["read", b"response", b"response"]

    asyncio.run(main())


def test_task_goes_on_in_the_next_turn_if_another_task_makes_the_connection_read() -> None:
    """No task can go on within the step of another one."""

    async def main() -> None:
        read = Read()
        task = asyncio.create_task(read.ask())
        await asyncio.sleep(0)
        read.now()
        await task
        assert read.events == ["read", b"response"]

    asyncio.run(main())


def test_response_that_came_before_it_is_awaited() -> None:
    async def main() -> None:
        read = Read()
        read.now()
        await read.ask()
        assert read.events == ["read", b"response"]

    asyncio.run(main())


def test_task_goes_on_with_its_own_context_variables() -> None:
    tenant = contextvars.ContextVar("tenant", default="none")

    async def main() -> None:
        read = Read()

        async def ask() -> str:
            tenant.set("Ann")
            await read.ask()
            return tenant.get()

        task = asyncio.create_task(ask())
        await asyncio.sleep(0)
        read.soon()
        assert (await task, tenant.get()) == ("Ann", "none")

    asyncio.run(main())


def test_failed_request_lets_its_task_go_on() -> None:
    async def main() -> None:
        read = Read()
        task = asyncio.create_task(read.ask())
        await asyncio.sleep(0)
        read.answer.set_exception(ConnectionLost("a:1", "closed by the peer"))
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await task

    asyncio.run(main())


def test_cancelled_task_waits_no_more() -> None:
    async def main() -> None:
        read = Read()
        task = asyncio.create_task(read.ask())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert read.answer.cancelled()

    asyncio.run(main())


def test_timeout_leaves_no_callback_behind() -> None:
    async def main() -> None:
        read = Read()
        done, _ = await asyncio.wait([read.answer], timeout=0)
        read.soon()
        await read.ask()
        assert (done, read.events) == (set(), [b"response"])

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_task_that_ends_the_process_ends_the_loop(error: type[BaseException]) -> None:
    """And not the connection whose response let it go on."""
    events: list[object] = []

    async def main() -> None:
        read = Read()

        async def leave() -> None:
            await read.answer
            raise error

        task = asyncio.create_task(leave())
        await asyncio.sleep(0)
        read.soon()
        try:
            await asyncio.wait([task, asyncio.get_running_loop().create_future()])
        finally:
            events.extend((*read.events, type(task.exception())))

    with pytest.raises(error):
        asyncio.run(main())
    assert events == ["read", error]
