"""The sender of encoded batches: many under way at once, each sent again until a broker has stored it."""

import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple, Protocol, Self

from rocket_client.blocking.connection import BlockingConnection
from rocket_client.blocking.meters import Meters
from rocket_client.blocking.pipeline import Pipeline, Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.retrying import BUSY_CODES, UNREACHABLE_ERRORS, Patience
from rocket_client.core.call import refusal
from rocket_client.core.send_result import STATUS_OF_RESPONSE
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout
from rocket_remoting.wire.message import MessageQueue


class EncodedBatch(NamedTuple):
    """Messages of one queue in one request, which can be sent again."""

    queue: MessageQueue
    request: Request
    messages: int


class Addresses(Protocol):
    """Finds the addresses of brokers."""

    def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the broker's master."""

    def expire(self, topic: str) -> None:
        """Expire the topic's route; its next use looks it up."""


class BatchSender:
    """Sends batches to each broker in the order of `put`, and again in that order after a failure.

    A batch whose response is lost is sent again, so it is stored at least once and may be stored twice. A broker that
    handles several requests at once, as Apache's does, or is busy, may store a batch before an earlier one.

    Args:
        addresses: Finds the addresses of brokers.
        pool: Connections to brokers.
        depth: Maximum number of batches under way to one broker.
        request_timeout: Seconds within which a broker must answer.
        patience: Seconds to wait for a broker that is unreachable or busy.
        in_order: Whether to keep the order of each queue's batches; then one of them is under way at a time.
        meters: Counts each batch as a send.

    Attributes:
        stored: Number of messages that brokers have acknowledged.
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
        meters: Meters | None = None,
    ) -> None:
        self.stored = 0
        self._meters = meters or Meters()
        self._addresses = addresses
        self._pool = pool
        self._depth = depth
        self._request_timeout = request_timeout
        self._patience = patience
        self._in_order = in_order
        self._brokers: dict[str, _BrokerBatches] = {}

    def put(self, batch: EncodedBatch) -> None:
        """Send a batch; wait first while `depth` batches are under way to its broker.

        Raises:
            ResponseError: A broker refused a batch, or stayed busy for `patience` seconds.
            ConnectError: A broker stayed unreachable; likewise ConnectionLost and RequestTimeout.
        """
        broker = self._brokers.get(batch.queue.broker_name)
        if broker is None:
            broker = self._brokers[batch.queue.broker_name] = _BrokerBatches(self, batch.queue)
        broker.put(batch)

    def flush(self) -> None:
        """Wait until all batches are stored; raise as `put` does."""
        for broker in self._brokers.values():
            broker.wait_until_at_most(0)

    def close(self) -> None:
        """Give the connections back; batches under way may be stored or not."""
        for broker in self._brokers.values():
            broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BatchSender: {self.stored} messages stored, brokers {', '.join(self._brokers) or 'none'}>"


class _BrokerBatches:
    """The batches of one broker."""

    # Invariant: _sent has the batches under way by number, in order. _to_resend has the batches to send again, before
    # any other batch; it is sorted by number before they are sent.

    def __init__(self, sender: BatchSender, queue: MessageQueue) -> None:
        self._sender = sender
        self._queue = queue
        self._sent: dict[int, EncodedBatch] = {}
        self._begun: dict[int, float] = {}  # when batches that have not ended were first sent
        self._to_resend: dict[int, EncodedBatch] = {}
        self._number = 0
        self._stack = ExitStack()
        self._pipeline: Pipeline | None = None
        self._is_refused = False
        self._patience = Patience(sender._patience)

    def put(self, batch: EncodedBatch) -> None:
        self.wait_until_at_most(self._sender._depth - 1)
        while self._sender._in_order and any(each.queue == batch.queue for each in self._sent.values()):
            self._read()
            self.wait_until_at_most(self._sender._depth - 1)  # send failed batches again before the new one
        self._number += 1
        self._begun[self._number] = time.monotonic()
        self._send(self._number, batch)

    def wait_until_at_most(self, limit: int) -> None:
        while self._to_resend or len(self._sent) > limit:
            # Batches are sent again only when none is under way: all that failed are known then, and are
            # sent in their order.
            if self._sent:
                self._read()
            else:
                self._resend()

    def close(self) -> None:
        self._pipeline = None
        self._stack.close()

    def _send(self, number: int, batch: EncodedBatch) -> None:
        try:
            if self._pipeline is None:
                self._pipeline = self._connect()
            self._sent[number] = batch
            self._pipeline.submit([(number, batch.request)])
        except UNREACHABLE_ERRORS as error:
            # If connecting failed, the batch is not in `_sent` yet. `_failed` sends again all that is there.
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
            self._count_end(number, batch, succeeded=True)
            return
        error = refusal(response, batch.queue.broker_name, batch.request.code)
        self._count_failed_attempts([batch])
        if response.code not in BUSY_CODES:
            self._count_end(number, batch, succeeded=False)
            raise error
        self._to_resend[number] = batch
        self._is_refused |= response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        self._be_patient(error)

    def _failed(self, error: Exception) -> None:
        """Handle the loss of the connection: all batches under way must be sent again."""
        self.close()
        self._count_failed_attempts(self._sent.values())
        self._to_resend.update(self._sent)
        self._sent.clear()
        self._sender._addresses.expire(self._queue.topic)
        self._be_patient(error)

    def _be_patient(self, error: Exception) -> None:
        """Note a failure; raise it if the patience is at its end."""
        try:
            self._patience.failed(error)
        except Exception:
            for number, batch in self._to_resend.items():
                self._count_end(number, batch, succeeded=False)
            raise

    def _count_failed_attempts(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self._sender._meters.attempt_failed(batch.queue.topic)

    def _count_end(self, number: int, batch: EncodedBatch, *, succeeded: bool) -> None:
        begun = self._begun.pop(number, None)
        if begun is not None:
            self._sender._meters.sent(batch.queue.topic, time.monotonic() - begun, succeeded=succeeded)

    def _resend(self) -> None:
        if self._is_refused:  # the broker may be a slave now, and another one the master
            self._is_refused = False
            self.close()
            self._sender._addresses.expire(self._queue.topic)
        time.sleep(self._patience.pause())
        waiting = deque(sorted(self._to_resend.items()))
        self._to_resend.clear()
        # An attempt that fails puts all batches under way into `_to_resend`: the rest of `waiting` must follow behind
        # them.
        while waiting and not self._to_resend:
            number, batch = waiting.popleft()
            self._send(number, batch)
        self._to_resend.update(waiting)

    def _connect(self) -> Pipeline:
        address = self._sender._addresses.master_address(self._queue.topic, self._queue.broker_name)
        stack = ExitStack()
        with stack:
            connection: BlockingConnection = stack.enter_context(self._sender._pool.connection(address))
            pipeline = stack.enter_context(connection.pipeline(timeout=self._sender._request_timeout))
            self._stack = stack.pop_all()
        return pipeline
