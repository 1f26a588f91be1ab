"""The rate at which clients of one address may have new queues created.

The first message of a queue creates the queue's file: a directory and 6 MB of disk space. That takes five milliseconds,
or a tenth of a second on a busy disk, in a step that cannot be divided, while all other clients wait.
"""

from collections.abc import Callable

from rocket_broker.limits.rates import Rates
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_time import loop_time
from rocket_broker.store.message_store import MessageStore
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["NewQueues"]

AT_ONCE = 200
A_SECOND = 20
"""New queues of one address, at once and a second: the first 200 take a second, later ones a tenth of the time."""
MOST = 8_192
A_SECOND_IN_THE_LONG_RUN = 0.1
"""New queues of one address in the long run: their files take 48 GB of the disk, and 50 GB more a day."""
MOST_REMEMBERED = 65_536
"""Counted queues without a message that are remembered. Beyond that number all are forgotten, and counted again."""


class NewQueues:
    """Counts the new queues of each address. Clients at the broker's own address may create any number."""

    def __init__(self, store: MessageStore, *, time: Callable[[], float] = loop_time) -> None:
        self._store = store
        self._time = time
        self._rates = [Rates(AT_ONCE, A_SECOND), Rates(MOST, A_SECOND_IN_THE_LONG_RUN)]
        self._counted: set[tuple[str, int]] = set()  # delayed and half messages enter their queues later

    def check(self, connection: Connection) -> None:
        """Check that the client may have a queue created now.

        Raises:
            Refusal: The client's address has had too many queues created recently.
        """
        address, now = connection.counted_as, self._time()
        if address and not all(rates.of(connection, now).has(1, now) for rates in self._rates):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: address {address} created too many queues recently. An address may create {AT_ONCE} "
                f"queues at once and {A_SECOND} a second, and {MOST} in total before a much lower rate applies: send "
                "again later, or from the broker's own machine",
            )

    def count(self, connection: Connection, topic: str, queue_id: int) -> None:
        """Count the queue as new if this message is its first.

        Raises:
            Refusal: The client's address has had too many queues created recently.
        """
        if not connection.counted_as or self._store.max_offset(topic, queue_id):
            return
        queue = topic, queue_id
        if queue not in self._counted:
            self.check(connection)
            now = self._time()
            for rates in self._rates:
                rates.of(connection, now).take(1)
            if len(self._counted) >= MOST_REMEMBERED:
                self._counted.clear()
            self._counted.add(queue)
