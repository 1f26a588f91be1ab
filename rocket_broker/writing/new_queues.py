"""How quickly clients of one address have new queues made.

The first message of a queue makes its file: a directory and 6 MB of disk space, five milliseconds for which all other
clients wait, or a tenth of a second on a busy disk. Such a step cannot be divided, so there are only so many of them.
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
"""New queues of one address: the first 200 take a second, the others a tenth of the time."""
MOST = 8_192
A_SECOND_IN_THE_LONG_RUN = 0.1
"""Their files take 48 GB of the disk, and 50 GB more a day."""
MOST_REMEMBERED = 65_536
"""Queues that were counted and have no message yet. They are forgotten together, and counted again."""


class NewQueues:
    """Counts the queues that get their first message from one address. The broker's own address may make any number."""

    def __init__(self, store: MessageStore, *, time: Callable[[], float] = loop_time) -> None:
        self._store = store
        self._time = time
        self._rates = [Rates(AT_ONCE, A_SECOND), Rates(MOST, A_SECOND_IN_THE_LONG_RUN)]
        self._counted: set[tuple[str, int]] = set()  # delayed and half messages enter their queues later

    def check(self, connection: Connection) -> None:
        """Return if the client may have a queue made now.

        Raises:
            Refusal: Its address had too many made lately.
        """
        address, now = connection.counted_as, self._time()
        if address and not all(rates.of(connection, now).has(1, now) for rates in self._rates):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: address {address} made too many new queues lately. One address makes at most {AT_ONCE} "
                f"at once and {A_SECOND} a second, {MOST} at once in the long run: send again later, or from the "
                "broker's own machine",
            )

    def count(self, connection: Connection, topic: str, queue_id: int) -> None:
        """Count the queue if this message is its first.

        Raises:
            Refusal: As `check`.
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
