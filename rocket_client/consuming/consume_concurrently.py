"""Concurrent consumption: listener calls in no particular order, at most `concurrency` at once.

Workers make the calls: each is a task that takes one batch after the other from the run of messages that a pull has
brought, then from the next run; workers share the runs. One worker is enough as long as the listener never waits. So
further workers start only if batches are left when every worker waits inside its call: first one, then 8, 64 and so on,
up to `concurrency` and the free `Capacity`. The last worker without messages waits for the next ones, because waking it
costs less than a new task. A fast listener thus costs no task per message. A slow one soon gets all its calls, and
calls that begin together may share what they send.

Messages that are done are settled together: when the last call of their queue has ended, in the next turn of the loop,
or when anything is asked about their queue or its offset. So as long as calls do not wait, a message costs little more
than its call.

::

    outcome                  clustering                                   broadcasting
    Success                  settled                                      settled
    RetryLater, exception    sent back, then settled                      logged, settled
    Reject                   sent to the dead letter topic, then settled  logged, settled
    sending back fails       the listener is called again after 5 s       -
    the task is cancelled    no further call in this task; as for an      as for an exception,
                             exception, after 5 s                         after 5 s
    all tasks are cancelled  no further call                              no further call
    call takes > 15 min      sent back at level 3, then settled           -
    body is unreadable       no call; as for Reject                       as for Reject
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from rocket_client.connection.client import cancel
from rocket_client.consuming.listener import (
    ENDS_THE_PROCESS,
    SUCCESS,
    Capacity,
    ConcurrentListener,
    ConcurrentOutcome,
    ConsumeContext,
    Reject,
    RetryLater,
    Success,
)
from rocket_client.consuming.listener_consumption import (
    LOCAL_RETRY_DELAY,
    ListenerConsumption,
    awaited_something_cancelled,
    cancelled_its_own_task,
    is_being_cancelled,
)
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import DEAD_LETTER, DEFAULT_MAX_RECONSUME_TIMES, SendBack
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.unpacked_bodies import Unpacked, is_compressed
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.wire.message import MessageExt

logger = logging.getLogger(__name__)

# Apache's ProcessQueue.cleanExpiredMsg has the same two numbers.
EXPIRED_LEVEL = 3
MAX_EXPIRED_AT_ONCE = 16

_GROWTH = 8
"""The factor by which more workers start in each turn of the loop."""

# After this many calls that never waited, a worker yields to the event loop.
_CALLS_IN_A_ROW = 64
# A call whose bodies were decompressed counts as this many calls.
_UNPACKING = 16

_Failure = tuple[MessageExt, ConcurrentOutcome]


class _Run(NamedTuple):
    """Messages that wait for the listener.

    Attributes:
        process_queue: Their queue.
        messages: The messages; workers take them from the front.
        is_compressed: Whether the body of any of them may be compressed.
    """

    process_queue: ProcessQueue
    messages: deque[MessageExt]
    is_compressed: bool


class ConcurrentConsumption(ListenerConsumption):
    """Calls a listener with pulled messages and acts on its outcomes."""

    _ORDERLY = False

    def __init__(
        self,
        member: Membership,
        settings: PushConsumerSettings,
        listener: ConcurrentListener,
        send_back: SendBack | None,
        process_queues: Callable[[], Collection[ProcessQueue]],
        *,
        capacity: Capacity | None = None,
    ) -> None:
        """Make a consumption without queues.

        Args:
            member: The consumer's shared parts.
            settings: Batch size, concurrency, attempts, and the timeout of calls.
            listener: The application's listener.
            send_back: Sends failed messages back to the brokers; None in broadcasting, where they are dropped.
            process_queues: Returns the assigned process queues, which are searched for calls that take too long.
            capacity: The listener's capacity for further calls; None for no limit but the concurrency.
        """
        super().__init__(member, settings, send_back)
        self._unpacking = asyncio.Lock()
        self._listener = listener
        self._process_queues = process_queues
        self._limit = settings.concurrency or 1 << 30
        times = settings.max_reconsume_times
        self._max_reconsume_times = DEFAULT_MAX_RECONSUME_TIMES if times == -1 else times
        self._consume_timeout = settings.consume_timeout.total_seconds()
        self._contexts: dict[ProcessQueue, ConsumeContext] = {}
        self._work: deque[_Run] = deque()
        self._workers: set[asyncio.Task[Any]] = set()
        # What the worker without messages awaits; None if there is no such worker.
        self._parked: asyncio.Future[None] | None = None
        # Workers that will run at the loop's next turn: they were just started or woken, or yielded to the loop.
        self._ready = 0
        self._burst = _GROWTH
        self._start_scheduled = False
        # Whether that was asked for again since it was scheduled: workers may have become ready that run after it.
        self._start_again = False
        self._capacity = capacity
        # Whether batches were left because there was no capacity, so that _on_capacity is registered with it.
        self._watches_capacity = False
        self._send_backs: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        waiting = sum(len(run.messages) for run in self._work)
        return f"<ConcurrentConsumption {self._group}: {waiting} messages wait, {len(self._workers)} workers>"

    def start(self) -> None:
        """Start the search for calls that take longer than `consume_timeout`; in broadcasting it finds none."""
        self._lasting_task = self._loop.create_task(self._clean_expired(), name=f"expired messages of {self._group}")

    def attach(self, process_queue: ProcessQueue) -> None:
        """Prepare the calls of a queue that was assigned."""
        self._contexts[process_queue] = self._context(process_queue)

    def detach(self, process_queue: ProcessQueue) -> None:
        """Forget a queue that was revoked. Its calls under way finish; its waiting batches are skipped."""
        self._contexts.pop(process_queue, None)

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue pulled messages for the listener, which gets them in batches of `consume_message_batch_max_size`.

        Either all messages are queued, or none and an exception is raised: no worker could be started.
        """
        if not messages:
            return
        work = self._work
        work.append(_Run(process_queue, deque(messages), is_compressed(messages)))
        if not self._ready:
            try:
                self._start_workers(1)
            except BaseException:
                work.pop()
                raise
            if len(work) == 1 and len(messages) <= self._batch_size:
                return  # the worker takes all of it
        self._schedule_start()

    # Workers

    def _has_capacity(self) -> bool:
        capacity = self._capacity
        if capacity is None or capacity.free > 0:
            return True
        if not self._watches_capacity:
            self._watches_capacity = True
            capacity.watch(self._on_capacity)
        return False

    def _on_capacity(self) -> None:
        """Handle free capacity. The worker that freed it can take the next batch before further workers start."""
        self._unwatch_capacity()
        self._schedule_start()

    def _unwatch_capacity(self) -> None:
        if self._capacity is not None and self._watches_capacity:
            self._watches_capacity = False
            self._capacity.unwatch(self._on_capacity)

    def _start_workers(self, count: int) -> bool:
        """Make workers ready: the one that waits for messages, then new ones; return whether any is ready."""
        if self._is_loop_ending():
            return False
        if count and self._unpark():
            count -= 1
        for _ in range(min(count, self._limit - len(self._workers))):
            worker = self._loop.create_task(self._run_worker(), name=f"listener of {self._group}")
            self._ready += 1
            self._workers.add(worker)
            worker.add_done_callback(self._replace_unstarted)
        return self._ready > 0

    def _replace_unstarted(self, worker: "asyncio.Task[Any]") -> None:
        """Start another worker in place of one that was cancelled before its first step."""
        if worker in self._workers:  # a worker that has run is discarded at its end
            self._workers.discard(worker)
            self._ready -= 1
            self._schedule_start()

    def _unpark(self) -> bool:
        """Wake the worker that waits for messages; return False if there is none."""
        parked, self._parked = self._parked, None
        if parked is None or parked.done():  # done: the worker's task was cancelled
            return False
        parked.set_result(None)
        self._ready += 1
        return True

    async def _park(self) -> None:
        """Wait for messages, as the only worker that does."""
        parked = self._parked = self._loop.create_future()
        try:
            await parked
        except asyncio.CancelledError:
            if not parked.cancelled():  # this worker was woken before, for messages that need another one now
                self._ready -= 1
                self._schedule_start()
            elif self._parked is parked:
                self._parked = None
            raise
        self._ready -= 1

    def _schedule_start(self) -> None:
        if self._start_scheduled:
            self._start_again = True
        else:
            self._start_scheduled = True
            self._loop.call_soon(self._start_more_workers)

    def _start_more_workers(self) -> None:
        """Start further workers if batches wait while every worker waits inside its call.

        Scheduled with ``call_soon``, so that it runs after all workers that were ready before have taken a batch.
        """
        again, self._start_scheduled, self._start_again = self._start_again, False, False
        if self._ready:
            if again:
                self._schedule_start()
            return
        self._remove_ended_runs()
        if not self._work:
            self._burst = _GROWTH
            return
        if not self._has_capacity():
            return
        most = min(self._burst, self._limit - len(self._workers) + (self._parked is not None))
        most = most if self._capacity is None else min(most, self._capacity.free)
        if self._start_workers(self._waiting_batches(most)):
            self._schedule_start()
        if self._burst < self._limit:
            self._burst *= _GROWTH

    def _waiting_batches(self, most: int) -> int:
        """Return the number of batches that wait, or `most` if that is less."""
        count = 0
        for run in self._work:
            if count >= most:
                break
            count += -(-len(run.messages) // self._batch_size)
        return min(count, most)

    def _remove_ended_runs(self) -> None:
        """Remove runs at the front whose messages were all taken, or whose queue was revoked."""
        work = self._work
        while work and (not work[0].messages or work[0].process_queue.dropped):
            work.popleft()

    async def _run_worker(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        try:
            await self._work_on(worker)
        finally:
            # At once, and not only when the loop calls back: messages may be submitted before, and need a worker.
            self._workers.discard(worker)

    async def _work_on(self, worker: "asyncio.Task[Any]") -> None:
        """Call the listener with the batches that wait, as long as `worker`, this task, is needed."""
        self._ready -= 1
        work, calls, context = self._work, 0, copy_context()
        while True:
            self._remove_ended_runs()
            if self._stopped:
                return
            if not work:
                # A new worker handles the next message if the listener has set context variables.
                if self._parked is not None or worker.cancelling() or copy_context() != context:
                    return
                await self._park()
                calls = 0
                continue
            if not self._has_capacity():
                return
            if worker.cancelling():  # the listener has caught the cancellation
                self._schedule_start()
                return
            run = work[0]
            if run.is_compressed:
                calls += await self._consume_compressed(worker, run)
            else:
                calls += await self._consume(worker, run.process_queue, run.messages, _CALLS_IN_A_ROW - calls)
            if calls >= _CALLS_IN_A_ROW:
                calls = 0
                await self._yield_to_loop()

    async def _yield_to_loop(self) -> None:
        self._ready += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._ready -= 1
            self._schedule_start()

    def _take(self, messages: deque[MessageExt]) -> list[MessageExt]:
        """Take the next batch of a run."""
        return [messages.popleft() for _ in range(min(self._batch_size, len(messages)))]

    async def _consume_compressed(self, worker: "asyncio.Task[Any]", run: _Run) -> int:
        """Make a call with the next batch of a run with compressed bodies; return as how many calls it counts."""
        batch = self._take(run.messages)
        if not is_compressed(batch):
            return await self._consume(worker, run.process_queue, deque(batch), 1)
        await self._unpack_and_consume(worker, run.process_queue, batch)
        return _UNPACKING

    async def _unpack_and_consume(
        self, worker: "asyncio.Task[Any]", process_queue: ProcessQueue, messages: list[MessageExt]
    ) -> None:
        """Make a call with as many of the messages as fit decompressed into memory; queue the others again."""
        unpacked = self._bodies.unpack_small(messages)
        if not unpacked.is_whole(messages):
            # One worker at a time: of several, each would hold decompressed bodies while only some find capacity.
            async with self._unpacking:
                if self._has_capacity():
                    unpacked = await self._bodies.unpack_large(messages, unpacked, process_queue)
        process_queue.growth += unpacked.growth
        try:
            if process_queue.dropped or self._stopped:
                return
            # Other calls may have taken the capacity while the bodies were decompressed. The compressed messages wait
            # again, at the front, and the decompressed bodies are freed.
            if not self._has_capacity():
                self._work.appendleft(_Run(process_queue, deque(messages), is_compressed=True))
                return
            await self._consume_unpacked(worker, process_queue, messages, unpacked)
        finally:
            process_queue.growth -= unpacked.growth
            self._bodies.release(unpacked.reserved)

    async def _consume_unpacked(
        self,
        worker: "asyncio.Task[Any]",
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        unpacked: Unpacked,
    ) -> None:
        count = len(unpacked.messages)
        called, behind = messages[:count], messages[count:]
        if unpacked.error is not None:
            self._reject(process_queue, behind.pop(0), unpacked.error)
        # Before the call, which may take long: another worker can take these messages meanwhile.
        if behind:
            self._work.appendleft(_Run(process_queue, deque(behind), is_compressed=True))
        if called:
            await self._consume(worker, process_queue, deque(called), 1, unpacked.messages)

    def _reject(self, process_queue: ProcessQueue, message: MessageExt, error: UnreadableBodyError) -> None:
        """Send a message whose body cannot be decompressed to the dead letter topic."""
        self._log_unreadable(error)
        self._resolve(process_queue, [message], [Reject(error)])

    async def _consume(
        self,
        worker: "asyncio.Task[Any]",
        process_queue: ProcessQueue,
        messages: deque[MessageExt],
        most_calls: int,
        unpacked: list[MessageExt] | None = None,
    ) -> int:
        """Call the listener with the next batches of a run, act on the outcomes, and return the number of calls.

        Other workers may take batches of the same run meanwhile.

        Args:
            worker: This task.
            process_queue: The messages' queue.
            messages: The messages of the run that wait, as they were stored.
            most_calls: The number of calls after which no other is made.
            unpacked: The messages of the only call with their bodies decompressed, for the listener; None if they are
                the same.
        """
        listener, context, size, now = self._listener, self._contexts[process_queue], self._batch_size, self._loop.time
        done, count = process_queue.done, 0
        calls = process_queue.begin_calls()
        is_cancelled = worker.cancelling
        try:
            while True:
                batch = [messages.popleft()] if size == 1 else self._take(messages)
                calls.messages = batch
                calls.began = process_queue.last_consume_at = now()
                try:
                    outcome = await listener(batch if unpacked is None else unpacked, context)
                    is_success = outcome is None or (type(outcome) is Success and outcome.ack_index is None)
                    outcomes = None if is_success else _outcomes(batch, outcome)
                except BaseException as error:
                    outcomes = self._outcomes_of_failure(process_queue, batch, error)
                is_first_done = outcomes is None and not done
                if is_first_done:
                    self._offsets.update_later(process_queue)
                if outcomes is None:
                    done += batch
                else:
                    self._resolve(process_queue, batch, outcomes)
                count += 1
                if not messages or count >= most_calls or process_queue.dropped or self._stopped or is_cancelled():
                    return count
                if self._capacity is not None and not self._has_capacity():
                    return count
                if is_first_done:
                    self._settle_soon()
        finally:
            process_queue.end_calls(calls)
            if done and not process_queue.calls:
                self._offsets.update_settled()
            elif done and not self._settle_scheduled:
                self._settle_soon()

    def _outcomes_of_failure(
        self, process_queue: ProcessQueue, messages: list[MessageExt], error: BaseException
    ) -> Sequence[ConcurrentOutcome]:
        """Return the outcomes of a call that raised an error; raise the error if it ends the worker."""
        if isinstance(error, ENDS_THE_PROCESS):
            raise error
        if not isinstance(error, asyncio.CancelledError):
            return self._failed(messages, error)
        # The messages stay unsettled, for the queue's next member.
        if self._stopped:
            raise error
        if is_being_cancelled():
            self._loop.call_later(LOCAL_RETRY_DELAY, self._fail_cancelled_call, process_queue, messages)
            raise error
        return self._failed(messages, awaited_something_cancelled())

    def _fail_cancelled_call(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Handle a call whose task was cancelled as failed, unless all tasks were cancelled with it."""
        if not (process_queue.dropped or self._stopped or self._is_loop_ending()):
            self._resolve(process_queue, messages, self._failed(messages, cancelled_its_own_task()))
            self._schedule_start()

    def _failed(self, messages: Sequence[MessageExt], error: BaseException) -> Sequence[ConcurrentOutcome]:
        self._log_failed_call(messages, error)
        return [RetryLater(cause=error)] * len(messages)

    # Outcomes

    def _resolve(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        outcomes: Sequence[ConcurrentOutcome],
    ) -> None:
        # A message that expired during its call was sent back already, and is not in the process queue any more.
        present = [
            (message, outcome) for message, outcome in zip(messages, outcomes, strict=True) if message in process_queue
        ]
        failed = [(message, outcome) for message, outcome in present if not isinstance(outcome, Success)]
        self._settle(process_queue, [message for message, outcome in present if isinstance(outcome, Success)])
        # Messages of a revoked queue are not sent back: they are unsettled, so the next member gets them anyway, and
        # a copy in the retry topic would be a second delivery. The same goes for the end of the loop.
        if failed and not process_queue.dropped and not self._is_loop_ending():
            self._start_send_back(process_queue, self._send_back_all(process_queue, failed))

    def _start_send_back(
        self, process_queue: ProcessQueue, work: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        # Sending back counts as a call, so that a rebalance waits for it before it commits. Otherwise the queue's next
        # member could get the message again, in addition to the copy in the retry topic.
        process_queue.begin(self._loop.time())
        task = self._loop.create_task(work, name=f"send back of {self._group}")
        self._send_backs.add(task)
        task.add_done_callback(self._send_backs.discard)
        task.add_done_callback(lambda _: process_queue.end())
        return task

    async def _send_back_all(self, process_queue: ProcessQueue, failed: Sequence[_Failure]) -> None:
        again: list[MessageExt] = []
        for message, outcome in failed:
            if self._send_back is None:
                self._log_dropped(message, outcome)
            elif not await self._try_send_back(self._send_back, message, outcome):
                # The message stays unsettled, so a crash before its next call redelivers it. The failed delivery
                # counts.
                message.reconsume_times += 1
                again.append(message)
                continue
            # Settled only when a broker has stored the copy. A crash in between doubles the message; in the other
            # order it would lose the message.
            self._settle(process_queue, [message])
        if again:
            self._loop.call_later(LOCAL_RETRY_DELAY, self._resubmit, process_queue, again)

    def _resubmit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if not (process_queue.dropped or self._stopped):
            self.submit(process_queue, messages)

    async def _try_send_back(self, send_back: SendBack, message: MessageExt, outcome: ConcurrentOutcome) -> bool:
        level = outcome.delay_level if isinstance(outcome, RetryLater) else DEAD_LETTER
        cause = None if isinstance(outcome, Success) else outcome.cause
        sending = send_back.retry(message, level, self._max_reconsume_times, cause)
        return await self._is_sent(message, sending, "this member consumes it again")

    async def _clean_expired(self) -> None:
        while True:
            # So a call is found late by up to another timeout, as in Apache's ConsumeMessageConcurrentlyService.
            await asyncio.sleep(self._consume_timeout)
            for process_queue in list(self._process_queues()):
                await self._clean(process_queue)

    async def _clean(self, process_queue: ProcessQueue) -> None:
        outcome = RetryLater(EXPIRED_LEVEL, f"the listener call took longer than {self._consume_timeout:g} s")
        for _ in range(MAX_EXPIRED_AT_ONCE):
            message = process_queue.expired(self._loop.time() - self._consume_timeout)
            if message is None or process_queue.dropped or self._send_back is None:
                return
            # A task of its own, which is not cancelled with this one: the broker may have stored the copy already, and
            # then the message must be settled.
            await asyncio.wait((self._start_send_back(process_queue, self._expire(process_queue, message, outcome)),))
            # No broker took the message. Others of this queue would fail as well; the next round tries again.
            if message in process_queue:
                return

    async def _expire(self, process_queue: ProcessQueue, message: MessageExt, outcome: RetryLater) -> None:
        if self._send_back is not None and await self._try_send_back(self._send_back, message, outcome):
            logger.warning(
                "group %s: message %s of topic %s was sent back: its listener call takes longer than %g s",
                self._group,
                message.msg_id,
                message.topic,
                self._consume_timeout,
            )
            self._settle(process_queue, [message])

    def close(self) -> None:
        """Start no more calls. Calls cancelled from now on leave their messages unsettled."""
        self._stopped = True
        self._work.clear()
        self._unpark()

    async def stop(self, timeout: float) -> None:
        """Start no more calls; wait up to `timeout` seconds for those under way, then cancel them."""
        self.close()
        self._unwatch_capacity()
        deadline = self._loop.time() + timeout
        if self._lasting_task is not None:
            await cancel([self._lasting_task])
        # Workers first, because the outcomes of their calls may begin further returns.
        for tasks in (self._workers, self._send_backs):
            if tasks:
                await asyncio.wait(list(tasks), timeout=max(0.0, deadline - self._loop.time()))
        late = [*self._workers, *self._send_backs]
        self._log_late_calls(len(late), timeout)
        await cancel(late)


def _outcomes(messages: Sequence[MessageExt], outcome: object) -> Sequence[ConcurrentOutcome]:
    """Return the outcome for each message.

    Raises:
        TypeError: `outcome` is not an outcome, or not a list of one for each message.
    """
    if isinstance(outcome, Success):
        done = len(messages) if outcome.ack_index is None else outcome.ack_index + 1
        return [SUCCESS if index < done else RetryLater() for index in range(len(messages))]
    if isinstance(outcome, RetryLater | Reject):
        return [outcome] * len(messages)
    if isinstance(outcome, Sequence) and len(outcome) == len(messages):
        outcomes = [one for one in outcome if isinstance(one, ConcurrentOutcome)]
        if len(outcomes) == len(messages):
            return outcomes
    raise TypeError(
        f"a concurrent listener returns Success, RetryLater, Reject, None or one of them for each of its "
        f"{len(messages)} messages, not {outcome!r}"
    )
