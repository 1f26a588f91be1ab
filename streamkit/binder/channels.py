"""The channels of an application by name, each made when it is first looked up."""

from collections.abc import Iterator, Mapping

from streamkit.binder.error_channels import GLOBAL_ERROR_CHANNEL, ErrorChannels
from streamkit.config.relaxed import uniform
from streamkit.messaging.channel import DirectChannel, SubscribableChannel
from streamkit.messaging.portal import Portal

__all__ = ["Channels"]


class Channels(Mapping[str, SubscribableChannel]):
    """Channels by name, in any case.

    ``errorChannel`` and names that end in ``.errors`` are error channels: all their subscribers receive each error
    message. A message of any other channel goes to one subscriber.
    """

    def __init__(self, error_channels: ErrorChannels) -> None:
        self._error_channels = error_channels
        self._channels: dict[str, SubscribableChannel] = {}
        self._portal: Portal | None = None

    def __getitem__(self, name: str) -> SubscribableChannel:
        """Return the channel of that name; make it if it is new."""
        found = self._channels.get(uniform(name))
        if found is None:
            found = self._channels[uniform(name)] = self._make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (channel.name for channel in self._channels.values())

    def __len__(self) -> int:
        return len(self._channels)

    def attach(self, portal: Portal | None) -> None:
        """Set the portal by which `send` from other threads reaches the application's loop; None when the loop ends."""
        self._portal = portal
        self._error_channels.attach(portal)
        for channel in self._channels.values():
            channel.portal = portal

    def _make(self, name: str) -> SubscribableChannel:
        if name == GLOBAL_ERROR_CHANNEL or name.endswith(".errors"):
            return self._error_channels.channel(name)
        return DirectChannel(name, portal=self._portal)

    def __repr__(self) -> str:
        return f"Channels({sorted(self)})"
