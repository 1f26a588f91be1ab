"""The order of batches that are sent concurrently."""

from collections.abc import Iterator

import pytest

from rocket_client.blocking.batch_sender import BatchSender, EncodedBatch
from rocket_client.blocking.pipeline import Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.message import MessageQueue
from tests.unit.rocket_client.test_blocking_connection import ServerThread


class FailingBroker(ServerThread):
    """Refuses every third batch as busy at the first attempt.

    Attributes:
        stored: The batches in the order in which they were stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []
        self._refused: set[bytes] = set()

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        body = bytes(request.body)
        if int(body) % 3 == 0 and body not in self._refused:
            self._refused.add(body)
            return RemotingCommand.response(request, ResponseCode.SYSTEM_BUSY)
        self.stored.append(body)
        return RemotingCommand.response(request)

    def master_address(self, topic: str, broker_name: str) -> str:
        """Return the broker's address."""
        return self.server.address

    def expire(self, topic: str) -> None:
        """Do nothing: the address is fixed."""


@pytest.fixture
def broker() -> Iterator[FailingBroker]:
    """A broker for one test."""
    made = FailingBroker()
    yield made
    made.close()


def test_batches_of_a_queue_stay_in_order(broker: FailingBroker) -> None:
    """A batch that is retried holds back later batches of its queue, but not those of another queue."""
    pool = ConnectionPool(connect_timeout=60.0)
    sender = BatchSender(broker, pool, depth=8, request_timeout=60.0, patience=60.0, in_order=True)
    with sender:
        for number in range(40):
            queue = MessageQueue("t", "a", number % 4)
            sender.put(EncodedBatch(queue, Request(RequestCode.SEND_BATCH_MESSAGE, None, b"%d" % number), 1))
        sender.flush()
    pool.close()
    assert sender.stored == len(broker.stored) == 40
    for queue_id in range(4):
        own = [int(body) for body in broker.stored if int(body) % 4 == queue_id]
        assert own == list(range(queue_id, 40, 4))
    assert [int(body) for body in broker.stored] != list(range(40))
