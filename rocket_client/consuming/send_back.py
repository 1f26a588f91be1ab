"""Sending failed messages back to the brokers, for a later delivery or as dead letters.

::

    retry          SEND_MESSAGE to %RETRY%<group>, reconsume times increased by one, with the property
                   DELAY = the requested level, or 3 + reconsume times
    dead letter    the same request without DELAY, its reconsume times above its max reconsume times:
                   the broker stores such a message in %DLQ%<group> instead

    to 1  the broker that the message came from
       2  the group's other brokers, one after the other
       3  the first broker again, as request 36 (CONSUMER_SEND_MSG_BACK), with which the broker copies its own record.
          This comes first for a message that this client may not send, such as one without a body

The message keeps its properties and its unique id. RETRY_TOPIC has its topic, ORIGIN_MESSAGE_ID the id of its first
record, ORIGIN_QUEUE_ID and ORIGIN_QUEUE_OFFSET the place of that record in its topic. `FAILURE_TYPE`,
`FAILURE_MESSAGE` and `FAILURE_PLACE` have the cause of the failure, so that a dead letter explains itself. Brokers of
4.9 compare reconsume times with the maximum by ``>=``, those of 5.x by ``>``; the two numbers are chosen so that both
comparisons agree.
"""

import traceback
from collections.abc import Iterator, Mapping

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_client.connection.routes import RouteTable
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.send_result import STATUS_OF_RESPONSE
from rocket_client.errors import IllegalMessageError, SendError
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.compression import compression_flags
from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.headers import ConsumerSendMsgBackRequestHeader
from rocket_remoting.wire.message import Message, MessageExt
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_CLUSTER,
    PROPERTY_CONSUME_START_TIMESTAMP,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_MSG_REGION,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_ORIGIN_QUEUE_ID,
    PROPERTY_ORIGIN_QUEUE_OFFSET,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocket_remoting.wire.topics import dlq_topic, is_dead_letter_topic, retry_topic

PROPERTY_FAILURE_TYPE = "FAILURE_TYPE"
PROPERTY_FAILURE_MESSAGE = "FAILURE_MESSAGE"
PROPERTY_FAILURE_PLACE = "FAILURE_PLACE"

DEFAULT_MAX_RECONSUME_TIMES = 16
FIRST_RETRY_LEVEL = 3
DEAD_LETTER = -1

# Most characters of the three texts. They are sent with every redelivery, and all properties together have 32 KiB.
_MAX_TYPE, _MAX_MESSAGE, _MAX_PLACE = 120, 800, 200
_SEND_TIMEOUT = 5.0
_JAVA_MAX_INT = (1 << 31) - 1

# Properties that the last broker and the last consumer wrote for one delivery only.
_DELIVERY_PROPERTIES = (
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_CONSUME_START_TIMESTAMP,
    PROPERTY_MIN_OFFSET,
    PROPERTY_MAX_OFFSET,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
)


