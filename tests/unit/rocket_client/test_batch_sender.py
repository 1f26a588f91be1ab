"""The order of batches that are sent concurrently."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from rocket_client.blocking.batch_sender import BatchSender, EncodedBatch
from rocket_client.blocking.pipeline import Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_client.blocking.retrying import FIRST_PAUSE, LONGEST_PAUSE, Patience
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError
from rocket_remoting.wire.message import MessageQueue
from tests.unit.rocket_client.test_blocking_connection import ServerThread

QUEUE = MessageQueue("t", "a", 0)


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


class LosingBroker(ServerThread):
    """Loses the connection after a batch with the body `lost`, once; without `lost` it stores everything.

    Attributes:
        stored: The bodies, in the order in which they were stored.
        away: How many of the next look-ups give an address at which nobody listens.
    """

    def __init__(self, lost: bytes = b"") -> None:
        super().__init__()
        self.stored: list[bytes] = []
        self.away = 0
        self._lost = lost
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._nobody = f"127.0.0.1:{free.getsockname()[1]}"

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        body = bytes(request.body)
        if body == self._lost:
            self._lost = b""
            # Only this answer arrives, so of the batches under way this one alone is known to be refused.
            connection.respond(RemotingCommand.response(request, ResponseCode.SYSTEM_BUSY))
            connection.start_close("as the script says")
            return None
        if self._lost:
            return None
        self.stored.append(body)
        return RemotingCommand.response(request)

    def master_address(self, topic: str, broker_name: str) -> str:
        """Return its address, or while it is away another one."""
        if self.away:
            self.away -= 1
            return self._nobody
        return self.server.address

    def expire(self, topic: str) -> None:
        """Do nothing: its address does not change."""


class FormerMaster(ServerThread):
    """Refuses all batches, as a slave does; the next look-up gives the new master's address."""

    def __init__(self, new: ServerThread) -> None:
        super().__init__()
        self._new = new
        self._is_known = False

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        return RemotingCommand.response(request, ResponseCode.SERVICE_NOT_AVAILABLE)

    def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the master that the last look-up gave."""
        return (self._new if self._is_known else self).server.address

    def expire(self, topic: str) -> None:
        """Look the master up at its next use."""
        self._is_known = True


def test_batches_move_from_a_former_master_to_the_new_one() -> None:
    """It answers at its former address, and is a slave."""
    pool = ConnectionPool(connect_timeout=60.0)
    with closing(LosingBroker()) as new, closing(FormerMaster(new)) as former:
        with BatchSender(former, pool, depth=8, request_timeout=60.0, patience=60.0, in_order=True) as sender:
            for number in range(4):
                sender.put(EncodedBatch(QUEUE, Request(RequestCode.SEND_BATCH_MESSAGE, None, b"%d" % number), 1))
            sender.flush()
        pool.close()
        assert new.stored == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("away", [0, 1])
def test_failed_batches_are_sent_again_in_their_order(away: int) -> None:
    """Also if one of them is refused before the connection is lost, and if the next connection fails, too."""
    pool = ConnectionPool(connect_timeout=60.0)
    with (
        closing(LosingBroker(lost=b"2")) as broker,
        closing(pool),
        BatchSender(broker, pool, depth=8, request_timeout=60.0, patience=60.0) as sender,
    ):
        for body in (b"0", b"1", b"2"):
            sender.put(EncodedBatch(QUEUE, Request(RequestCode.SEND_BATCH_MESSAGE, None, body), 1))
        broker.away = away
        sender.flush()
        assert sender.stored == 3
        # A success ends the series of failures, so that the next failure has all of the patience.
        assert sender._brokers["a"]._patience.pause() == FIRST_PAUSE
        assert broker.stored == [b"0", b"1", b"2"]


def test_pauses_double_until_a_success() -> None:
    """A broker that restarts is not asked more often than every two seconds."""
    patience = Patience(60.0)
    assert [patience.pause() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_PAUSE, LONGEST_PAUSE]
    patience.renew()
    assert patience.pause() == FIRST_PAUSE


def test_without_patience_the_first_failure_is_raised() -> None:
    """With patience a failure is tolerated."""
    error = ConnectError("a:1", "refused")
    Patience(60.0).failed(error)
    with pytest.raises(ConnectError):
        Patience(0.0).failed(error)
