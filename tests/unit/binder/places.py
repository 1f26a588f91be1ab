"""A messaging system of which a failure log needs only names."""

from streamkit.binder.failure_log import FailureLog
from streamkit.messaging.message import Message


class Places:
    """Names messages by their ids."""

    multiplexes = False

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Not asked: nothing is multiplexed."""
        raise NotImplementedError

    def name_of(self, message: Message[bytes]) -> str:
        """Return its header `id`."""
        return str(message.headers.id)


def failure_log(group: str | None = "kitchen") -> FailureLog:
    """The log of binding `input` with the topic `orders`; only the group `kitchen` has dead letters."""
    return FailureLog("input", "orders", group, Places(), "dead orders" if group == "kitchen" else None)
