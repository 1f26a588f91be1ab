"""Concurrent consumption: listener calls in no particular order, at most `concurrency` at once.

Calls are made by workers, each a task that takes one batch after the other from a common queue. One
worker is enough as long as the listener never waits; so a further one starts only when batches are left
after every worker has come to wait inside its call. A fast listener thus costs no task per message, a
slow one gets all the calls it may have, or has room for.

::

    listener says            clustering                                   broadcasting
    Success                  settled                                      settled
    RetryLater, exception    sent back, then settled                      logged, settled
    Reject                   sent to the dead letter topic, then settled  logged, settled
    sending back fails       called again here after 5 s                  -
    call takes > 15 min      sent back at level 3, then settled           -
    body is unreadable       no call; as for Reject                       as for Reject
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence

from rocket_client.connection.client import cancel
from rocket_client.consuming.listener import (
    ENDS_THE_PROCESS,
    SUCCESS,
    ConcurrentListener,
    ConcurrentOutcome,
    ConsumeContext,
    Reject,
    RetryLater,
    Room,
    Success,
)
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import DEAD_LETTER, DEFAULT_MAX_RECONSUME_TIMES, SendBack
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.core.unpacked_bodies import Unpacked, is_compressed
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageExt

logger = logging.getLogger(__name__)

LOCAL_RETRY_DELAY = 5.0
EXPIRED_LEVEL = 3
MAX_EXPIRED_AT_ONCE = 16

# A worker lets the loop do other things after this many calls that never waited.
_CALLS_IN_A_ROW = 64
# What a call counts as for which bodies were decompressed.
_UNPACKING = 16

_Batch = tuple[ProcessQueue, list[MessageExt]]
_Failure = tuple[MessageExt, ConcurrentOutcome]


class ConcurrentConsumption:
    """Hands pulled messages to a listener, and settles them by what it says."""

    def __init__(
        self,
        member: Membership,
        settings: PushConsumerSettings,
        listener: ConcurrentListener,
        send_back: SendBack | None,
        process_queues: Callable[[], Collection[ProcessQueue]],
        *,
        room: Room | None = None,
    ) -> None:
        """Ready for queues.

        Args:
            member: Whose messages.
            settings: How many at once, how often, how long.
            listener: What is called.
            send_back: Where failed messages go; None: nowhere, as in broadcasting.
            process_queues: All that are assigned now, to look for calls that take too long.
            room: What the listener has for further calls; None: always some.
        """
        self._group = member.group
        self._namespace = member.namespace
        self._offsets = member.offsets
        self._bodies = member.bodies
        self._unpacking = asyncio.Lock()
        self._listener = listener
        self._send_back = send_back
        self._process_queues = process_queues
        self._batch_size = settings.consume_message_batch_max_size
        self._limit = settings.concurrency or 1 << 30
        times = settings.max_reconsume_times
        self._max_reconsume_times = DEFAULT_MAX_RECONSUME_TIMES if times == -1 else times
        self._consume_timeout = settings.consume_timeout.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._contexts: dict[ProcessQueue, ConsumeContext] = {}
        self._work: deque[_Batch] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        # Workers that run at the loop's next turn: just started, or letting others run.
        self._ready = 0
        self._burst = 1
        self._look_scheduled = False
        self._room = room
        # Batches were left because there was no room.
        self._held_up = False
        self._returns: set[asyncio.Task[None]] = set()
        self._cleaner: asyncio.Task[None] | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ConcurrentConsumption {self._group}: {len(self._work)} batches wait, {len(self._workers)} workers>"

    def start(self) -> None:
        """Begin to look for calls that take too long."""
        if self._send_back is not None:
            self._cleaner = asyncio.create_task(
                self._clean_expired(), name=f"expired messages of {self._group}"
            )

    def attach(self, process_queue: ProcessQueue) -> None:
        """A queue was assigned."""
        queue = self._namespace.unwrap_queue(process_queue.message_queue)
        self._contexts[process_queue] = ConsumeContext(self._group, queue, orderly=False)

    def detach(self, process_queue: ProcessQueue) -> None:
        """A queue was revoked; its calls under way finish, its other batches are passed over."""
        self._contexts.pop(process_queue, None)

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Let the messages be consumed, in batches."""
        size, work = self._batch_size, self._work
        if size == 1:
            work.extend([(process_queue, [message]) for message in messages])
        else:
            work.extend(
                (process_queue, list(messages[at : at + size])) for at in range(0, len(messages), size)
            )
        if not self._ready:
            self._start_workers(1)

    # Workers

    def _has_room(self) -> bool:
        room = self._room
        if room is None or room.free > 0:
            return True
        if not self._held_up:
            self._held_up = True
            room.watch(self._go_on)
        return False

    def _go_on(self) -> None:
        """There is room again; a worker that made it may take the next batch before a further one starts."""
        self._forget_room()
        self._look_soon()

    def _forget_room(self) -> None:
        if self._room is not None and self._held_up:
            self._held_up = False
            self._room.unwatch(self._go_on)

    def _start_workers(self, count: int) -> None:
        for _ in range(min(count, self._limit - len(self._workers))):
            self._ready += 1
            worker = self._loop.create_task(self._run_worker(), name=f"listener of {self._group}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        if self._ready:
            self._look_soon()

    def _look_soon(self) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Start workers if batches wait although every worker does too.

        Runs after all workers that were ready when it was scheduled have taken their first batch.
        """
        self._look_scheduled = False
        if self._ready:
            return
        if not self._work:
            self._burst = 1
            return
        if not self._has_room():
            return
        self._start_workers(min(self._burst, len(self._work)))
        self._burst *= 2

    async def _run_worker(self) -> None:
        self._ready -= 1
        work, calls = self._work, 0
        while work and not self._stopped and self._has_room():
            process_queue, messages = work.popleft()
            if process_queue.dropped:
                continue
            if is_compressed(messages):
                await self._unpack_and_consume(process_queue, messages)
                calls += _UNPACKING
            else:
                await self._consume(process_queue, messages, messages)
                calls += 1
            if calls >= _CALLS_IN_A_ROW:
                calls = 0
                self._ready += 1
                await asyncio.sleep(0)
                self._ready -= 1
                self._look_soon()

    async def _unpack_and_consume(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Make a call with as many of the messages as can be decompressed now; the others follow."""
        unpacked = self._bodies.unpack_small(messages)
        if not unpacked.is_whole(messages):
            # One after the other, so that what is decompressed is not put aside for want of room.
            async with self._unpacking:
                if self._has_room():
                    unpacked = await self._bodies.unpack_large(messages, unpacked)
        process_queue.growth += unpacked.growth
        try:
            if process_queue.dropped or self._stopped:
                return
            if not self._has_room():
                self._work.appendleft((process_queue, messages))
                return
            await self._consume_unpacked(process_queue, messages, unpacked)
        finally:
            process_queue.growth -= unpacked.growth
            self._bodies.release(unpacked.room)

    async def _consume_unpacked(
        self, process_queue: ProcessQueue, messages: list[MessageExt], unpacked: Unpacked
    ) -> None:
        count = len(unpacked.messages)
        called, behind = messages[:count], messages[count:]
        if unpacked.error is not None:
            self._reject(process_queue, behind.pop(0), unpacked.error)
        if behind:
            self._work.appendleft((process_queue, behind))
        if called:
            await self._consume(process_queue, called, unpacked.messages)

    def _reject(self, process_queue: ProcessQueue, message: MessageExt, error: UnreadableBodyError) -> None:
        """Send a message that nobody can read to the dead letters."""
        logger.error("group %s: no listener is called: %s", self._group, error)
        self._resolve(process_queue, [message], [Reject(error)])

    async def _consume(
        self, process_queue: ProcessQueue, messages: list[MessageExt], given: list[MessageExt]
    ) -> None:
        """Call the listener and settle the messages by what it says.

        Args:
            process_queue: The queue that the messages are of.
            messages: The messages as they were stored.
            given: The messages as the listener gets them.
        """
        process_queue.begin(messages, self._loop.time())
        try:
            try:
                outcome = await self._listener(given, self._contexts[process_queue])
                said = None if outcome is None or outcome is SUCCESS else _outcomes(messages, outcome)
            except asyncio.CancelledError:
                if self._stopped:
                    raise
                said = self._failed(messages, RuntimeError("the listener call was cancelled from inside"))
            except ENDS_THE_PROCESS:
                raise
            except BaseException as error:
                said = self._failed(messages, error)
            if said is None:
                self._settle(process_queue, messages)
            else:
                self._resolve(process_queue, messages, said)
        finally:
            process_queue.end()

    def _failed(self, messages: Sequence[MessageExt], error: BaseException) -> Sequence[ConcurrentOutcome]:
        first = messages[0]
        logger.warning(
            "group %s: the listener failed with %d message(s) of topic %s, first %s of queue %d at offset %d",
            self._group,
            len(messages),
            first.topic,
            first.msg_id,
            first.queue_id,
            first.queue_offset,
            exc_info=error,
        )
        return [RetryLater(cause=error)] * len(messages)

    # Outcomes

    def _settle(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        offset = process_queue.settle(messages)
        if offset != NOTHING_TO_COMMIT and not process_queue.dropped:
            self._offsets.update(process_queue.message_queue, offset, increase_only=True)

    def _resolve(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        outcomes: Sequence[ConcurrentOutcome],
    ) -> None:
        # A message that expired meanwhile has been sent back already.
        present = [
            (message, said)
            for message, said in zip(messages, outcomes, strict=True)
            if message in process_queue
        ]
        failed = [(message, said) for message, said in present if not isinstance(said, Success)]
        self._settle(process_queue, [message for message, said in present if isinstance(said, Success)])
        if failed and not process_queue.dropped:
            self._begin_return(process_queue, self._return(process_queue, failed))

    def _begin_return(
        self, process_queue: ProcessQueue, work: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        # Counts as a call: what goes on without waiting for its end would have the message come beside its copy.
        process_queue.begin((), self._loop.time())
        task = self._loop.create_task(work, name=f"send back of {self._group}")
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        task.add_done_callback(lambda _: process_queue.end())
        return task

    async def _return(self, process_queue: ProcessQueue, failed: Sequence[_Failure]) -> None:
        again: list[MessageExt] = []
        for message, said in failed:
            if self._send_back is None:
                logger.warning(
                    "group %s drops a message that failed in broadcasting: %r: %r", self._group, message, said
                )
            elif not await self._sent_back(self._send_back, message, said):
                message.reconsume_times += 1
                again.append(message)
                continue
            self._settle(process_queue, [message])
        if again:
            self._loop.call_later(LOCAL_RETRY_DELAY, self._try_again, process_queue, again)

    def _try_again(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if not (process_queue.dropped or self._stopped):
            self.submit(process_queue, messages)

    async def _sent_back(self, send_back: SendBack, message: MessageExt, said: ConcurrentOutcome) -> bool:
        level = said.delay_level if isinstance(said, RetryLater) else DEAD_LETTER
        cause = None if isinstance(said, Success) else said.cause
        try:
            await send_back.retry(message, level, self._max_reconsume_times, cause)
        except Exception as error:  # whatever it is, the message keeps its place
            logger.warning(
                "group %s: message %s of topic %s could not be sent back, it is tried again here: %s",
                self._group,
                message.msg_id,
                message.topic,
                error,
                exc_info=not isinstance(error, RemotingError),
            )
            return False
        return True

    async def _clean_expired(self) -> None:
        while True:
            await asyncio.sleep(self._consume_timeout)
            for process_queue in list(self._process_queues()):
                await self._clean(process_queue)

    async def _clean(self, process_queue: ProcessQueue) -> None:
        said = RetryLater(EXPIRED_LEVEL, f"the listener call took longer than {self._consume_timeout:g} s")
        for _ in range(MAX_EXPIRED_AT_ONCE):
            message = process_queue.expired(self._loop.time() - self._consume_timeout)
            if message is None or process_queue.dropped or self._send_back is None:
                return
            # Not ended with this task: the broker may have stored the copy already.
            await asyncio.wait(
                (self._begin_return(process_queue, self._expire(process_queue, message, said)),)
            )
            if message in process_queue:
                return

    async def _expire(self, process_queue: ProcessQueue, message: MessageExt, said: RetryLater) -> None:
        if self._send_back is not None and await self._sent_back(self._send_back, message, said):
            logger.warning(
                "group %s: message %s of topic %s expired", self._group, message.msg_id, message.topic
            )
            self._settle(process_queue, [message])

    def close(self) -> None:
        """Start no more calls. A call that is cancelled from now on leaves its messages unsettled."""
        self._stopped = True
        self._work.clear()

    async def stop(self, timeout: float) -> None:
        """Start no more calls, and wait that long for those under way; then they are cancelled."""
        self.close()
        self._forget_room()
        deadline = self._loop.time() + timeout
        if self._cleaner is not None:
            await cancel([self._cleaner])
        for tasks in (self._workers, self._returns):
            if tasks:
                await asyncio.wait(list(tasks), timeout=max(0.0, deadline - self._loop.time()))
        late = [*self._workers, *self._returns]
        if late:
            logger.warning(
                "group %s: %d listener call(s) did not end within %g s", self._group, len(late), timeout
            )
        await cancel(late)


def _outcomes(messages: Sequence[MessageExt], outcome: object) -> Sequence[ConcurrentOutcome]:
    """What the listener said of each message.

    Raises:
        TypeError: It said something else.
    """
    if isinstance(outcome, Success):
        done = len(messages) if outcome.ack_index is None else outcome.ack_index + 1
        return [SUCCESS if index < done else RetryLater() for index in range(len(messages))]
    if isinstance(outcome, RetryLater | Reject):
        return [outcome] * len(messages)
    if isinstance(outcome, Sequence) and len(outcome) == len(messages):
        said = [one for one in outcome if isinstance(one, ConcurrentOutcome)]
        if len(said) == len(messages):
            return said
    raise TypeError(
        f"a concurrent listener returns Success, RetryLater, Reject, None or one of them for each of its "
        f"{len(messages)} messages, not {outcome!r}"
    )
