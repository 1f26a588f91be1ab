"""Orderly consumption: one listener call at a time in each queue, in the order of the queue.

::

    clustering      a call begins only while the broker's lock on the queue is valid (30 s, renewed every 20 s)
    Success         settled; the next messages follow
    Suspend,        the queue waits (1 s), then the same messages are delivered again, `reconsume_times` one higher;
    exception       no later message is consumed before
    Reject, or      sent to the dead letter topic, then settled; if sending fails, the queue waits as for Suspend
    too often       (too often: reconsume times ≥ max; unlimited by default)
    unreadable body as for Reject, without a call
    the driver's    no further call in this task; as for an exception, after 5 s; but as for its outcome, at once, if
    task is         the listener has caught the cancellation
    cancelled
    all tasks are   no further call
    cancelled

Each assigned queue has one driver task. All drivers together make at most `concurrency` calls at once. A driver's steps
before a call::

    1  wait for messages
    2  ask for the broker's lock, if it has expired here; if it is refused, pause and go to 1
    3  wait for one of the `concurrency` permits
    4  wait for free `Capacity` of the listener
    5  check the lock again; if it has expired during 3 or 4, go to 1
    6  call the listener

Step 5 must follow all waiting. A call that waited inside the listener could begin its work after the lock has expired
and while another member consumes the queue: the order would be lost. That is why the wait for capacity is here and not
in the listener.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from rocket_client.connection.client import cancel
from rocket_client.consuming.listener import (
    ENDS_THE_PROCESS,
    Capacity,
    ConsumeContext,
    OrderlyListener,
    OrderlyOutcome,
    Reject,
    Success,
    Suspend,
)
from rocket_client.consuming.listener_consumption import (
    LOCAL_RETRY_DELAY,
    ListenerConsumption,
    awaited_something_cancelled,
    cancelled_its_own_task,
    is_being_cancelled,
)
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import SendBack
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.wire.message import MessageExt

# The bounds that Apache's ConsumeMessageOrderlyService puts on a suspension. It asks for a lost lock after 0.1 s and
# then about every 3 s; here the pauses double from the one to the other.
MIN_SUSPEND, MAX_SUSPEND = 0.01, 30.0
FIRST_LOCK_RETRY, MAX_LOCK_RETRY = 0.1, 3.0
UNLIMITED = (1 << 31) - 1

# After this many calls that never waited, a driver yields to the event loop, so that other queues get their turn.
_CALLS_IN_A_ROW = 64


class OrderlyConsumption(ListenerConsumption):
    """Calls a listener with pulled messages, queue by queue, and acts on its outcomes."""

    _ORDERLY = True

    def __init__(
        self,
        member: Membership,
        settings: PushConsumerSettings,
        listener: OrderlyListener,
        send_back: SendBack | None,
        lock: Callable[[ProcessQueue], Awaitable[bool]] | None,
        *,
        capacity: Capacity | None = None,
    ) -> None:
        """Make a consumption without queues.

        Args:
            member: The consumer's shared parts.
            settings: Batch size, concurrency, attempts, and the pause of Suspend.
            listener: The application's listener.
            send_back: Sends dead letters to the brokers; None in broadcasting, where rejected messages are dropped.
            lock: Asks the broker for a queue's lock; None in broadcasting, which needs no locks.
            capacity: The listener's capacity for further calls; None for no limit but the concurrency.
        """
        super().__init__(member, settings, send_back)
        self._listener = listener
        self._lock = lock
        self._permits = asyncio.Semaphore(settings.concurrency or 1 << 30)
        self._capacity_queue = None if capacity is None else _CapacityQueue(capacity)
        self._suspend = settings.suspend_current_queue_time.total_seconds()
        self._lock_lives = settings.lock_max_live_time.total_seconds()
        times = settings.max_reconsume_times
        self._max_reconsume_times = UNLIMITED if times == -1 else times
        self._drivers: dict[ProcessQueue, _Driver] = {}
        # Drivers of queues that were revoked while their call was under way.
        self._last_calls: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<OrderlyConsumption {self._group}: {len(self._drivers)} queues>"

    def start(self) -> None:
        """Start to watch for the end of the loop; drivers start with their queues."""
        self._lasting_task = self._loop.create_task(_wait_to_be_cancelled(), name=f"loop end of {self._group}")

    def attach(self, process_queue: ProcessQueue) -> None:
        """Start the driver of a queue that was assigned."""
        driver = _Driver()
        self._start_driver(driver, self._drive(process_queue, self._context(process_queue), driver))
        self._drivers[process_queue] = driver

    def _start_driver(self, driver: "_Driver", work: Coroutine[object, object, None]) -> None:
        driver.task = self._loop.create_task(work, name=f"orderly listener of {self._group}")

    def detach(self, process_queue: ProcessQueue) -> None:
        """End the driver of a queue that was revoked, after its call under way."""
        driver = self._drivers.pop(process_queue, None)
        if driver is None:
            return
        # A call under way may still settle its messages: the rebalancer commits them before it unlocks the queue.
        if process_queue.calls:
            self._last_calls.add(driver.task)
            driver.task.add_done_callback(self._last_calls.discard)
        else:
            driver.task.cancel()

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue pulled messages behind those that wait already, and wake the driver."""
        process_queue.enqueue(messages)
        driver = self._drivers.get(process_queue)
        if driver is not None:
            driver.arrival.set()

    async def _drive(
        self, process_queue: ProcessQueue, context: ConsumeContext, driver: "_Driver", pause: float | None = None
    ) -> None:
        """Make the calls of a queue until it is revoked or the consumer stops.

        Args:
            process_queue: The queue.
            context: The group and queue, for the listener.
            driver: The queue's driver, whose task runs this.
            pause: Seconds that the queue waits before its first call; None for no wait.
        """
        lock_retry = FIRST_LOCK_RETRY
        await _suspend(pause)
        while not self._is_over(process_queue):
            if not process_queue.has_waiting:
                # No task runs between the check and this line, so no arrival is missed.
                driver.arrival.clear()
                await driver.arrival.wait()
                # The pull loop asks for the queue's further messages first, so that the broker reads them while the
                # listener is called; but it counts the memory of decompressed bodies before it asks.
                if process_queue.lag and not process_queue.is_compressed_next(self._batch_size):
                    await asyncio.sleep(0)
                continue
            # Asked before a permit is taken: a queue without its lock does not keep the other queues from their calls.
            if not await self._is_locked(process_queue):
                await asyncio.sleep(lock_retry)
                lock_retry = min(2 * lock_retry, MAX_LOCK_RETRY)
                continue
            lock_retry = FIRST_LOCK_RETRY
            async with self._permits:
                if process_queue.is_compressed_next(self._batch_size):
                    pause = await self._unpack_and_consume(process_queue, context)
                    driver.calls += 1
                else:
                    if self._capacity_queue is not None:
                        await self._capacity_queue.wait()
                    if self._is_late(process_queue):
                        continue
                    pause = await self._consume_in_a_row(process_queue, context, driver)
            if self._is_over(process_queue):
                return
            if driver.task.cancelling():  # the listener has caught the cancellation
                self._replace_task(process_queue, context, driver, pause)
                return
            if pause is not None:
                await _suspend(pause)
            elif driver.calls >= _CALLS_IN_A_ROW:
                driver.calls = 0
                await asyncio.sleep(0)

    async def _consume_in_a_row(
        self, process_queue: ProcessQueue, context: ConsumeContext, driver: "_Driver"
    ) -> float | None:
        """Make a call, and further ones as long as a driver would not have to wait before the next.

        Returns:
            Seconds that the queue waits before its next call; None for no wait.
        """
        while True:
            messages = process_queue.take(self._batch_size)
            pause = await self._consume(process_queue, messages, messages, context)
            driver.calls += 1
            if pause is not None or driver.calls >= _CALLS_IN_A_ROW or driver.task.cancelling():
                return pause
            if not self._may_go_on(process_queue):
                return None

    def _replace_task(
        self, process_queue: ProcessQueue, context: ConsumeContext, driver: "_Driver", pause: float | None
    ) -> None:
        """Go on in another task, unless the loop ends: the driver's task counts as cancelled until it is over."""
        if not self._is_loop_ending():
            self._start_driver(driver, self._drive(process_queue, context, driver, pause))

    def _may_go_on(self, process_queue: ProcessQueue) -> bool:
        """Return whether the steps before a call can be left out: none of them would have to wait."""
        return (
            process_queue.has_waiting
            and not process_queue.is_compressed_next(self._batch_size)
            # Otherwise another queue may wait for the permit.
            and not self._permits.locked()
            and (self._capacity_queue is None or self._capacity_queue.is_free)
            and not self._is_late(process_queue)
        )

    def _is_over(self, process_queue: ProcessQueue) -> bool:
        return process_queue.dropped or self._stopped

    def _is_late(self, process_queue: ProcessQueue) -> bool:
        """Return whether the queue was revoked or its lock has expired while the driver waited."""
        return self._is_over(process_queue) or not self._lock_is_valid(process_queue)

    def _lock_is_valid(self, process_queue: ProcessQueue) -> bool:
        return self._lock is None or not process_queue.lock_expired(self._loop.time(), self._lock_lives)

    async def _is_locked(self, process_queue: ProcessQueue) -> bool:
        if self._lock is None or self._lock_is_valid(process_queue):
            return True
        return await self._lock(process_queue)

    async def _unpack_and_consume(self, process_queue: ProcessQueue, context: ConsumeContext) -> float | None:
        """Make a call with as many of the next messages as fit decompressed into memory; put the others back.

        Returns:
            Seconds that the queue waits before its next call; None for no wait.
        """
        messages = process_queue.take(self._batch_size)
        unpacked = await self._bodies.unpack(messages, process_queue)
        count = len(unpacked.messages)
        process_queue.growth += unpacked.growth
        try:
            if self._capacity_queue is not None:
                await self._capacity_queue.wait()
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
            self._bodies.release(unpacked.reserved)

    async def _reject(
        self, process_queue: ProcessQueue, messages: list[MessageExt], error: UnreadableBodyError
    ) -> float | None:
        """Send a message whose body cannot be decompressed to the dead letter topic."""
        self._log_unreadable(error)
        process_queue.begin(self._loop.time())
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
        """Call the listener once and act on its outcomes.

        Args:
            process_queue: The messages' queue.
            messages: The messages as they were stored.
            given: The same messages with their bodies decompressed, for the listener.
            context: The group and queue, for the listener.

        Returns:
            Seconds that the queue waits before its next call; None for no wait.
        """
        process_queue.begin(self._loop.time())
        try:
            try:
                outcome = await self._listener(given, context)
                is_success = outcome is None or type(outcome) is Success
                outcomes = None if is_success else _outcomes(given, outcome)
            except BaseException as error:
                outcomes = self._outcomes_of_failure(process_queue, given, error)
            if outcomes is not None:
                return await self._resolve(process_queue, messages, outcomes)
            if not process_queue.done:
                self._offsets.update_later(process_queue)
                self._settle_soon()
            process_queue.done += messages
            return None
        except asyncio.CancelledError:
            if not self._is_over(process_queue):
                self._loop.call_later(LOCAL_RETRY_DELAY, self._retry_cancelled_call, process_queue, messages, context)
            raise
        finally:
            process_queue.end()

    def _retry_cancelled_call(
        self, process_queue: ProcessQueue, messages: list[MessageExt], context: ConsumeContext
    ) -> None:
        """Start the queue's driver anew: its task was cancelled in a call, but the loop and the consumer still run."""
        driver = self._drivers.get(process_queue)
        if driver is not None and not self._is_over(process_queue) and not self._is_loop_ending():
            self._start_driver(driver, self._drive_on(process_queue, messages, context, driver))

    async def _drive_on(
        self, process_queue: ProcessQueue, messages: list[MessageExt], context: ConsumeContext, driver: "_Driver"
    ) -> None:
        """Handle the call that was cancelled as failed, then the queue's further messages."""
        process_queue.begin(self._loop.time())
        try:
            pause = await self._resolve(process_queue, messages, self._failed(messages, cancelled_its_own_task()))
        finally:
            process_queue.end()
        del messages
        await self._drive(process_queue, context, driver, pause)

    def _outcomes_of_failure(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], error: BaseException
    ) -> Sequence[OrderlyOutcome]:
        """Return the outcomes of a call that raised an error, so that the driver goes on, or raise the error."""
        if isinstance(error, ENDS_THE_PROCESS):
            raise error
        if not isinstance(error, asyncio.CancelledError):
            return self._failed(messages, error)
        if self._is_over(process_queue) or is_being_cancelled():
            raise error
        return self._failed(messages, awaited_something_cancelled())

    def _failed(self, messages: Sequence[MessageExt], error: BaseException) -> Sequence[OrderlyOutcome]:
        self._log_failed_call(messages, error)
        return [Suspend(cause=error)] * len(messages)

    async def _resolve(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        outcomes: Sequence[OrderlyOutcome],
    ) -> float | None:
        kept: list[MessageExt] = []
        done: list[MessageExt] = []
        pause = 0.0
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Success):
                done.append(message)
                continue
            is_dead = isinstance(outcome, Reject) or message.reconsume_times >= self._max_reconsume_times
            if is_dead and await self._send_dead_letter(message, outcome.cause):
                done.append(message)
                continue
            message.reconsume_times += 1
            kept.append(message)
            seconds = outcome.seconds if isinstance(outcome, Suspend) else None
            pause = max(pause, self._suspend if seconds is None else seconds)
        # Messages behind a kept one may be settled here. The offset to commit stays at the first kept message, so
        # that a crash redelivers all from there on.
        self._settle(process_queue, done)
        if not kept:
            return None
        process_queue.put_back(kept)
        return pause

    async def _send_dead_letter(self, message: MessageExt, cause: BaseException | str | None) -> bool:
        if self._send_back is None:
            self._log_dropped(message, cause)
            return True
        sending = self._send_back.dead_letter(message, cause)
        return await self._is_sent(message, sending, "its queue waits")

    def close(self) -> None:
        """Start no more calls. Calls cancelled from now on leave their messages unsettled."""
        self._stopped = True

    async def stop(self, timeout: float) -> None:
        """Start no more calls; wait up to `timeout` seconds for those under way, then cancel them."""
        self.close()
        calling = [driver.task for queue, driver in self._drivers.items() if queue.calls]
        calling += self._last_calls
        idle = [driver.task for queue, driver in self._drivers.items() if not queue.calls]
        if self._lasting_task is not None:
            idle.append(self._lasting_task)
        await cancel(idle)
        if calling:
            _, late = await asyncio.wait(calling, timeout=timeout)
            self._log_late_calls(len(late), timeout)
            await cancel(late)
        self._drivers.clear()


