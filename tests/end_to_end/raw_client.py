"""A client that sends single requests over a connection, and a broker for it."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import MemoryTransport, MessageExt, MessageQueue
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import (
    Body,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.properties import encode_properties_text
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocket_remoting.wire.topics import TOOLS_CONSUMER_GROUP
from streamkit.testing.virtual_time import VirtualTime

T = TypeVar("T")
B = TypeVar("B", bound=Body)

TIMEOUT = 100_000.0
"""Virtual seconds: no answer is late."""


class RawClient:
    """One connection to a broker.

    Attributes:
        pushed: Requests that the broker sent.
    """

    def __init__(self, connection: Connection, pushed: list[RemotingCommand]) -> None:
        self.connection = connection
        self.pushed = pushed

    @classmethod
    async def connect(
        cls,
        transport: Transport,
        address: str,
        *,
        answer: Callable[[RemotingCommand], Any] = lambda request: None,
    ) -> "RawClient":
        """Return a client; ``answer`` gives the responses to the broker's requests."""
        pushed: list[RemotingCommand] = []

        def handle(_: Connection, request: RemotingCommand) -> RemotingCommand | None:
            pushed.append(request)
            response: RemotingCommand | None = answer(request)
            return response

        return cls(await transport.connect(address, handler=handle, limits=Limits(idle_timeout=None)), pushed)

    async def begin(self) -> None:
        """Make a first request: brokers close a connection that makes none within a minute."""
        await self.ask_ok(RequestCode.GET_ALL_DELAY_OFFSET)

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        body: Body | bytes = b"",
        *,
        ext_fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Return the answer, whatever its code."""
        data = body if isinstance(body, bytes) else encode_body(body)
        return await self.connection.invoke(code, header, data, timeout=TIMEOUT, ext_fields=ext_fields)

    async def ask_ok(self, code: int, header: Header | None = None, body: Body | bytes = b"") -> RemotingCommand:
        """Return the answer, which must be success."""
        answer = await self.ask(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)
        return answer

    async def fetch(self, code: int, type_: type[B], header: Header | None = None) -> B:
        """Return the body of the answer, which must be success."""
        return decode_body((await self.ask_ok(code, header)).body, type_)

    async def create_topic(self, topic: str, queues: int = 1, perm: int = 6) -> None:
        """Create the topic as tools do."""
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        await self.ask_ok(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def try_send(
        self,
        topic: str = "orders",
        body: bytes = b"hello",
        *,
        properties: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> RemotingCommand:
        """Return the answer to one message, whatever its code."""
        return await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, properties, **fields), body)

    async def send(
        self,
        topic: str = "orders",
        body: bytes = b"hello",
        *,
        properties: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> SendMessageResponseHeader:
        """Store one message."""
        header = send_header(topic, properties, **fields)
        return (await self.ask_ok(RequestCode.SEND_MESSAGE_V2, header, body)).header(SendMessageResponseHeader)

    async def pull(self, topic: str = "orders", offset: int = 0, **fields: Any) -> "Pulled":
        """Pull once, with the subscription in the request."""
        answer = await self.ask(RequestCode.PULL_MESSAGE, pull_header(topic, offset, **fields))
        return Pulled(answer)

    async def messages(self, topic: str = "orders", queue_id: int = 0, *, offset: int = 0) -> list[MessageExt]:
        """Return what the queue holds, pulled as mqadmin does."""
        pulled = await self.pull(
            topic, offset, queue_id=queue_id, max_msg_nums=4096, consumer_group=TOOLS_CONSUMER_GROUP
        )
        return pulled.messages

    async def heartbeat(
        self,
        client_id: str = "client@1",
        *,
        consumers: Mapping[str, Mapping[str, str]] | None = None,
        producers: tuple[str, ...] = (),
        version: int = 1,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        expression_type: str = "TAG",
        expected: ResponseCode = ResponseCode.SUCCESS,
    ) -> RemotingCommand:
        """Send a heartbeat, which must be answered as expected; ``consumers`` is group -> topic -> expression."""
        data = [
            ConsumerData(
                group_name=group,
                consume_type=consume_type,
                message_model=model,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=[
                    SubscriptionData(
                        topic=topic,
                        sub_string=expression,
                        sub_version=version,
                        expression_type=expression_type,
                    )
                    for topic, expression in topics.items()
                ],
            )
            for group, topics in (consumers or {}).items()
        ]
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=data,
            producer_data_set=[ProducerData(group_name=group) for group in producers],
        )
        answer = await self.ask(RequestCode.HEART_BEAT, None, body)
        assert answer.code == expected, (answer.code, answer.remark)
        return answer

    async def send_back(self, message: MessageExt, group: str = "g", **fields: Any) -> RemotingCommand:
        """Send a message back; return the answer, whatever its code."""
        known = {"delay_level": 0, "origin_topic": message.topic, "origin_msg_id": message.msg_id}
        values: dict[str, Any] = known | fields
        header = ConsumerSendMsgBackRequestHeader(
            offset=values.pop("offset", message.commit_log_offset), group=group, **values
        )
        return await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def commit(
        self, offset: int, *, group: str = "g", topic: str = "orders", queue_id: int = 0
    ) -> RemotingCommand:
        """Commit an offset; returns the answer, whatever its code."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        return await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, *, group: str = "g", topic: str = "orders", queue_id: int = 0) -> int | None:
        """Return the group's offset, None when the broker knows none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return answer.header(QueryConsumerOffsetResponseHeader).offset

    async def end(self, topic: str = "orders", queue_id: int = 0) -> int:
        """Return the offset the queue's next message will have."""
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return (await self.ask_ok(RequestCode.GET_MAX_OFFSET, header)).header(GetMaxOffsetResponseHeader).offset


