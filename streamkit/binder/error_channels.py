"""Error channels receive an error message for each message that a binding could not handle or send.

::

    <destination>.<group>.errors    of a consumer binding; a message that a subscriber handles is accepted
    <destination>.errors            of a producer binding with error-channel-enabled
    errorChannel                    receives every error of every binding

A binding with several destinations has one channel for each destination, on every binder. The function of
``error-handler-definition`` is called before the subscribers of its binding's channel.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streamkit.errors import MessageConversionError
from streamkit.messaging.channel import PublishSubscribeChannel
from streamkit.messaging.handler import awaited
from streamkit.messaging.message import ErrorMessage
from streamkit.messaging.portal import Portal
from streamkit.settlement import raise_returned

__all__ = [
    "GLOBAL_ERROR_CHANNEL",
    "ErrorChannels",
    "ErrorFunction",
    "consumer_error_channel",
    "producer_error_channel",
]

logger = logging.getLogger(__name__)

GLOBAL_ERROR_CHANNEL: Final = "errorChannel"

ErrorFunction: TypeAlias = Callable[[ErrorMessage], Awaitable[object]]
"""The function of ``error-handler-definition``, as a coroutine function."""


def consumer_error_channel(destination: str, group: str | None) -> str:
    """Return the name of a consumer binding's error channel."""
    return f"{destination}.{group or 'anonymous'}.errors"


def producer_error_channel(destination: str) -> str:
    """Return the name of a producer binding's error channel."""
    return f"{destination}.errors"


class ErrorChannels:
    """The application's error channels, each made when it is first needed.

    Attributes:
        everything: The channel ``errorChannel``.
    """

    def __init__(self) -> None:
        self._channels: dict[str, PublishSubscribeChannel] = {}
        self._portal: Portal | None = None
        self.everything = self.channel(GLOBAL_ERROR_CHANNEL)

    def channel(self, name: str) -> PublishSubscribeChannel:
        """Return the error channel of that name; make it if it is new."""
        found = self._channels.get(name)
        if found is None:
            found = self._channels[name] = PublishSubscribeChannel(name, portal=self._portal)
        return found

    def attach(self, portal: Portal | None) -> None:
        """Set the portal by which `send` from other threads reaches the application's loop; None when the loop ends."""
        self._portal = portal
        for channel in self._channels.values():
            channel.portal = portal

    async def publish(self, name: str, error: ErrorMessage, handler: ErrorFunction | None = None) -> bool:
        """Send ``error`` to the binding's handler, to channel ``name`` and to ``errorChannel``.

        Args:
            name: The name of the binding's error channel.
            error: The error message.
            handler: The function of the binding's ``error-handler-definition``, or None.

        Returns:
            Whether the handler or a subscriber of channel ``name`` handled the error. ``errorChannel`` does not count.

        Raises:
            Requeue: The handler or a subscriber returned or raised it.
            Reject: The handler or a subscriber returned or raised it.
            Exception: The handler or a subscriber of channel ``name`` failed, so the error is not handled.
        """
        channel = self._channels.get(name)
        handled = handler is not None
        try:
            if handler is not None:
                raise_returned(await awaited(await handler(error)))
            if channel is not None and channel.subscribers:
                handled = await channel.asend(error) or handled
        finally:
            await self._send_to_error_channel(error)
        return handled

    async def report(self, name: str, error: ErrorMessage, handler: ErrorFunction | None = None) -> None:
        """Publish ``error`` as :meth:`publish` does; log it, and an exception of the handler or a subscriber."""
        payload = error.payload
        logger.error("%s", payload, exc_info=None if isinstance(payload, MessageConversionError) else payload)
        try:
            await self.publish(name, error, handler)
        except Exception:  # a failure of an observer must not fail the sender
            logger.exception("An error handler of %s failed", name)

    async def _send_to_error_channel(self, error: ErrorMessage) -> None:
        try:
            await self.everything.asend(error)
        except Exception:  # a subscriber's error must not replace the error that it received
            logger.exception("A subscriber of errorChannel failed")
