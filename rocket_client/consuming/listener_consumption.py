"""The common part of concurrent and orderly consumption: failures of listener calls, sends to brokers, settlement."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import ClassVar

from rocket_client.consuming.listener import ConsumeContext
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.send_back import SendBack, fate_of_rejected
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import PushConsumerSettings
from rocket_remoting.wire.errors import RemotingError, seconds_text
from rocket_remoting.wire.message import MessageExt

logger = logging.getLogger(__name__)

# Apache's ConsumeMessageConcurrentlyService has the same number.
LOCAL_RETRY_DELAY = 5.0


def is_being_cancelled() -> bool:
    """Return whether the cancellation that was just raised is that of the running task.

    Otherwise the listener awaited something that was cancelled, which is a failure of this call only.
    """
    # `asyncio.run` cancels all tasks when its main function has ended or at Ctrl-C, and waits for them. A task that
    # made the next call instead would keep the process alive.
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def awaited_something_cancelled() -> RuntimeError:
    """Return the failure of a listener call whose own task is not cancelled."""
    return RuntimeError("the listener awaited something that was cancelled")


def cancelled_its_own_task() -> RuntimeError:
    """Return the failure of a listener call whose task was cancelled although the consumer goes on."""
    return RuntimeError("the task of the listener call was cancelled")


class ListenerConsumption:
    """Base of the consumptions that call a listener."""

    _ORDERLY: ClassVar[bool]

    def __init__(self, member: Membership, settings: PushConsumerSettings, send_back: SendBack | None) -> None:
        self._group = member.group
        self._namespace = member.namespace
        self._offsets = member.offsets
        self._bodies = member.bodies
        self._send_back = send_back
        self._batch_size = settings.consume_message_batch_max_size
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._settle_scheduled = False
        # Runs from `start` to `stop`. Besides `stop`, only the end of the loop cancels it, together with all tasks.
        self._lasting_task: asyncio.Task[None] | None = None

    def _is_loop_ending(self) -> bool:
        """Return whether all tasks were cancelled, as by `asyncio.run` when its main function has ended.

        It then waits for the tasks, so tasks that start now would consume what waits, without any end, or be dropped in
        the middle of a request when it closes the loop.
        """
        lasting = self._lasting_task
        return not self._stopped and lasting is not None and lasting.cancelling() > 0

    def _context(self, process_queue: ProcessQueue) -> ConsumeContext:
        queue = self._namespace.unwrap_queue(process_queue.message_queue)
        return ConsumeContext(self._group, queue, orderly=self._ORDERLY)

    def _log_failed_call(self, messages: Sequence[MessageExt], error: BaseException) -> None:
        first = messages[0]
        logger.warning(
            "group %s: the listener failed with %d message(s) of topic %s, first %s of queue %d at offset %d, "
            "delivery %d",
            self._group, len(messages), first.topic, first.msg_id, first.queue_id, first.queue_offset,
            first.reconsume_times + 1, exc_info=error,
        )  # fmt: skip

    def _log_late_calls(self, count: int, timeout: float) -> None:
        if count:
            logger.warning("group %s: %d listener call(s) did not end within %s s",
                           self._group, count, seconds_text(timeout))  # fmt: skip

    def _log_unreadable(self, error: UnreadableBodyError) -> None:
        fate = fate_of_rejected(self._send_back)
        logger.error("group %s: the listener is not called: %s. %s", self._group, error, fate)

    def _log_dropped(self, message: MessageExt, cause: object) -> None:
        logger.warning("group %s drops a message that failed in broadcasting: %r: %r", self._group, message, cause)

    async def _is_sent(self, message: MessageExt, sending: Awaitable[None], consequence: str) -> bool:
        """Wait until a broker has stored a message that goes back; if none does, log why and return False."""
        try:
            await sending
        except Exception as error:  # of any kind: the message stays unsettled and is consumed here again
            logger.warning(
                "group %s: message %s of topic %s could not be sent to a broker; %s: %s",
                self._group, message.msg_id, message.topic, consequence, error,
                exc_info=not isinstance(error, RemotingError),
            )  # fmt: skip
            return False
        return True

    def _settle(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        offset = process_queue.settle(messages)
        if offset != NOTHING_TO_COMMIT and not process_queue.dropped:
            self._offsets.update(process_queue.message_queue, offset, increase_only=not self._ORDERLY)

    def _settle_soon(self) -> None:
        """Settle, in the next turn of the loop, the done messages of the queues that were given to `update_later`."""
        if not self._settle_scheduled:
            self._settle_scheduled = True
            self._loop.call_soon(self._settle_done)

    def _settle_done(self) -> None:
        self._settle_scheduled = False
        self._offsets.update_settled()
