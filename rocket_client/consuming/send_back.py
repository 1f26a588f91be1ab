"""What becomes of a message whose listener failed.

::

    try again      SEND_MESSAGE to %RETRY%<group> with one more in its reconsume times, delayed by
                   DELAY = the level asked for, or 3 + reconsume times
    dead letter    the same request with reconsume times above max reconsume times and without a DELAY:
                   the broker puts such a message into %DLQ%<group> instead

    first to the broker the message came from, then to the group's other brokers, at last as request 36
    (CONSUMER_SEND_MSG_BACK), with which the broker copies its own record; at once if this client may not
    send such a message

The message keeps its properties and its unique id; RETRY_TOPIC tells its topic, ORIGIN_MESSAGE_ID its
first record. `FAILURE_TYPE`, `FAILURE_MESSAGE` and `FAILURE_PLACE` tell why it failed, so that a dead
letter speaks for itself. Both numbers are chosen so that 4.9 brokers, which compare ``>=``, and 5.x
brokers, which compare ``>``, agree.
"""

import traceback
from collections.abc import Iterator, Mapping

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_client.connection.routes import RouteTable
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.errors import IllegalMessageError, SendError
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.compression import compression_flags
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import ConsumerSendMsgBackRequestHeader
from rocket_remoting.wire.message import Message, MessageExt
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_CLUSTER,
    PROPERTY_CONSUME_START_TIMESTAMP,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocket_remoting.wire.topics import retry_topic

PROPERTY_FAILURE_TYPE = "FAILURE_TYPE"
PROPERTY_FAILURE_MESSAGE = "FAILURE_MESSAGE"
PROPERTY_FAILURE_PLACE = "FAILURE_PLACE"

DEFAULT_MAX_RECONSUME_TIMES = 16
FIRST_RETRY_LEVEL = 3
DEAD_LETTER = -1

# Longest texts of the three: they ride along with every redelivery, inside the 32 KiB all properties share.
_MAX_TYPE, _MAX_MESSAGE, _MAX_PLACE = 120, 800, 200
_SEND_TIMEOUT = 5.0
_JAVA_MAX_INT = (1 << 31) - 1

# What the last broker and the last consumer wrote for this delivery only.
_OF_ONE_DELIVERY = (
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_CONSUME_START_TIMESTAMP,
    PROPERTY_MIN_OFFSET,
    PROPERTY_MAX_OFFSET,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_CLUSTER,
)


class SendBack:
    """Returns a group's failed messages to the brokers."""

    def __init__(
        self, group: str, requests: BrokerRequests, routes: RouteTable, outgoing: OutgoingMessages
    ) -> None:
        self._group = group
        self._namespace = outgoing.namespace
        self._topic = retry_topic(group)
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
        """The message will be delivered again; or, with level < 0 or too often already, is a dead letter.

        Raises:
            SendError: No broker took it.
        """
        if delay_level < 0 or message.reconsume_times >= max_reconsume_times:
            await self.dead_letter(message, cause)
            return
        level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        copy = self._copy(message, cause)
        copy.delay_level = level
        times = message.reconsume_times + 1
        limit = min(max_reconsume_times + 1, _JAVA_MAX_INT)
        await self._send(message, copy, times, limit, level)

    async def dead_letter(self, message: MessageExt, cause: BaseException | str | None) -> None:
        """The message is in the group's dead letter topic, and will not be delivered again.

        Raises:
            SendError: No broker took it.
        """
        times = message.reconsume_times + 1
        await self._send(message, self._copy(message, cause), times, message.reconsume_times, DEAD_LETTER)

    def _copy(self, message: MessageExt, cause: BaseException | str | None) -> Message:
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in _OF_ONE_DELIVERY and not name.startswith("TIMER_")
        }
        properties[PROPERTY_RETRY_TOPIC] = self._origin(message)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        for name in (PROPERTY_FAILURE_TYPE, PROPERTY_FAILURE_MESSAGE, PROPERTY_FAILURE_PLACE):
            properties.pop(name, None)
        told = properties | failure_properties(cause)
        if _size(told) < MAX_PROPERTIES_LENGTH - 1024:
            properties = told
        return Message(self._topic, message.body, properties=properties, flag=message.flag)

    def _origin(self, message: MessageExt) -> str:
        """The topic it was sent to, as brokers know it."""
        topic = self._namespace.wrap(message.topic)
        return message.properties.get(PROPERTY_RETRY_TOPIC, topic) if topic == self._topic else topic

    async def _send(self, message: MessageExt, copy: Message, times: int, limit: int, level: int) -> None:
        brokers: list[str] = []
        causes: list[Exception] = []
        try:
            # A body that is compressed goes back as it came.
            outgoing = self._outgoing.message(copy, compression=compression_flags(message.sys_flag))
        except IllegalMessageError as error:  # other clients send what this one would not: without a body
            brokers.append(message.broker_name)
            causes.append(error)
        else:
            outgoing = outgoing._replace(reconsume_times=times, max_reconsume_times=limit)
            if await self._sent(outgoing, message.broker_name, brokers, causes):
                return
        brokers.append(message.broker_name)
        try:
            await self._copy_at_broker(message, level, limit)
        except RemotingError as error:
            causes.append(error)
            raise SendError(self._topic, brokers, causes) from error

    async def _sent(
        self, outgoing: Outgoing, first: str, brokers: list[str], causes: list[Exception]
    ) -> bool:
        """Whether one of the group's brokers took it; notes those that did not, and why."""
        for broker_name in self._brokers(first):
            brokers.append(broker_name)
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
        await self._requests.ask(
            address, RequestCode.SEND_MESSAGE_V2, header, outgoing.body, timeout=_SEND_TIMEOUT
        )

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
        await self._requests.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=_SEND_TIMEOUT)


def failure_properties(cause: BaseException | str | None) -> dict[str, str]:
    """Why a message failed, as properties of bounded length."""
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
    """The text as a property's value: without separators, and without what UTF-8 cannot hold."""
    return text.replace("\x01", " ").replace("\x02", " ").encode(errors="replace").decode()


def _size(properties: Mapping[str, str]) -> int:
    """Bytes that the properties have in a record."""
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
