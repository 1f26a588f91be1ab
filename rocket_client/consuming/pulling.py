"""The pull loop of one assigned queue.

::

    answer              next step
    FOUND               decode, drop messages whose tags do not match, submit the others to the consumption, pull
                        again at once (after a lone message: behind what its listener sends up to its first wait);
                        bodies stay compressed until they are consumed
    NO_NEW_MSG          pull again (the broker has held the pull for 15 s)
    NO_MATCHED_MSG      pull again from the answer's offset, after 0.5 s if it is the same offset; with nothing
                        unsettled, that offset is also committed
    OFFSET_ILLEGAL      the queue does not have the offset: wait for calls under way, commit the answer's offset, give
                        the queue back; the next rebalance takes it over again there
    an error            pull again after `pull_time_delay_when_exception`

Back-pressure: a queue is not pulled while too many of its messages, or too many bytes, are unsettled, and not while the
queue or the consumer is paused.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from rocket_client.consuming.membership import Membership
from rocket_client.consuming.queue_pulls import PullTerms, QueuePulls
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.pull_answer import PullStatus
from rocket_client.core.unpacked_bodies import is_compressed
from rocket_client.settings import ConsumerSettings
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.topics import is_retry_topic

logger = logging.getLogger(__name__)

# The pauses of Apache's DefaultMQPushConsumerImpl: 50 ms, 20 ms, and 10 s after OFFSET_ILLEGAL (4.9). Version 5.3
# does not wait for calls then, and ignores the offsets that they settle.
FLOW_CONTROL_DELAY = 0.05
BROKER_FLOW_CONTROL_DELAY = 0.02
ILLEGAL_OFFSET_TIMEOUT = 10.0
NO_PROGRESS_DELAY = 0.5
"""Seconds after an answer that asks for the same pull again at once. Slaves of Apache's 5.x answer so if they have
nothing new, also while there is no master. Apache's client pulls again without a pause."""
_SUBSCRIPTION_UNKNOWN = {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
_MILLISECOND = timedelta(milliseconds=1)
MIB = 1024 * 1024


class Consumption(Protocol):
    """Gets the pulled messages of all assigned queues."""

    def start(self) -> None: ...

    def attach(self, process_queue: ProcessQueue) -> None: ...

    def detach(self, process_queue: ProcessQueue) -> None: ...

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Take all messages, or none and raise an exception."""

    def close(self) -> None: ...

    async def stop(self, timeout: float) -> None: ...


class PullLimits:
    """The most unsettled messages and bytes of a queue; limits of a topic are divided among its assigned queues."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self.messages = settings.pull_threshold_for_queue
        self.size = settings.pull_threshold_size_for_queue * MIB

    def divide(self, queue_count: int) -> None:
        """Divide the topic's limits among the number of its queues that are assigned now."""
        settings, count = self._settings, max(1, queue_count)
        if settings.pull_threshold_for_topic != -1:
            self.messages = max(1, settings.pull_threshold_for_topic // count)
        if settings.pull_threshold_size_for_topic != -1:
            self.size = max(1, settings.pull_threshold_size_for_topic // count) * MIB


class PullLoop:
    """The pulls of one process queue, one after the other."""

    def __init__(
        self, member: Membership, consumption: Consumption, process_queue: ProcessQueue, limits: PullLimits
    ) -> None:
        settings = member.settings
        self._member = member
        self._client = member.client
        self._group = member.group
        self._gate = member.gate
        self._offsets = member.offsets
        self._submit = consumption.submit if member.arrivals is None else member.arrivals.noted(consumption.submit)
        self._process_queue = process_queue
        self._queue = process_queue.message_queue
        self._limits = limits
        self._commits = member.clustering and not member.polls
        self._pulls = QueuePulls(
            member.client, member.group, self._queue, member.namespace, hides_retries=not member.polls
        )
        self._terms = PullTerms(
            settings.pull_batch_size,
            settings.broker_suspend_max_time // _MILLISECOND,
            settings.consumer_timeout_when_suspend.total_seconds(),
            posts_subscription=member.posts_subscription,
            lite=member.polls,
        )
        self._pause = settings.pull_interval.total_seconds()
        self._error_pause = settings.pull_time_delay_when_exception.total_seconds()
        self._max_span = member.max_span
        self._last_error = ""
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<PullLoop {self._group} {self._process_queue!r}>"

    async def run(self, offset: int) -> int | None:
        """Pull from an offset on until the queue is dropped.

        Returns:
            The broker's offset if it answered OFFSET_ILLEGAL; otherwise None.
        """
        queue, limits, is_lone = self._process_queue, self._limits, False
        while not self._is_over():
            if not (self._gate.admits(self._queue) and queue.is_within(limits.messages, limits.size, self._max_span)):
                await self._wait_until_pulled_again()
                continue
            subscription = self._member.subscriptions.get(self._queue.topic)
            if subscription is None:
                return None
            queue.last_pull_at = self._loop.time()
            try:
                # A lone message's listener sends its result before the next pull, which only waits.
                answer = await self._pulls.pull(
                    subscription, offset, self._terms, commit=self._offset_to_commit(), last=is_lone
                )
                messages = self._pulls.messages(answer, subscription)
            except RemotingError as error:
                is_lone = False
                await self._recover(error, offset)
                continue
            self._last_error = ""
            queue.lag = max(0, answer.max_offset - answer.next_begin_offset)
            if self._member.unreachable:
                self._note_reachable()
            # The queue may have been dropped during the pull: its messages are for its next member.
            if self._is_over():
                return None
            if answer.status is PullStatus.OFFSET_ILLEGAL:
                wanted = answer.next_begin_offset
                logger.warning(
                    "group %s: offset %d is out of range for %s; the broker suggests %d",
                    self._group, offset, self._queue, wanted,
                )  # fmt: skip
                return wanted
            is_stuck = answer.status is PullStatus.NO_MATCHED_MSG and answer.next_begin_offset == offset
            offset = answer.next_begin_offset
            is_lone = len(messages) == 1 and not queue.lag
            if messages:
                fresh = queue.put(messages)
                try:
                    self._submit(queue, fresh)
                except BaseException:
                    queue.take_back(fresh)  # or they would wait in the queue, where no consumption finds them
                    raise
                # Let calls begin. Compressed bodies are then decompressed and counted before the next check of the
                # limits.
                if self._pause or is_compressed(messages):
                    await asyncio.sleep(self._pause)
            # No message matched, and nothing is unsettled. Without this commit the group would seem to lag behind,
            # and the next member would search the same offsets again.
            elif queue.skip_to(offset) and not self._member.polls:
                self._offsets.update(self._queue, offset, increase_only=True)
            if is_stuck:
                await asyncio.sleep(NO_PROGRESS_DELAY)
        return None

    def _is_over(self) -> bool:
        return self._process_queue.dropped

    async def _wait_until_pulled_again(self) -> None:
        """Wait a while: too much is unsettled, or the queue or the consumer is paused."""
        queue, limits = self._process_queue, self._limits
        if not self._gate.admits(self._queue):
            await self._gate.wait_admitted(self._queue)
        elif len(queue) > limits.messages:
            # Woken early only at half of the limit: at the limit itself, each settled message would wake this loop
            # for one more pull.
            await queue.wait_for_capacity(limits.messages // 2, FLOW_CONTROL_DELAY)
        else:
            await asyncio.sleep(FLOW_CONTROL_DELAY)

    def _offset_to_commit(self) -> int:
        """Return the offset for the next pull to commit; 0 for none."""
        # A pull carries a commit only if nothing is unsettled. Otherwise the offset could move while the pull is under
        # way, and the broker, which handles pulls and commits on different threads, could store the pull's older offset
        # after a newer commit.
        if not self._commits or len(self._process_queue):
            return 0
        return self._offsets.get(self._queue) or 0

    async def _recover(self, error: RemotingError, offset: int) -> None:
        pause = self._error_pause
        level = logging.WARNING
        if isinstance(error, ResponseError):
            if error.code in _SUBSCRIPTION_UNKNOWN:
                # The broker does not have the subscription of the last heartbeat, for instance after a restart.
                await self._client.heartbeat()
                pause, level = min(pause, 1.0), logging.INFO
            elif error.code == ResponseCode.FLOW_CONTROL:
                pause, level = BROKER_FLOW_CONTROL_DELAY, logging.DEBUG
        if self._was_logged(error) or is_retry_topic(self._queue.topic):
            level = logging.DEBUG  # a retry topic does not exist before its first message
        logger.log(level, "group %s: pull of %s at offset %d failed: %s", self._group, self._queue, offset, error)
        await asyncio.sleep(pause)

    def _was_logged(self, error: RemotingError) -> bool:
        """Return whether the error was logged already: a response for this queue, any other error for its broker."""
        text = str(error)
        if isinstance(error, ResponseError):
            known, self._last_error = self._last_error, text
            return text == known
        logged = self._member.unreachable.setdefault(self._queue.broker_name, set())
        was_logged = text in logged
        logged.add(text)
        return was_logged

    def _note_reachable(self) -> None:
        broker = self._queue.broker_name
        if self._member.unreachable.pop(broker, None) is not None:
            # A warning, as the errors before were: logs that show only warnings need the end of the failures too.
            logger.warning("group %s: broker %s can be reached again", self._group, broker)
