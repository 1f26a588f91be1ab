"""Orderly consumption: one listener call at a time in each queue, in the order of the queue.

::

    clustering      a queue is consumed only while the broker's lock on it counts (30 s, renewed every 20 s)
    Success         settled, the next messages follow
    Suspend,        the queue waits (1 s), then the same messages come again, `reconsume_times` one higher;
    exception       nothing behind them is consumed
    Reject, or      sent to the dead letter topic, settled; if that fails, the queue waits
    too often       (too often: reconsume times ≥ max; unlimited unless set)
    unreadable body as for Reject, without a call

Each assigned queue has one driver task. All drivers together make at most `concurrency` calls at once, and where a
listener lets calls wait (`Room`), drivers stand in line for that before they look at their locks for the last time:
what has begun to wait inside of a call would begin to work under a lock that another member has by then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from rocket_client.connection.client import cancel
from rocket_client.consuming.listener import (
    ENDS_THE_PROCESS,
    ConsumeContext,
    OrderlyListener,
    OrderlyOutcome,
    Reject,
    Room,
    Success,
    Suspend,
)
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import SendBack
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageExt

logger = logging.getLogger(__name__)

MIN_SUSPEND, MAX_SUSPEND = 0.01, 30.0
FIRST_LOCK_RETRY, MAX_LOCK_RETRY = 0.1, 3.0
UNLIMITED = (1 << 31) - 1

_CALLS_IN_A_ROW = 64


class OrderlyConsumption:
    """Hands pulled messages to a listener queue by queue, and settles them by what it says."""

    def __init__(
        self,
        member: Membership,
        settings: PushConsumerSettings,
        listener: OrderlyListener,
        send_back: SendBack | None,
        lock: Callable[[ProcessQueue], Awaitable[bool]] | None,
        *,
        room: Room | None = None,
    ) -> None:
        """Ready for queues.

        Args:
            member: Whose messages.
            settings: How many at once, how often, how long the pauses.
            listener: What is called.
            send_back: Where dead letters go; None: nowhere, as in broadcasting.
            lock: Asks the broker for a queue's lock; None: no locks, as in broadcasting.
            room: How many calls can do their work now; None: as many as begin.
        """
        self._group = member.group
        self._namespace = member.namespace
        self._offsets = member.offsets
        self._bodies = member.bodies
        self._listener = listener
        self._send_back = send_back
        self._lock = lock
        self._batch_size = settings.consume_message_batch_max_size
        self._permits = asyncio.Semaphore(settings.concurrency or 1 << 30)
        self._line = None if room is None else _Line(room)
        self._suspend = settings.suspend_current_queue_time.total_seconds()
        self._lock_lives = settings.lock_max_live_time.total_seconds()
        times = settings.max_reconsume_times
        self._max_reconsume_times = UNLIMITED if times == -1 else times
        self._loop = asyncio.get_running_loop()
        self._drivers: dict[ProcessQueue, _Driver] = {}
        # Of queues that were revoked while their call was under way.
        self._last_calls: set[asyncio.Task[None]] = set()
        self._stopped = False

    def __repr__(self) -> str:
        return f"<OrderlyConsumption {self._group}: {len(self._drivers)} queues>"

    def start(self) -> None:
        """Nothing: drivers start with their queues."""

    def attach(self, process_queue: ProcessQueue) -> None:
        """A queue was assigned: drive it."""
        queue = self._namespace.unwrap_queue(process_queue.message_queue)
        context = ConsumeContext(self._group, queue, orderly=True)
        driver = _Driver()
        driver.task = self._loop.create_task(
            self._drive(process_queue, context, driver), name=f"orderly listener of {self._group}"
        )
        self._drivers[process_queue] = driver

    def detach(self, process_queue: ProcessQueue) -> None:
        """A queue was revoked: its call under way finishes, no other follows."""
        driver = self._drivers.pop(process_queue, None)
        if driver is None:
            return
        if process_queue.calls:
            self._last_calls.add(driver.task)
            driver.task.add_done_callback(self._last_calls.discard)
        else:
            driver.task.cancel()

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Let the messages be consumed after those that wait already."""
        process_queue.enqueue(messages)
        driver = self._drivers.get(process_queue)
        if driver is not None:
            driver.arrival.set()

    async def _drive(self, process_queue: ProcessQueue, context: ConsumeContext, driver: "_Driver") -> None:
        calls, lock_retry = 0, FIRST_LOCK_RETRY
        while not self._is_over(process_queue):
            if not process_queue.has_waiting:
                driver.arrival.clear()
                await driver.arrival.wait()
                continue
            if not await self._is_locked(process_queue):
                await asyncio.sleep(lock_retry)
                lock_retry = min(2 * lock_retry, MAX_LOCK_RETRY)
                continue
            lock_retry = FIRST_LOCK_RETRY
            async with self._permits:
                if process_queue.is_compressed_next(self._batch_size):
                    pause = await self._unpack_and_consume(process_queue, context)
                else:
                    if self._line is not None:
                        await self._line.stand()
                    if self._is_late(process_queue):
                        continue
                    messages = process_queue.take(self._batch_size)
                    pause = await self._consume(process_queue, messages, messages, context)
                    del messages  # kept, they would be in memory until the queue's next messages come
            calls += 1
            if self._is_over(process_queue):
                return
            if pause is not None:
                await asyncio.sleep(min(max(pause, MIN_SUSPEND), MAX_SUSPEND))
            elif calls % _CALLS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _is_over(self, process_queue: ProcessQueue) -> bool:
        return process_queue.dropped or self._stopped

    def _is_late(self, process_queue: ProcessQueue) -> bool:
        """Return whether it took too long to get to the next call."""
        return self._is_over(process_queue) or not self._lock_counts(process_queue)

    def _lock_counts(self, process_queue: ProcessQueue) -> bool:
        return self._lock is None or not process_queue.lock_expired(self._loop.time(), self._lock_lives)

    async def _is_locked(self, process_queue: ProcessQueue) -> bool:
        if self._lock is None or self._lock_counts(process_queue):
            return True
        return await self._lock(process_queue)

    async def _unpack_and_consume(self, process_queue: ProcessQueue, context: ConsumeContext) -> float | None:
        """Make a call with as many of the next messages as can be decompressed now; the others are the next ones.

        Returns:
            Seconds for which the queue has to wait now; None for not at all.
        """
        messages = process_queue.take(self._batch_size)
        unpacked = await self._bodies.unpack(messages)
        count = len(unpacked.messages)
        process_queue.growth += unpacked.growth
        try:
            if self._line is not None:
                await self._line.stand()
            if self._is_late(process_queue):
                process_queue.put_back(messages)
                return None
            if not count and unpacked.error is not None:
                process_queue.put_back(messages[1:])
                return await self._reject(process_queue, messages[:1], unpacked.error)
            process_queue.put_back(messages[count:])
            return await self._consume(process_queue, messages[:count], unpacked.messages, context)
        finally:
            process_queue.growth -= unpacked.growth
            self._bodies.release(unpacked.room)

    async def _reject(
        self, process_queue: ProcessQueue, messages: list[MessageExt], error: UnreadableBodyError
    ) -> float | None:
        """Send a message that nobody can read to the dead letters."""
        logger.error("group %s: no listener is called: %s", self._group, error)
        process_queue.begin((), self._loop.time())
        try:
            return await self._resolve(process_queue, messages, [Reject(error)])
        finally:
            process_queue.end()

    async def _consume(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        given: list[MessageExt],
        context: ConsumeContext,
    ) -> float | None:
        """Make one call.

        Args:
            process_queue: The queue that the messages are of.
            messages: The messages as they were stored.
            given: The messages as the listener gets them.
            context: Where they come from.

        Returns:
            Seconds for which the queue has to wait now; None for not at all.
        """
        process_queue.begin((), self._loop.time())
        try:
            outcomes = await self._call(process_queue, given, context)
            return await self._resolve(process_queue, messages, outcomes)
        finally:
            process_queue.end()

    async def _call(
        self, process_queue: ProcessQueue, messages: list[MessageExt], context: ConsumeContext
    ) -> Sequence[OrderlyOutcome] | None:
        """What the listener said of each message; None: all are done.

        Whatever it does or gives, its queue's driver goes on.
        """
        try:
            return _outcomes(messages, await self._listener(messages, context))
        except asyncio.CancelledError:
            if self._is_over(process_queue):
                raise
            return self._failed(messages, RuntimeError("the listener call was cancelled from inside"))
        except ENDS_THE_PROCESS:
            raise
        except BaseException as error:
            return self._failed(messages, error)

    def _failed(self, messages: Sequence[MessageExt], error: BaseException) -> Sequence[OrderlyOutcome]:
        first = messages[0]
        logger.warning(
            "group %s: the listener failed with %d message(s) of topic %s,"
            " first %s of queue %d at offset %d, time %d",
            self._group,
            len(messages),
            first.topic,
            first.msg_id,
            first.queue_id,
            first.queue_offset,
            first.reconsume_times + 1,
            exc_info=error,
        )
        return [Suspend(cause=error)] * len(messages)

    async def _resolve(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        outcomes: Sequence[OrderlyOutcome] | None,
    ) -> float | None:
        if outcomes is None:
            self._settle(process_queue, messages)
            return None
        kept: list[MessageExt] = []
        done: list[MessageExt] = []
        pause = 0.0
        for message, said in zip(messages, outcomes, strict=True):
            if isinstance(said, Success):
                done.append(message)
                continue
            hopeless = isinstance(said, Reject) or message.reconsume_times >= self._max_reconsume_times
            if hopeless and await self._bury(message, said.cause):
                done.append(message)
                continue
            message.reconsume_times += 1
            kept.append(message)
            seconds = said.seconds if isinstance(said, Suspend) else None
            pause = max(pause, self._suspend if seconds is None else seconds)
        self._settle(process_queue, done)
        if not kept:
            return None
        process_queue.put_back(kept)
        return pause

    async def _bury(self, message: MessageExt, cause: BaseException | str | None) -> bool:
        if self._send_back is None:
            logger.warning(
                "group %s drops a message that failed in broadcasting: %r: %r", self._group, message, cause
            )
            return True
        try:
            await self._send_back.dead_letter(message, cause)
        except Exception as error:  # whatever it is, the queue's other messages are to be heard one day
            logger.warning(
                "group %s: message %s of topic %s is no dead letter yet, its queue waits: %s",
                self._group,
                message.msg_id,
                message.topic,
                error,
                exc_info=not isinstance(error, RemotingError),
            )
            return False
        return True

    def _settle(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        offset = process_queue.settle(messages)
        if offset != NOTHING_TO_COMMIT and not process_queue.dropped:
            self._offsets.update(process_queue.message_queue, offset)

    def close(self) -> None:
        """Start no more calls. A call that is cancelled from now on leaves its messages unsettled."""
        self._stopped = True

    async def stop(self, timeout: float) -> None:
        """Start no more calls, and wait that long for those under way; then they are cancelled."""
        self.close()
        calling = [driver.task for queue, driver in self._drivers.items() if queue.calls]
        calling += self._last_calls
        await cancel([driver.task for queue, driver in self._drivers.items() if not queue.calls])
        if calling:
            _, late = await asyncio.wait(calling, timeout=timeout)
            if late:
                logger.warning(
                    "group %s: %d listener call(s) did not end within %g s", self._group, len(late), timeout
                )
            await cancel(late)
        self._drivers.clear()


def _outcomes(messages: Sequence[MessageExt], outcome: object) -> Sequence[OrderlyOutcome] | None:
    """What the listener said of each message; None: all are done.

    Raises:
        TypeError: It said something else.
    """
    if outcome is None or isinstance(outcome, Success):
        return None
    if isinstance(outcome, Suspend | Reject):
        return [outcome] * len(messages)
    if isinstance(outcome, Sequence) and len(outcome) == len(messages):
        said = [one for one in outcome if isinstance(one, OrderlyOutcome)]
        if len(said) == len(messages):
            return said
    raise TypeError(
        f"an orderly listener returns Success, Suspend, Reject, None or one of them for each of its "
        f"{len(messages)} messages, not {outcome!r}"
    )


class _Driver:
    __slots__ = ("arrival", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.arrival = asyncio.Event()


class _Line:
    """Those who wait for room, first come, first served.

    Who is called has the room only until it awaits something: nobody else runs before, and nobody else is promised it.
    What it has not taken then is the next one's.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = 0

    async def stand(self) -> None:
        """Return when there is room for the caller, to be taken at once."""
        if not self._waiting and self._room.free > self._called:
            return
        while True:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if not self._waiting:
                self._room.watch(self.move)
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._called -= 1
                self.move()
                raise
            self._called -= 1
            if self._room.free > self._called:
                asyncio.get_running_loop().call_soon(self.move)
                return

    def move(self) -> None:
        """Call those in front, as many as there is room for."""
        waiting = self._waiting
        while waiting and (waiting[0].done() or self._room.free > self._called):
            turn = waiting.popleft()
            if not turn.done():
                self._called += 1
                turn.set_result(None)
        if not waiting:
            self._room.unwatch(self.move)
