"""The choice of the broker that the next pull of a queue goes to; the asyncio client and the blocking one share it.

Brokers of one name are a master and its slaves. This module does no I/O.
"""

from rocket_client.core.routes import Routes
from rocket_client.core.topic_route import MASTER_ID

__all__ = ["PullTarget"]


class PullTarget:
    """The broker of one name to pull from next.

    The first pull goes to the master. Each answer names the broker for the next pull: a slave while the messages are
    not in the master's memory any more. After a broker that cannot be reached, another one of the name follows.

    Attributes:
        broker_id: The id of the broker to pull from next, 0 for the master.
    """

    def __init__(self, routes: Routes, broker_name: str) -> None:
        self.broker_id = MASTER_ID
        self._routes = routes
        self._broker_name = broker_name

    def address(self) -> tuple[str, int] | None:
        """Return address and id of the broker to pull from, of another one of the name if it is not in the routes.

        None if the routes have no broker of the name.
        """
        return self._routes.address(self._broker_name, self.broker_id)

    def answered(self, suggested_id: int) -> None:
        """Pull from the broker that an answer suggests."""
        self.broker_id = suggested_id

    def moves_from(self, address: str) -> bool:
        """Return whether the next pull goes to another address, which is known."""
        found = self.address()
        return found is not None and found[0] != address

    def unreachable(self, broker_id: int) -> bool:
        """Turn away from a broker that cannot be reached; return whether another one of the name is known."""
        other = self._routes.other_id(self._broker_name, broker_id)
        if other is None:
            return False
        self.broker_id = other
        return True

    def __repr__(self) -> str:
        return f"<PullTarget: broker {self.broker_id} of {self._broker_name}>"
