"""The requests of consumers to brokers: members, locks, offsets, messages.

Each method sends one request. It raises a `ResponseError` if the broker refuses the request, and another
`RemotingError` if the broker cannot be reached or does not answer.
"""

from collections.abc import Iterable
from typing import TypeVar

from rocket_client.connection.connections import Connections
from rocket_client.connection.routes import RouteTable
from rocket_client.core import offset_calls
from rocket_client.core.call import Call, refusal
from rocket_client.core.pull_answer import PullAnswer
from rocket_client.errors import BrokerNotFoundError
from rocket_remoting.wire.bodies import (
    CheckClientRequestBody,
    ConsumerOffsetSerializeWrapper,
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
from rocket_remoting.wire.headers import GetConsumerListByGroupRequestHeader, PullMessageRequestHeader
from rocket_remoting.wire.message import MessageQueue

T = TypeVar("T")


class BrokerRequests:
    """Requests to brokers by name or address, over shared connections."""

    def __init__(self, routes: RouteTable, connections: Connections, timeout: float) -> None:
        self._routes = routes
        self._connections = connections
        self._timeout = timeout
        self._without_lite_pulls: set[str] = set()

    async def invoke(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = None,
    ) -> RemotingCommand:
        """Send a request to the broker at an address; return its successful response.

        Raises:
            ResponseError: The broker refused the request.
        """
        connection = await self._connections.to(address)
        response = await connection.invoke(code, header, body, timeout=timeout or self._timeout)
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response, address, code)
        return response

    async def call(self, queue: MessageQueue, call: Call[T]) -> T:
        """Make a call to the master that has the queue, or to a slave if there is no master now; return the result.

        Raises:
            BrokerNotFoundError: No route has an address of the broker.
            ResponseError: The broker refused the request.
        """
        address = self._routes.master_address(queue.broker_name)
        if address is None:
            await self._routes.refresh(queue.topic)
            address = self._routes.reader_address(queue.broker_name)
        if address is None:
            raise BrokerNotFoundError(queue.broker_name)
        connection = await self._connections.to(address)
        return call.result(await connection.invoke(call.code, call.header, timeout=self._timeout), address)

    def known_master(self, queue: MessageQueue) -> str | None:
        """Return the address of the queue's master in the known routes; None if they have none."""
        return self._routes.master_address(queue.broker_name)

    async def master(self, queue: MessageQueue) -> str:
        """Return the address of the master that has the queue.

        Raises:
            BrokerNotFoundError: No route has the master's address.
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
        """Return the client ids of the group's members, as the broker knows them."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        response = await self.invoke(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return decode_body(response.body, GetConsumerListByGroupResponseBody).consumer_id_list

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues; return the queues that this client has locked now."""
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=set(queues))
        response = await self.invoke(address, RequestCode.LOCK_BATCH_MQ, None, encode_body(body))
        return decode_body(response.body, LockBatchResponseBody).lock_ok_mq_set

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues."""
        body = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=set(queues))
        await self.invoke(address, RequestCode.UNLOCK_BATCH_MQ, None, encode_body(body))

    async def check_subscription(
        self, address: str, group: str, client_id: str, subscription: SubscriptionData
    ) -> None:
        """Ask the broker whether it can filter by the subscription.

        Raises:
            ResponseError: The broker cannot; the remark says why, and where the expression is wrong.
        """
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.invoke(address, RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    # Offsets

    async def committed_offset(self, queue: MessageQueue, group: str, *, zero_if_young: bool = True) -> int | None:
        """Return the group's committed offset in the queue; None if the group has committed none.

        Args:
            queue: The queue.
            group: The group.
            zero_if_young: Whether 0 may be returned for a young queue, see `offset_calls.committed_offset`.
        """
        return await self.call(queue, offset_calls.committed_offset(queue, group, zero_if_young=zero_if_young))

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        """Commit the group's offset in the queue."""
        await self.call(queue, offset_calls.commit_offset(queue, group, offset))

    async def consumer_offsets(self, queue: MessageQueue) -> dict[str, dict[int, int]]:
        """Return all committed offsets of the queue's broker, by ``topic@group`` and queue id."""
        response = await self.invoke(await self.master(queue), RequestCode.GET_ALL_CONSUMER_OFFSET)
        return decode_body(response.body, ConsumerOffsetSerializeWrapper).offset_table

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return await self.call(queue, offset_calls.max_offset(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message."""
        return await self.call(queue, offset_calls.min_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at a time: on Apache 4.9 the nearest message, on 5.x the next one."""
        return await self.call(queue, offset_calls.search_offset(queue, timestamp_ms))

    # Messages

    async def pull(
        self,
        address: str,
        header: PullMessageRequestHeader,
        timeout: float,
        code: RequestCode = RequestCode.PULL_MESSAGE,
        *,
        last: bool = False,
    ) -> PullAnswer:
        """Pull once; the broker may hold the request for as long as the header allows.

        Args:
            address: The broker's address.
            header: The header.
            timeout: Seconds for the whole pull.
            code: PULL_MESSAGE or LITE_PULL_MESSAGE.
            last: As in `Connection.invoke_async`.
        """
        connection = self._connections.get(address) or await self._connections.to(address)
        response = await connection.invoke_async(code, header, timeout=timeout, last=last)
        return PullAnswer.of(response, address, code)

    async def lite_pull(
        self, address: str, header: PullMessageRequestHeader, timeout: float, *, last: bool = False
    ) -> PullAnswer:
        """Pull by LITE_PULL_MESSAGE; by PULL_MESSAGE from brokers that do not know that request (4.9)."""
        if address not in self._without_lite_pulls:
            try:
                return await self.pull(address, header, timeout, RequestCode.LITE_PULL_MESSAGE, last=last)
            except ResponseError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._without_lite_pulls.add(address)
        return await self.pull(address, header, timeout, last=last)
