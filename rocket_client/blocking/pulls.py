"""Pulls of the blocking client: requests, subscriptions and results."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from rocket_client.blocking.pipeline import Request
from rocket_client.core.pull_answer import PullStatus, pull_status
from rocket_client.core.pull_request import pull_header
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.core.topic_route import MASTER_ID
from rocket_client.errors import UnreadableBodyError
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.compression import DEFAULT_LIMIT, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers import PullMessageResponseHeader
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED


class PullRequest(NamedTuple):
    """A request for messages of a queue from an offset on."""

    queue: MessageQueue
    offset: int
    max_messages: int = 32


class PullResult(NamedTuple):
    """The result of one pull.

    Attributes:
        request: The request.
        status: Whether there were messages, and if not, why.
        next_offset: The offset of the next pull.
        min_offset: The offset of the queue's oldest message.
        max_offset: The offset that the queue's next message will get.
        records: The messages as the broker stores them, one record after the other.
        tags: The requested tags; empty for all messages.
        suggested_broker_id: The id of the broker for the next pull of the queue: 0 for the master, or a slave's.
    """

    request: PullRequest
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview
    tags: frozenset[str] = frozenset()
    suggested_broker_id: int = MASTER_ID

    def messages(self, max_body_size: int = DEFAULT_LIMIT) -> Iterator[MessageExt]:
        """Yield the messages; a compressed body is decompressed just before its message is yielded.

        The broker compares only the hash codes of tags, so the tags themselves are compared here.

        Args:
            max_body_size: Maximum number of bytes of a decompressed body.

        Raises:
            UnreadableBodyError: A body is damaged or too large. To skip its message, pull from the offset behind that
                of the error's `message`.
        """
        broker_name = self.request.queue.broker_name
        waiting = deque(decode_records(self.records, decompress=False))
        # Removed one by one, so that a decompressed body is freed when its message is not used any more.
        while waiting:
            message = waiting.popleft()
            if self.tags and message.tags not in self.tags:
                continue
            message.broker_name = broker_name
            if message.sys_flag & COMPRESSED:
                try:
                    message.body = decompress(message.body, message.sys_flag, max_body_size)
                except RemoteProtocolError as error:
                    raise UnreadableBodyError(message, error) from error
                message.sys_flag &= ~COMPRESSED
            yield message


class Subscription:
    """The group and filter that all pulls of one call share.

    Attributes:
        tags: The requested tags; empty for all messages, and with an SQL92 expression.
        takes_all: Whether there is no filter.
    """

    __slots__ = ("_group", "_subscription", "_wait_ms", "tags", "takes_all")

    def __init__(self, group: str, expression: str, wait: float, expression_type: str = "TAG") -> None:
        self._group = group
        self._wait_ms = int(wait * 1000)
        if expression_type == "TAG":
            self._subscription = tag_subscription("", expression, 0)
        else:
            self._subscription = SubscriptionData(topic="", sub_string=expression, expression_type=expression_type)
        self.tags = frozenset(self._subscription.tags_set)
        self.takes_all = expression_type == "TAG" and self._subscription.sub_string == ALL

    def __repr__(self) -> str:
        wanted = self._subscription
        return f"<Subscription of {self._group}: {wanted.expression_type} {wanted.sub_string!r}>"

    def request(self, asked: PullRequest) -> Request:
        """Return the request of one pull."""
        header = pull_header(
            self._group,
            asked.queue,
            asked.offset,
            self._subscription,
            max_messages=asked.max_messages,
            hold_ms=self._wait_ms,
        )
        return Request(RequestCode.PULL_MESSAGE, header)

    def result(self, asked: PullRequest, response: RemotingCommand, address: str) -> PullResult:
        """Return the result of one pull.

        Raises:
            ResponseError: The broker refused the pull.
        """
        status = pull_status(response, address)
        header = response.header(PullMessageResponseHeader)
        return PullResult(
            asked,
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            response.body,
            self.tags,
            header.suggest_which_broker_id or MASTER_ID,
        )