class SendBack:
    """Sends a group's failed messages back to the brokers.

    Attributes:
        dead_letter_topic: The topic of the group's dead letters.
    """

    def __init__(self, group: str, requests: BrokerRequests, routes: RouteTable, outgoing: OutgoingMessages) -> None:
        self._group = group
        self._namespace = outgoing.namespace
        self._topic = retry_topic(group)
        self.dead_letter_topic = dlq_topic(group)
        self._requests = requests
        self._routes = routes
        self._outgoing = outgoing

    def __repr__(self) -> str:
        return f"SendBack({self._group!r})"

    async def retry(
        self,
        message: MessageExt,
        delay_level: int,
        max_reconsume_times: int,
        cause: BaseException | str | None,
    ) -> None:
        """Send a message back for a later delivery, or to the dead letter topic.

        Args:
            message: The message.
            delay_level: The broker's delay level; 0 for 3 + the redeliveries so far, below 0 for a dead letter.
            max_reconsume_times: Redeliveries after which the message is a dead letter.
            cause: Why the message failed.

        Raises:
            SendError: No broker stored the message.
        """
        if delay_level < 0 or message.reconsume_times >= max_reconsume_times:
            await self.dead_letter(message, cause)
            return
        level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        copy = self._copy(message, cause)
        copy.delay_level = level
        # r = message.reconsume_times; a broker makes a dead letter if the comparison of its version is true:
        #
        #                   times   limit                     times >= limit (4.9)   times > limit (5.x)
        #     retry         r + 1   max + 1, and r < max      no                     no
        #     dead letter   r + 1   r                         yes                    yes
        times = message.reconsume_times + 1
        limit = min(max_reconsume_times + 1, _JAVA_MAX_INT)
        await self._send(message, copy, times, limit, level)

    async def dead_letter(self, message: MessageExt, cause: BaseException | str | None) -> None:
        """Send a message to the group's dead letter topic; it is not delivered again.

        Raises:
            SendError: No broker stored the message.
        """
        times = message.reconsume_times + 1
        await self._send(message, self._copy(message, cause), times, message.reconsume_times, DEAD_LETTER)

    def _copy(self, message: MessageExt, cause: BaseException | str | None) -> Message:
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in _DELIVERY_PROPERTIES and not name.startswith("TIMER_")
        }
        # RETRY_TOPIC of a dead letter is the topic that it was first sent to. It is replaced below.
        if is_dead_letter_topic(message.topic) and PROPERTY_RETRY_TOPIC in properties:
            properties.setdefault(PROPERTY_DLQ_ORIGIN_TOPIC, properties[PROPERTY_RETRY_TOPIC])
        properties[PROPERTY_RETRY_TOPIC] = self._origin(message)
        if PROPERTY_ORIGIN_MESSAGE_ID not in properties:
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = message.offset_message_id
            properties[PROPERTY_ORIGIN_QUEUE_ID] = str(message.queue_id)
            properties[PROPERTY_ORIGIN_QUEUE_OFFSET] = str(message.queue_offset)
        # Without it the broker waits for the disk and the slave as its settings say: the group's offset moves past the
        # message, so a master that is lost must not take the copy with it. Apache's brokers, which copy records by
        # themselves, set it to false.
        properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
        for name in (PROPERTY_FAILURE_TYPE, PROPERTY_FAILURE_MESSAGE, PROPERTY_FAILURE_PLACE):
            properties.pop(name, None)
        described = properties | failure_properties(cause)
        # The rest is for properties that are added later: DELAY by this client, REAL_TOPIC and REAL_QID by the
        # broker. If the properties are too long, the message goes back without its cause: a cause is no reason to
        # lose the message.
        if _size(described) < MAX_PROPERTIES_LENGTH - 1024:
            properties = described
        return Message(self._topic, message.body, properties=properties, flag=message.flag)

    def _origin(self, message: MessageExt) -> str:
        """Return the topic that the message was first sent to, as brokers know it."""
        topic = self._namespace.wrap(message.topic)
        return message.properties.get(PROPERTY_RETRY_TOPIC, topic) if topic == self._topic else topic

    async def _send(self, message: MessageExt, copy: Message, times: int, limit: int, level: int) -> None:
        # Apache's DefaultMQPushConsumerImpl has the opposite order: first the broker's own copy, then an ordinary
        # send. But a broker copies its record as it is, without the properties of the failure.
        brokers: list[str] = []
        causes: list[Exception] = []
        try:
            # A compressed body is sent back as it was stored.
            outgoing = self._outgoing.message(copy, compression=compression_flags(message.sys_flag))
        except IllegalMessageError as error:
            # Other clients can send messages that this one refuses: those without a body.
            brokers.append(message.broker_name)
            causes.append(error)
        else:
            outgoing = outgoing._replace(reconsume_times=times, max_reconsume_times=limit)
            if await self._try_brokers(outgoing, message.broker_name, brokers, causes):
                return
        brokers.append(message.broker_name)
        try:
            await self._copy_at_broker(message, level, limit)
        except RemotingError as error:
            causes.append(error)
            raise SendError(self._topic, brokers, causes) from error

    async def _try_brokers(self, outgoing: Outgoing, first: str, brokers: list[str], causes: list[Exception]) -> bool:
        """Send the message to the group's brokers until one stores it; return whether one did.

        The tried brokers and their errors are added to `brokers` and `causes`.
        """
        for broker_name in self._brokers(first):
            brokers.append(broker_name)
            # A broker that did not answer may have stored the message. The next broker stores it again: a message may
            # be doubled by this, but not lost.
            try:
                await self._send_to(broker_name, outgoing)
            except RemotingError as error:
                causes.append(error)
            else:
                return True
        return False

    def _brokers(self, first: str) -> Iterator[str]:
        yield first
        route = self._routes.get(self._topic)
        if route is not None:
            names = dict.fromkeys(queue.broker_name for queue in route.publish_queues)
            yield from (name for name in names if name != first)

    async def _send_to(self, broker_name: str, outgoing: Outgoing) -> None:
        address = self._routes.master_address(broker_name)
        if address is None:
            raise RemotingError(f"no address of broker {broker_name!r} is known")
        route = self._routes.get(self._topic)
        count = max(1, route.write_queue_count(broker_name)) if route is not None else 1
        queue_id = route.next_index() % count if route is not None else 0
        header = self._outgoing.header(outgoing, broker_name, queue_id)
        try:
            await self._requests.invoke(
                address, RequestCode.SEND_MESSAGE_V2, header, outgoing.body, timeout=_SEND_TIMEOUT
            )
        except ResponseError as error:
            if error.code not in STATUS_OF_RESPONSE:  # stored, though not yet on the disk or the slave
                raise

    async def _copy_at_broker(self, message: MessageExt, level: int, limit: int) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=level,
            origin_msg_id=message.msg_id,
            origin_topic=self._origin(message),
            unit_mode=False,
            max_reconsume_times=limit,
            broker_name=message.broker_name,
        )
        address = await self._requests.master(self._namespace.wrap_queue(message.queue))
        await self._requests.invoke(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=_SEND_TIMEOUT)


