"""Sends batches that are encoded already, many under way at once, until the brokers have stored them."""

import time
from collections import deque
from contextlib import ExitStack
from typing import NamedTuple, Protocol, Self

from rocket_client.blocking.connection import BlockingConnection
from rocket_client.blocking.pipeline import Pipeline, Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.retrying import AWAY, BUSY_CODES, Patience
from rocket_client.core.send_result import STATUS_OF_RESPONSE
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout, ResponseError
from rocket_remoting.wire.message import MessageQueue


class EncodedBatch(NamedTuple):
    """Messages of one queue in one request, ready to be sent as often as it takes."""

    queue: MessageQueue
    request: Request
    messages: int


class Addresses(Protocol):
    """Knows where brokers are."""

    def master_address(self, topic: str, broker_name: str) -> str:
        """Where the broker's master is."""

    def expire(self, topic: str) -> None:
        """Look again when the topic's route is wanted next."""


class BatchSender:
    """Sends batches; those of one broker are sent in the order given, and sent again in that order.

    A batch whose answer is lost is sent again: it may be stored twice, never not at all. A broker that looks at several
    at once, as Apache's does, or that is busy for a moment may store one before an earlier one.

    Args:
        addresses: Where brokers are.
        pool: Connections to them.
        depth: Most batches under way to one broker.
        request_timeout: Seconds within which a broker must answer.
        patience: Seconds within which a broker that is away or busy must have stored something.
        in_order: Store those of one queue in the order given: one of them is under way at a time.

    Attributes:
        stored: Messages acknowledged so far.
    """

    def __init__(
        self,
        addresses: Addresses,
        pool: ConnectionPool,
        *,
        depth: int,
        request_timeout: float,
        patience: float,
        in_order: bool = False,
    ) -> None:
        self.stored = 0
        self._addresses = addresses
        self._pool = pool
        self._depth = depth
        self._request_timeout = request_timeout
        self._patience = patience
        self._in_order = in_order
        self._lanes: dict[str, _Lane] = {}

    def put(self, batch: EncodedBatch) -> None:
        """Send the batch; return when there is room for another.

        Raises:
            ResponseError: A broker refused a batch for good.
            ConnectError: A broker stayed away; likewise ConnectionLost and RequestTimeout.
        """
        lane = self._lanes.get(batch.queue.broker_name)
        if lane is None:
            lane = self._lanes[batch.queue.broker_name] = _Lane(self, batch.queue)
        lane.put(batch)

    def flush(self) -> None:
        """Return when all batches are stored; raises as `put` does."""
        for lane in self._lanes.values():
            lane.reduce_to(0)

    def close(self) -> None:
        """Leave; what is under way may be stored or not."""
        for lane in self._lanes.values():
            lane.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BatchSender: {self.stored} messages stored, brokers {', '.join(self._lanes) or 'none'}>"


class _Lane:
    """The batches of one broker."""

    # Invariant: _sent holds what is under way by its number, in order; _again what must be sent anew, before
    # anything else, and in order too once nothing is under way.

    def __init__(self, sender: BatchSender, queue: MessageQueue) -> None:
        self._sender = sender
        self._queue = queue
        self._sent: dict[int, EncodedBatch] = {}
        self._again: dict[int, EncodedBatch] = {}
        self._number = 0
        self._stack = ExitStack()
        self._pipeline: Pipeline | None = None
        self._patience = Patience(sender._patience)

    def put(self, batch: EncodedBatch) -> None:
        self.reduce_to(self._sender._depth - 1)
        while self._sender._in_order and any(each.queue == batch.queue for each in self._sent.values()):
            self._read()
            self.reduce_to(self._sender._depth - 1)  # nothing is to be sent again now
        self._number += 1
        self._try(self._number, batch)

    def reduce_to(self, limit: int) -> None:
        while self._again or len(self._sent) > limit:
            if self._sent:
                self._read()
            else:
                self._send_again()

    def close(self) -> None:
        self._pipeline = None
        self._stack.close()

    def _try(self, number: int, batch: EncodedBatch) -> None:
        try:
            if self._pipeline is None:
                self._pipeline = self._connect()
            self._sent[number] = batch
            self._pipeline.submit([(number, batch.request)])
        except AWAY as error:
            self._sent[number] = batch
            self._failed(error)

    def _read(self) -> None:
        assert self._pipeline is not None
        try:
            answers = self._pipeline.read()
        except (ConnectionLost, RequestTimeout) as error:
            self._failed(error)
            return
        for number, response in answers:
            self._answered(self._sent.pop(number), number, response)

    def _answered(self, batch: EncodedBatch, number: int, response: RemotingCommand) -> None:
        if response.code in STATUS_OF_RESPONSE:
            self._sender.stored += batch.messages
            self._patience.renew()
            return
        error = ResponseError(
            response.code,
            response.remark,
            address=batch.queue.broker_name,
            request_code=batch.request.code,
        )
        if response.code not in BUSY_CODES:
            raise error
        self._again[number] = batch
        self._patience.failed(error)

    def _failed(self, error: Exception) -> None:
        """The connection is gone, and with it the answers: all that was under way goes again."""
        self.close()
        self._again.update(self._sent)
        self._sent.clear()
        self._sender._addresses.expire(self._queue.topic)
        self._patience.failed(error)

    def _send_again(self) -> None:
        time.sleep(self._patience.pause())
        waiting = deque(sorted(self._again.items()))
        self._again.clear()
        while waiting and not self._again:
            number, batch = waiting.popleft()
            self._try(number, batch)
        self._again.update(waiting)

    def _connect(self) -> Pipeline:
        address = self._sender._addresses.master_address(self._queue.topic, self._queue.broker_name)
        stack = ExitStack()
        with stack:
            connection: BlockingConnection = stack.enter_context(self._sender._pool.connection(address))
            pipeline = stack.enter_context(connection.pipeline(timeout=self._sender._request_timeout))
            self._stack = stack.pop_all()
        return pipeline
