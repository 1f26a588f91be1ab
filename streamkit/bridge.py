"""StreamBridge: sends to a binding by its name from anywhere, making bindings as they are needed."""

from collections.abc import Callable
from typing import Protocol

from streamkit.errors import BlockingSendError
from streamkit.messaging.channel import running_loop
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel
from streamkit.messaging.portal import Portal

__all__ = ["StreamBridge"]


class Output(Protocol):
    """An output binding."""

    @property
    def channel(self) -> MessageChannel:
        """What is sent to it."""
        ...


class RunningApplication(Protocol):
    """What the bridge needs of its application while that runs."""

    @property
    def portal(self) -> Portal:
        """The way onto its loop."""
        ...

    async def output(self, name: str, binder: str | None) -> Output:
        """Return the output binding of that name, made if it is new."""
        ...


class StreamBridge:
    """Sends data to output bindings by name.

    A name nobody configured is taken for a destination and bound when it is first used; the
    ``spring.cloud.stream.dynamic-destination-cache-size`` bindings used last are kept.
    """

    def __init__(self, application: Callable[[], RunningApplication]) -> None:
        self._application = application

    def send(
        self, binding: str, data: object, content_type: str | None = None, *, binder: str | None = None
    ) -> bool:
        """Send from a thread that may block; arguments, result and errors as those of :meth:`asend`.

        Raises:
            BlockingSendError: This thread runs the application's loop.
        """
        portal = self._application().portal
        if running_loop() is portal.loop:
            raise BlockingSendError(
                f"bridge.send({binding!r}, ...) would block the loop that has to send: use "
                "`await bridge.asend(...)` here"
            )
        return portal.run(self.asend(binding, data, content_type, binder=binder))

    async def asend(
        self, binding: str, data: object, content_type: str | None = None, *, binder: str | None = None
    ) -> bool:
        """Send from a coroutine.

        Args:
            binding: An output binding's name, or a destination.
            data: A message, or a payload.
            content_type: What the payload is converted by, in place of the binding's and the message's.
            binder: The binder's name for a new binding, if not the default one.

        Returns:
            True when the message was accepted.

        Raises:
            MessagingError: It could not be delivered.
            ConfigurationError: The binding is an input, or may not be made.
        """
        application = self._application()
        if application.portal.loop is not running_loop():
            application.portal.check_loop("the bridge")
        output = await application.output(binding, binder)
        message: Message[object] = data if isinstance(data, Message) else Message(data)
        if content_type is not None:
            message = Message(message.payload, message.headers.with_content_type(content_type))
        return await output.channel.asend(message)
