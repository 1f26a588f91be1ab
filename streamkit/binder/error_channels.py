"""Error channels: where a message goes that its binding could not handle or send.

::

    <destination>.<group>.errors    of a consumer binding; a subscriber here handles the message for good
    <destination>.errors            of a producer binding with error-channel-enabled
    errorChannel                    hears of every error of every binding; its own subscriber logs

A binding with several destinations has one channel for each, whatever its binder. The function that
``error-handler-definition`` names stands beside the subscribers of its binding's channel.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streamkit.errors import MessageConversionError
from streamkit.messaging.channel import PublishSubscribeChannel
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.messaging.portal import Portal

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
"""What ``error-handler-definition`` names, as a coroutine function."""


def consumer_error_channel(destination: str, group: str | None) -> str:
    """Return the name of a consumer binding's error channel."""
    return f"{destination}.{group or 'anonymous'}.errors"


def producer_error_channel(destination: str) -> str:
    """Return the name of a producer binding's error channel."""
    return f"{destination}.errors"


class ErrorChannels:
    """The application's error channels, made when first asked for.

    Attributes:
        everything: The channel ``errorChannel``. Its subscriber :func:`log_error` may be unsubscribed.
    """

    def __init__(self) -> None:
        self._channels: dict[str, PublishSubscribeChannel] = {}
        self._portal: Portal | None = None
        self.everything = self.channel(GLOBAL_ERROR_CHANNEL)
        self.everything.subscribe(log_error)

    def channel(self, name: str) -> PublishSubscribeChannel:
        """Return the error channel of that name."""
        found = self._channels.get(name)
        if found is None:
            found = self._channels[name] = PublishSubscribeChannel(name, portal=self._portal)
        return found

    def attach(self, portal: Portal | None) -> None:
        """Lead `send` from other threads to the application's loop; None when it does not run any more."""
        self._portal = portal
        for channel in self._channels.values():
            channel.portal = portal

    async def publish(self, name: str, error: ErrorMessage, handler: ErrorFunction | None = None) -> bool:
        """Send ``error`` to the binding's handler, to channel ``name`` and to ``errorChannel``.

        Returns:
            Whether the handler or somebody subscribed to channel ``name`` handled it.

        Raises:
            Exception: What the handler or a subscriber of channel ``name`` raised: the error is not handled then.
        """
        channel = self._channels.get(name)
        handled = handler is not None
        try:
            if handler is not None:
                await handler(error)
            if channel is not None and channel.subscribers:
                handled = await channel.asend(error) or handled
        finally:
            await self._tell_everybody(error)
        return handled

    async def report(self, name: str, error: ErrorMessage, handler: ErrorFunction | None = None) -> None:
        """Publish ``error`` where nobody waits to hear how that went."""
        try:
            await self.publish(name, error, handler)
        except Exception:  # an observer's failure must not become the sender's
            logger.exception("An error handler of %s failed", name)

    async def _tell_everybody(self, error: ErrorMessage) -> None:
        try:
            await self.everything.asend(error)
        except Exception:  # the listeners' errors must not hide the one they are told
            logger.exception("A subscriber of errorChannel failed")


def log_error(message: Message[object]) -> None:
    """Log an error message with the traceback of its cause."""
    error = message.payload
    if isinstance(error, MessageConversionError):
        logger.error(
            "%s", error
        )  # it says what is wrong with the payload, which no line of any code is to blame for
    elif isinstance(error, BaseException):
        logger.error("%s", error, exc_info=error)