async def _suspend(seconds: float | None) -> None:
    if seconds is not None:
        await asyncio.sleep(min(max(seconds, MIN_SUSPEND), MAX_SUSPEND))


async def _wait_to_be_cancelled() -> None:
    await asyncio.get_running_loop().create_future()


def _outcomes(messages: Sequence[MessageExt], outcome: object) -> Sequence[OrderlyOutcome]:
    """Return the outcome for each message.

    Raises:
        TypeError: `outcome` is not an outcome, or not a list of one for each message.
    """
    if isinstance(outcome, OrderlyOutcome):
        return [outcome] * len(messages)
    if isinstance(outcome, Sequence) and len(outcome) == len(messages):
        outcomes = [one for one in outcome if isinstance(one, OrderlyOutcome)]
        if len(outcomes) == len(messages):
            return outcomes
    raise TypeError(
        f"an orderly listener returns Success, Suspend, Reject, None or one of them for each of its "
        f"{len(messages)} messages, not {outcome!r}"
    )


class _Driver:
    __slots__ = ("arrival", "calls", "task")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.arrival = asyncio.Event()
        self.calls = 0
        """Calls since the driver has yielded to the event loop."""


class _CapacityQueue:
    """The drivers that wait for capacity, first come, first served.

    The capacity itself is taken inside the listener, after `wait` has returned. Until the first ``await`` of the
    listener no other task runs, so a driver that `wait` lets go on cannot be overtaken. Capacity that the listener has
    not taken by then goes to the next driver in line.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Drivers that were woken and do not run yet. Each of them is to take one unit of the free capacity.
        self._woken = 0

    @property
    def is_free(self) -> bool:
        """Whether `wait` would not have to wait."""
        return not self._waiting and self._capacity.free > self._woken

    async def wait(self) -> None:
        """Wait until the listener has capacity for a call of this driver, which must begin at once."""
        if self.is_free:
            return
        while True:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if not self._waiting:
                self._capacity.watch(self.wake)
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # The driver was woken and cancelled before it ran: the capacity meant for it goes to the next driver.
                if turn.done() and not turn.cancelled():
                    self._woken -= 1
                self.wake()
                raise
            self._woken -= 1
            if self._capacity.free > self._woken:
                asyncio.get_running_loop().call_soon(self.wake)
                return

    def wake(self) -> None:
        """Wake as many drivers at the front of the line as there is free capacity."""
        waiting = self._waiting
        while waiting and (waiting[0].done() or self._capacity.free > self._woken):
            turn = waiting.popleft()
            if not turn.done():
                self._woken += 1
                turn.set_result(None)
        if not waiting:
            self._capacity.unwatch(self.wake)
