"""Pulls one assigned queue for as long as it is assigned.

::

    answer              what follows
    FOUND               decode, keep what the tags match, hand on, pull again at once; a body that cannot be
                        unpacked is handed on as it was stored
    NO_NEW_MSG          (the broker held the pull for 15 s) pull again
    NO_MATCHED_MSG      pull again from the offset given; with nothing unsettled, that offset is committed too
    OFFSET_ILLEGAL      the queue has other messages than we think: wait for calls under way, commit the
                        offset given, give the queue back and let the next rebalance start it anew
    an error            pull again after `pull_time_delay_when_exception`

A queue is not pulled while too many of its messages are unsettled, while the consumer is suspended, or,
in orderly mode, while it is not locked.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from rocket_client.errors import BrokerNotFoundError
from rocket_client.membership import Membership
from rocket_client.process_queue import ProcessQueue
from rocket_client.pull_answer import PullAnswer, PullStatus
from rocket_client.settings import PushConsumerSettings
from rocket_client.topic_route import MASTER_ID
from rocket_remoting.bodies import SubscriptionData
from rocket_remoting.codes import ResponseCode
from rocket_remoting.compression import decompress
from rocket_remoting.errors import RemoteProtocolError, RemotingError, ResponseError
from rocket_remoting.headers import PullMessageRequestHeader
from rocket_remoting.message import MessageExt
from rocket_remoting.properties import (
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
)
from rocket_remoting.record import decode_records
from rocket_remoting.sys_flag import COMPRESSED, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocket_remoting.topics import is_retry_topic, retry_topic

_LOG = logging.getLogger(__name__)

FLOW_CONTROL_DELAY = 0.05
BROKER_FLOW_CONTROL_DELAY = 0.02
ILLEGAL_OFFSET_PATIENCE = 10.0
UNLIMITED_SPAN = 1 << 62
_SUBSCRIPTION_UNKNOWN = {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
_MILLISECOND = timedelta(milliseconds=1)
MIB = 1024 * 1024


class Consumption(Protocol):
    """Where pulled messages go."""

    def start(self) -> None: ...

    def attach(self, process_queue: ProcessQueue) -> None: ...

    def detach(self, process_queue: ProcessQueue) -> None: ...

    def submit(self, process_queue: ProcessQueue, messages: "list[MessageExt]") -> None: ...

    def close(self) -> None: ...

    async def stop(self, timeout: float) -> None: ...


class PullLimits:
    """Most messages and bytes a queue may have unsettled; a topic's limits are divided among its queues."""

    def __init__(self, settings: PushConsumerSettings) -> None:
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
        self._retry_topic = retry_topic(member.group)
        self._offsets = member.offsets
        self._consumption = consumption
        self._process_queue = process_queue
        self._queue = process_queue.message_queue
        self._limits = limits
        self._clustering = member.clustering
        self._pause = settings.pull_interval.total_seconds()
        self._error_pause = settings.pull_time_delay_when_exception.total_seconds()
        self._batch_size = settings.pull_batch_size
        self._hold_ms = settings.broker_suspend_max_time // _MILLISECOND
        self._timeout = settings.consumer_timeout_when_suspend.total_seconds()
        # Only what is consumed out of order can leave a wide gap behind.
        self._max_span = UNLIMITED_SPAN if member.orderly else settings.consume_concurrently_max_span
        self._broker_id = MASTER_ID
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
                messages = self._messages(answer, subscription)
            except RemotingError as error:
                await self._recover(error, offset)
                continue
            self._trouble = ""
            if self._is_over():
                return None
            offset = answer.next_begin_offset
            if answer.status is PullStatus.OFFSET_ILLEGAL:
                return offset
            if messages:
                self._consumption.submit(queue, list(queue.put(messages)))
                if self._pause:
                    await asyncio.sleep(self._pause)
            elif not len(queue):
                self._offsets.update(self._queue, offset, increase_only=True)
        return None

    def _is_over(self) -> bool:
        return self._process_queue.dropped

    async def _may_pull(self) -> bool:
        """True when nothing speaks against a pull; otherwise False after a while."""
        queue, limits = self._process_queue, self._limits
        if not self._member.resumed.is_set():
            await self._member.resumed.wait()
            return False
        if len(queue) > limits.messages:
            await queue.room(limits.messages // 2, FLOW_CONTROL_DELAY)
            return False
        if queue.size > limits.size or queue.max_span > self._max_span:
            await asyncio.sleep(FLOW_CONTROL_DELAY)
            return False
        return True

    async def _pull(self, subscription: SubscriptionData, offset: int) -> PullAnswer:
        found = self._client.routes.address(self._queue.broker_name, self._broker_id)
        if found is None:
            await self._client.routes.refresh(self._queue.topic)
            found = self._client.routes.address(self._queue.broker_name, self._broker_id)
            if found is None:
                raise BrokerNotFoundError(self._queue.broker_name)
        address, broker_id = found
        flag, commit = PULL_SUSPEND, 0
        # With messages unsettled the offset will move, and a broker handles a pull and a commit on different threads:
        # the pull's older offset could come after the last commit. Without, nothing newer comes before its answer.
        if self._clustering and broker_id == MASTER_ID and not len(self._process_queue):
            commit = self._offsets.get(self._queue) or 0
            if commit > 0:
                flag |= PULL_COMMIT_OFFSET
        expression = subscription.sub_string if self._member.settings.post_subscription_when_pull else None
        if expression is not None:
            flag |= PULL_SUBSCRIPTION
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=offset,
            max_msg_nums=self._batch_size,
            sys_flag=flag,
            commit_offset=commit,
            suspend_timeout_millis=self._hold_ms,
            subscription=expression,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=self._queue.broker_name,
        )
        answer = await self._client.requests.pull(address, header, self._timeout)
        self._broker_id = answer.suggest_which_broker_id
        return answer

    def _messages(self, answer: PullAnswer, subscription: SubscriptionData) -> list[MessageExt]:
        """The messages of the answer as the listener gets them."""
        if answer.status is not PullStatus.FOUND:
            return []
        messages = self._decoded(answer.records)
        if subscription.tags_set:
            wanted = frozenset(subscription.tags_set)
            messages = [message for message in messages if message.properties.get(PROPERTY_TAGS) in wanted]
        smallest, largest, broker_name = (
            str(answer.min_offset),
            str(answer.max_offset),
            self._queue.broker_name,
        )
        is_retry = self._queue.topic == self._retry_topic
        for message in messages:
            properties = message.properties
            properties[PROPERTY_MIN_OFFSET] = smallest
            properties[PROPERTY_MAX_OFFSET] = largest
            message.broker_name = broker_name
            if is_retry:
                message.topic = properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        return messages

    def _decoded(self, records: bytes | memoryview) -> list[MessageExt]:
        """The messages; a body that cannot be unpacked stays as it was stored, and its message goes the way of others.

        Pulled again it would be no better, and nothing behind it would ever be consumed.
        """
        try:
            return decode_records(records)
        except RemoteProtocolError:
            messages = decode_records(records, decompress=False)
        for message in messages:
            if message.sys_flag & COMPRESSED:
                try:
                    message.body = decompress(message.body, message.sys_flag)
                except RemoteProtocolError as error:
                    _LOG.error("group %s: %r is handed on as it was stored: %s", self._group, message, error)
                else:
                    message.sys_flag &= ~COMPRESSED
        return messages

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
        trouble = str(error)
        if trouble == self._trouble or is_retry_topic(self._queue.topic):
            level = logging.DEBUG  # said already, or of a topic that comes into being with its first message
        self._trouble = trouble
        _LOG.log(level, "group %s: pull of %s at %d failed: %s", self._group, self._queue, offset, error)
        await asyncio.sleep(pause)
