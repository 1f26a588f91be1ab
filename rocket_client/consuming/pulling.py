"""Pulls one assigned queue for as long as it is assigned.

::

    answer              what follows
    FOUND               decode, keep what the tags match, hand on, pull again at once; bodies stay compressed
                        until they are consumed
    NO_NEW_MSG          (the broker held the pull for 15 s) pull again
    NO_MATCHED_MSG      pull again from the offset given; with nothing unsettled, that offset is committed too
    OFFSET_ILLEGAL      the queue has other messages than we think: wait for calls under way, commit the
                        offset given, give the queue back and let the next rebalance start it anew
    an error            pull again after `pull_time_delay_when_exception`

A queue is not pulled while too many of its messages are unsettled, or while it or the consumer is paused.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from rocket_client.consuming.membership import Membership
from rocket_client.consuming.queue_pulls import PullTerms, QueuePulls
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.pull_answer import PullAnswer, PullStatus
from rocket_client.core.unpacked_bodies import is_compressed
from rocket_client.settings import ConsumerSettings
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.topics import is_retry_topic

logger = logging.getLogger(__name__)

FLOW_CONTROL_DELAY = 0.05
BROKER_FLOW_CONTROL_DELAY = 0.02
ILLEGAL_OFFSET_PATIENCE = 10.0
_SUBSCRIPTION_UNKNOWN = {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
_MILLISECOND = timedelta(milliseconds=1)
MIB = 1024 * 1024


class Consumption(Protocol):
    """Where pulled messages go."""

    def start(self) -> None: ...

    def attach(self, process_queue: ProcessQueue) -> None: ...

    def detach(self, process_queue: ProcessQueue) -> None: ...

    def submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None: ...

    def close(self) -> None: ...

    async def stop(self, timeout: float) -> None: ...


class PullLimits:
    """Most messages and bytes a queue may have unsettled; a topic's limits are divided among its queues."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self.messages = settings.pull_threshold_for_queue
        self.size = settings.pull_threshold_size_for_queue * MIB

    def divide(self, queue_count: int) -> None:
        """That many queues are assigned now."""
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
        self._consumption = consumption
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
        self._trouble = ""
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<PullLoop {self._group} {self._process_queue!r}>"

    async def run(self, offset: int) -> int | None:
        """Pull from that offset on until the queue is dropped.

        Returns:
            The offset the broker wants instead, when it called ours illegal; otherwise None.
        """
        queue = self._process_queue
        while not self._is_over():
            if not await self._may_pull():
                continue
            subscription = self._member.subscriptions.get(self._queue.topic)
            if subscription is None:
                return None
            queue.last_pull_at = self._loop.time()
            try:
                answer = await self._pull(subscription, offset)
                messages = self._pulls.messages(answer, subscription)
            except RemotingError as error:
                await self._recover(error, offset)
                continue
            self._trouble = ""
            if self._member.unreachable:
                self._reached()
            if self._is_over():
                return None
            if answer.status is PullStatus.OFFSET_ILLEGAL:
                wanted = answer.next_begin_offset
                logger.warning(
                    "group %s: offset %d is out of range for %s; the broker suggests %d",
                    self._group, offset, self._queue, wanted,
                )  # fmt: skip
                return wanted
            offset = answer.next_begin_offset
            if messages:
                self._consumption.submit(queue, list(queue.put(messages)))
                if self._pause or is_compressed(messages):
                    # Calls that begin at once decompress their bodies, which count before the next pull.
                    await asyncio.sleep(self._pause)
            elif queue.skip_to(offset) and not self._member.polls:
                self._offsets.update(self._queue, offset, increase_only=True)
        return None

    def _is_over(self) -> bool:
        return self._process_queue.dropped

    async def _may_pull(self) -> bool:
        """True when nothing speaks against a pull; otherwise False after a while."""
        queue, limits = self._process_queue, self._limits
        if not self._gate.admits(self._queue):
            await self._gate.admitted(self._queue)
            return False
        if len(queue) > limits.messages:
            await queue.room(limits.messages // 2, FLOW_CONTROL_DELAY)
            return False
        if queue.size > limits.size or queue.max_span > self._max_span:
            await asyncio.sleep(FLOW_CONTROL_DELAY)
            return False
        return True

    async def _pull(self, subscription: SubscriptionData, offset: int) -> PullAnswer:
        # With messages unsettled the offset will move, and a broker handles a pull and a commit on different threads:
        # the pull's older offset could come after the last commit. Without, nothing newer comes before its answer.
        commit = 0
        if self._commits and not len(self._process_queue):
            commit = self._offsets.get(self._queue) or 0
        return await self._pulls.pull(subscription, offset, self._terms, commit=commit)

    async def _recover(self, error: RemotingError, offset: int) -> None:
        pause = self._error_pause
        level = logging.WARNING
        if isinstance(error, ResponseError):
            if error.code in _SUBSCRIPTION_UNKNOWN:
                # The broker lost, or did not get, what the heartbeat told it.
                await self._client.heartbeat()
                pause, level = min(pause, 1.0), logging.INFO
            elif error.code == ResponseCode.FLOW_CONTROL:
                pause, level = BROKER_FLOW_CONTROL_DELAY, logging.DEBUG
        if self._was_told(error) or is_retry_topic(self._queue.topic):
            level = logging.DEBUG  # or of a topic that comes into being with its first message
        logger.log(level, "group %s: pull of %s at %d failed: %s", self._group, self._queue, offset, error)
        await asyncio.sleep(pause)

    def _was_told(self, error: RemotingError) -> bool:
        """Whether this was told already: of this queue, or of its broker where that is not reached at all."""
        trouble = str(error)
        if isinstance(error, ResponseError):
            known, self._trouble = self._trouble, trouble
            return trouble == known
        told = self._member.unreachable.setdefault(self._queue.broker_name, set())
        was_told = trouble in told
        told.add(trouble)
        return was_told

    def _reached(self) -> None:
        broker = self._queue.broker_name
        if self._member.unreachable.pop(broker, None) is not None:
            # A warning, since who saw those before waits for it.
            logger.warning("group %s: pulls reach %s again", self._group, broker)
