"""What is asked for and what comes back when messages are pulled."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from rocket_client.blocking.pipeline import Request
from rocket_client.core.pull_answer import PULL_STATUS, PullStatus
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.errors import UnreadableBodyError
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.compression import DEFAULT_LIMIT, decompress
from rocket_remoting.wire.errors import RemoteProtocolError, ResponseError
from rocket_remoting.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED, PULL_SUBSCRIPTION, PULL_SUSPEND


class PullRequest(NamedTuple):
    """Messages of a queue from an offset on."""

    queue: MessageQueue
    offset: int
    max_messages: int = 32


class PullResult(NamedTuple):
    """What a queue gave.

    Attributes:
        request: What was asked for.
        status: Whether there were messages, and if not, why.
        next_offset: Where to pull next.
        min_offset: Where the oldest message is.
        max_offset: Where the next message will be.
        records: The messages as the broker stores them, one after the other.
        tags: The tags asked for; empty for all.
    """

    request: PullRequest
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview
    tags: frozenset[str] = frozenset()

    def messages(self, max_body_size: int = DEFAULT_LIMIT) -> Iterator[MessageExt]:
        """Yield the messages; a compressed body is decompressed when its message is asked for.

        The broker tells tags by their hash codes alone; here they are compared.

        Args:
            max_body_size: Bytes that a compressed body may have when it is decompressed.

        Raises:
            UnreadableBodyError: A body has more bytes, or is damaged; pull from the offset behind the error's
                `message` on to pass over it.
        """
        broker_name = self.request.queue.broker_name
        waiting = deque(decode_records(self.records, decompress=False))
        while waiting:  # taken out one by one, so that a body is in memory no longer than its message is used
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
    """What all pulls of one call have in common.

    Attributes:
        tags: The tags asked for; empty for all, and with an SQL92 expression.
        takes_all: Whether no message is left out.
    """

    __slots__ = ("_group", "_text", "_type", "_wait_ms", "tags", "takes_all")

    def __init__(self, group: str, expression: str, wait: float, expression_type: str = "TAG") -> None:
        self._group = group
        self._type = expression_type
        self._wait_ms = int(wait * 1000)
        if expression_type == "TAG":
            subscription = tag_subscription("", expression, 0)
            self._text = subscription.sub_string
            self.tags = frozenset(subscription.tags_set)
            self.takes_all = self._text == ALL
        else:
            self._text, self.tags, self.takes_all = expression, frozenset(), False

    def __repr__(self) -> str:
        return f"<Subscription of {self._group}: {self._type} {self._text!r}>"

    def request(self, asked: PullRequest) -> Request:
        """The request for one pull."""
        return Request(
            RequestCode.PULL_MESSAGE,
            PullMessageRequestHeader(
                consumer_group=self._group,
                topic=asked.queue.topic,
                queue_id=asked.queue.queue_id,
                queue_offset=asked.offset,
                max_msg_nums=asked.max_messages,
                sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if self._wait_ms else 0),
                commit_offset=0,
                suspend_timeout_millis=self._wait_ms,
                subscription=self._text,
                sub_version=0,
                expression_type=self._type,
            ),
        )

    def noted(self, pulls: Iterable[PullRequest], asked: dict[int, PullRequest]) -> Iterator[Request]:
        """The requests for pulls, each noted in `asked` under its number as it is taken."""
        return map(self._noted, enumerate(pulls), repeat(asked))

    def _noted(self, numbered: tuple[int, PullRequest], asked: dict[int, PullRequest]) -> Request:
        number, pull = numbered
        asked[number] = pull
        return self.request(pull)

    def result(self, asked: PullRequest, response: RemotingCommand, address: str) -> PullResult:
        """What the answer to one pull says.

        Raises:
            ResponseError: The broker refused.
        """
        status = PULL_STATUS.get(response.code)
        if status is None:
            raise ResponseError(
                response.code, response.remark, address=address, request_code=RequestCode.PULL_MESSAGE
            )
        header = response.header(PullMessageResponseHeader)
        return PullResult(
            asked,
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            response.body,
            self.tags,
        )
