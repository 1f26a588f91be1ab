"""Request 370: a sender recalls a timed message, by the handle from the send's answer."""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.born_host import born_host
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.send import put_refusal
from rocket_broker.processors.waiting import WAITING_QUEUE
from rocket_broker.schedule.timer_service import cancel_key
from rocket_broker.store.messages import PutStatus
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocket_remoting.wire.properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)
from rocket_remoting.wire.recall_handle import RecallHandle
from rocket_remoting.wire.topics import TIMER_TOPIC

__all__ = ["RecallProcessor"]

RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"


class RecallProcessor:
    """Cancels timed messages."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._writer = context.writer
        self._topics = context.topics

    def recall(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """RECALL_MESSAGE (370): store a message that cancels the timed one; success says only that it is stored."""
        header = command.header(RecallMessageRequestHeader)
        if not (self._settings.recall_message_enable and self._settings.timer_wheel_enable):
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        handle = self._checked(header)
        result = self._writer.put(
            TIMER_TOPIC,
            WAITING_QUEUE,
            RECALL_BODY,
            self._properties(header, handle),
            flag=0,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            born_host=born_host(connection),
            may_delay=False,
        )
        if result.status is not PutStatus.OK:
            raise put_refusal(result.status, self._settings)
        return RemotingCommand.response(command, header=RecallMessageResponseHeader(msg_id=handle.unique_key))

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Return the decoded handle.

        Raises:
            Refusal: The handle is invalid, or of another topic or broker, or no timed message can be due at its time.
        """
        handle = RecallHandle.decode(header.recall_handle)
        if handle is None:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if handle.topic != header.topic:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, topic not match: {header.topic}, and {handle.topic} in the handle",
            )
        if handle.broker_name != self._settings.broker_name:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, broker service not available: the message waits at {handle.broker_name}",
            )
        left = handle.deliver_ms - self._clock.now_ms()
        if not 0 < left < self._settings.timer_max_delay_sec * 1000:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, timestamp invalid: the message was due {-left} ms ago"
                if left <= 0
                else f"recall failed, timestamp invalid: no message is due in {left} ms",
            )
        return handle

    def _properties(self, header: RecallMessageRequestHeader, handle: RecallHandle) -> dict[str, str]:
        precision = self._settings.timer_precision_ms
        properties = {
            PROPERTY_TAGS: RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: cancel_key(handle.topic, handle.unique_key),
            PROPERTY_UNIQUE_KEY: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.deliver_ms),
            PROPERTY_BORN_TIMESTAMP: str(self._clock.now_ms()),
            PROPERTY_TIMER_OUT_MS: str((handle.deliver_ms - 1) // precision * precision),
            PROPERTY_REAL_TOPIC: handle.topic,
            PROPERTY_REAL_QUEUE_ID: "0",
        }
        if header.producer_group:
            properties[PROPERTY_PRODUCER_GROUP] = header.producer_group
        return properties