class Pulled:
    """The answer to a pull."""

    def __init__(self, answer: RemotingCommand) -> None:
        self.code = ResponseCode(answer.code)
        self.remark = answer.remark
        self.messages = decode_records(answer.body)
        self._answer = answer

    @property
    def header(self) -> PullMessageResponseHeader:
        """Return the queue's minimum and maximum offset and the next one."""
        return self._answer.header(PullMessageResponseHeader)

    @property
    def bodies(self) -> list[bytes]:
        """Return the messages' bodies."""
        return [message.body for message in self.messages]


def send_header(topic: str, properties: Mapping[str, str] | None = None, **fields: Any) -> SendMessageRequestHeaderV2:
    """Return what a 4.9 producer sends beside the body."""
    values: dict[str, Any] = {
        "producer_group": "p",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": encode_properties_text(properties or {}),
    }
    return SendMessageRequestHeaderV2(topic=topic, **values | fields)


def pull_header(topic: str, offset: int, **fields: Any) -> PullMessageRequestHeader:
    """Return a pull header with a subscription and no hold time."""
    values: dict[str, Any] = {
        "consumer_group": "g",
        "queue_id": 0,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": "*",
        "sub_version": 0,
        "expression_type": "TAG",
    }
    return PullMessageRequestHeader(topic=topic, queue_offset=offset, **values | fields)


HELD = PULL_SUBSCRIPTION | PULL_SUSPEND
"""Flags of a pull that may be held."""
COMMITTING = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
"""Flags of a pull that commits an offset."""

Scene = Callable[[RawClient, EmbeddedBroker], Coroutine[Any, Any, T]]


def with_broker(scene: Scene[T], **settings: str) -> T:
    """Run the scene with a client and a broker in memory, in virtual time."""

    async def main(clock: Any) -> T:
        transport = MemoryTransport()
        keys = {"serverChannelMaxIdleTimeSeconds": "0"} | settings
        async with EmbeddedBroker(transport=transport, clock=clock, settings=keys) as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            try:
                return await scene(client, embedded)
            finally:
                await client.connection.close()

    with VirtualTime() as time:
        return time.run(main(time.clock))


__all__ = [
    "COMMITTING",
    "HELD",
    "MessageQueue",
    "Pulled",
    "RawClient",
    "pull_header",
    "send_header",
    "with_broker",
]
