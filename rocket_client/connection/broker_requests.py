"""What a consumer asks brokers for: members, locks, offsets, messages.

Each method is one request and one answer; an answer that is no success is a `ResponseError`.
"""

from collections.abc import Awaitable, Callable, Iterable

from rocket_client.connection.routes import RouteTable
from rocket_client.core.pull_answer import PULL_STATUS, PullAnswer
from rocket_client.core.topic_route import MASTER_ID
from rocket_client.errors import BrokerNotFoundError
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue


class BrokerRequests:
    """Requests to brokers by name or address, over shared connections."""

    def __init__(
        self, routes: RouteTable, connect: Callable[[str], Awaitable[Connection]], timeout: float
    ) -> None:
        self._routes = routes
        self._connect = connect
        self._timeout = timeout
        self._without_lite_pulls: set[str] = set()

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = None,
    ) -> RemotingCommand:
        """The successful answer of the broker at the address.

        Raises:
            ResponseError: It answered with another code.
        """
        connection = await self._connect(address)
        response = await connection.invoke(code, header, body, timeout=timeout or self._timeout)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=address, request_code=code)
        return response

    async def master(self, queue: MessageQueue) -> str:
        """Address of the master that has the queue.

        Raises:
            BrokerNotFoundError: No route gives one.
        """
        address = self._routes.master_address(queue.broker_name)
        if address is None:
            await self._routes.refresh(queue.topic)
            address = self._routes.master_address(queue.broker_name)
        if address is None:
            raise BrokerNotFoundError(queue.broker_name)
        return address

    # Members and locks

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Client ids of the group's members, as that broker knows them."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        response = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return decode_body(response.body, GetConsumerListByGroupResponseBody).consumer_id_list

    async def lock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Those of the queues that this client has locked now."""
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=set(queues))
        response = await self.ask(address, RequestCode.LOCK_BATCH_MQ, None, encode_body(body))
        return decode_body(response.body, LockBatchResponseBody).lock_ok_mq_set

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Let others lock the queues."""
        body = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=set(queues))
        await self.ask(address, RequestCode.UNLOCK_BATCH_MQ, None, encode_body(body))

    async def check_subscription(
        self, address: str, group: str, client_id: str, subscription: SubscriptionData
    ) -> None:
        """The broker can filter as the subscription asks.

        Raises:
            ResponseError: It cannot; the remark says why, and where the expression is wrong.
        """
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    # Offsets

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """The offset the group has committed; None when it has none."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        try:
            response = await self.ask(await self.master(queue), RequestCode.QUERY_CONSUMER_OFFSET, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return response.header(QueryConsumerOffsetResponseHeader).offset

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        """The broker keeps the group's offset in the queue."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        await self.ask(await self.master(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will be."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        response = await self.ask(await self.master(queue), RequestCode.GET_MAX_OFFSET, header)
        return response.header(GetMaxOffsetResponseHeader).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Where the oldest message is."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        response = await self.ask(await self.master(queue), RequestCode.GET_MIN_OFFSET, header)
        return response.header(GetMinOffsetResponseHeader).offset

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The message stored at that time: the nearest one on Apache's 4.9, the next one on 5.x."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
        )
        response = await self.ask(await self.master(queue), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return response.header(SearchOffsetResponseHeader).offset

    # Messages

    async def pull(
        self,
        address: str,
        header: PullMessageRequestHeader,
        timeout: float,
        code: RequestCode = RequestCode.PULL_MESSAGE,
    ) -> PullAnswer:
        """One pull; the broker may hold it for as long as the header says."""
        connection = await self._connect(address)
        response = await connection.invoke(code, header, timeout=timeout)
        status = PULL_STATUS.get(response.code)
        if status is None:
            raise ResponseError(response.code, response.remark, address=address, request_code=code)
        answer = response.header(PullMessageResponseHeader)
        return PullAnswer(
            status,
            answer.next_begin_offset,
            answer.min_offset,
            answer.max_offset,
            answer.suggest_which_broker_id or MASTER_ID,
            response.body,
        )

    async def lite_pull(self, address: str, header: PullMessageRequestHeader, timeout: float) -> PullAnswer:
        """`pull` by LITE_PULL_MESSAGE; by PULL_MESSAGE from brokers that do not know that request (4.9)."""
        if address not in self._without_lite_pulls:
            try:
                return await self.pull(address, header, timeout, RequestCode.LITE_PULL_MESSAGE)
            except ResponseError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._without_lite_pulls.add(address)
        return await self.pull(address, header, timeout)
