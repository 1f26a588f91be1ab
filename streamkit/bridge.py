"""StreamBridge: send data to a binding by name, from anywhere in the program."""

from collections.abc import Callable, Mapping
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
        """The channel that leads to this binding."""
        ...


class RunningApplication(Protocol):
    """The part of a running application that the bridge uses."""

    @property
    def portal(self) -> Portal:
        """The portal to the application's loop."""
        ...

    async def output(self, name: str, binder: str | None) -> Output:
        """Return the output binding of this name; create it if it does not exist."""
        ...


class StreamBridge:
    """Sends data to output bindings by name.

    A name without a binding is taken as a destination; the bridge creates a binding for it on first use. The bridge
    keeps the ``spring.cloud.stream.dynamic-destination-cache-size`` most recently used of these bindings.
    """

    def __init__(self, application: Callable[[], RunningApplication]) -> None:
        self._application = application

    def send(
        self,
        binding: str,
        data: object,
        headers: Mapping[str, object] | None = None,
        *,
        content_type: str | None = None,
        binder: str | None = None,
    ) -> bool:
        """Send data and block the calling thread until the messaging system has answered.

        Arguments, result and errors are those of :meth:`asend`.

        Raises:
            BlockingSendError: This thread runs the application's loop, which would have to wait for itself.
        """
        portal = self._application().portal
        if running_loop() is portal.loop:
            raise BlockingSendError(
                f"bridge.send({binding!r}, ...) would block the loop that has to send: use "
                "`await bridge.asend(...)` here"
            )
        return portal.run(self.asend(binding, data, headers, content_type=content_type, binder=binder))

    async def asend(
        self,
        binding: str,
        data: object,
        headers: Mapping[str, object] | None = None,
        *,
        content_type: str | None = None,
        binder: str | None = None,
    ) -> bool:
        """Send data from a coroutine.

        Args:
            binding: The name of an output binding, or a destination.
            data: A message, or a payload.
            headers: Headers of the payload; of a message they replace those of the same names.
            content_type: The content type to convert the payload to, in place of the message's and the binding's.
            binder: The name of the binder for a new binding; the default binder if not given.

        Returns:
            True if the message was accepted.

        Raises:
            ApplicationError: The application is not running.
            ForeignLoopError: The running loop is not the application's.
            MessagingError: The message could not be delivered.
            ConfigurationError: The binding is an input, or creating a binding is not allowed.
        """
        application = self._application()
        message: Message[object] = data if isinstance(data, Message) else Message(data)
        if headers:
            message = message.with_headers(headers)
        if content_type is not None:
            message = Message(message.payload, message.headers.with_content_type(content_type))
        sending, portal = self._send(application, binding, message, binder), application.portal
        return await (sending if portal.loop is running_loop() else portal.carry(sending, "the bridge"))

    async def _send(
        self, application: RunningApplication, binding: str, message: Message[object], binder: str | None
    ) -> bool:
        output = await application.output(binding, binder)
        return await output.channel.asend(message)