def fate_of_rejected(send_back: SendBack | None) -> str:
    """Return the sentence that says where a rejected message goes; in broadcasting there is no `SendBack`."""
    if send_back is None:
        return "It is dropped: nothing is sent back in broadcasting"
    return f"It goes to {send_back.dead_letter_topic}"


def failure_properties(cause: BaseException | str | None) -> dict[str, str]:
    """Return properties of bounded length that describe why a message failed."""
    if cause is None:
        return {}
    if isinstance(cause, str):
        return _bounded({PROPERTY_FAILURE_MESSAGE: (cause, _MAX_MESSAGE)})
    frames = traceback.extract_tb(cause.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    type_ = type(cause)
    return _bounded(
        {
            PROPERTY_FAILURE_TYPE: (f"{type_.__module__}.{type_.__qualname__}", _MAX_TYPE),
            PROPERTY_FAILURE_MESSAGE: (_text(cause), _MAX_MESSAGE),
            PROPERTY_FAILURE_PLACE: (place[-_MAX_PLACE:], _MAX_PLACE),
        }
    )


def _text(cause: BaseException) -> str:
    try:
        return str(cause)
    except Exception as error:
        return f"<its text cannot be made: {type(error).__name__}>"


def _bounded(texts: dict[str, tuple[str, int]]) -> dict[str, str]:
    clean = {name: _clean(text)[:limit] for name, (text, limit) in texts.items()}
    return {name: text for name, text in clean.items() if text.strip()}


def _clean(text: str) -> str:
    """Return the text as a property's value: separators and characters that UTF-8 cannot encode are replaced."""
    return text.replace("\x01", " ").replace("\x02", " ").encode(errors="replace").decode()


def _size(properties: Mapping[str, str]) -> int:
    """Return the bytes of the properties in a record."""
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
