"""A messaging system of which a failure log needs only names."""

from streamkit.binder.failure_log import FailureLog
from streamkit.messaging.message import Message


class Places:
    """Names messages by their ids, and keeps dead letters of the group `kitchen` only."""

    multiplexes = False

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Not asked: nothing is multiplexed."""
        raise NotImplementedError

    def name_of(self, message: Message[bytes]) -> str:
        """Return its header `id`."""
        return str(message.headers.id)

    def dead_letter_destination(self, destination: str, group: str) -> str | None:
        """Return the destination for the one group that has dead letters."""
        return f"dead {destination}" if group == "kitchen" else None


def failure_log(group: str | None = "kitchen") -> FailureLog:
    """The log of binding `input` with the topic `orders`."""
    return FailureLog("input", "orders", group, Places())
