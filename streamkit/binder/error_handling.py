"""The error handling of bindings: ``error-handler-definition``, the binding's error channel and ``errorChannel``."""

from typing import TYPE_CHECKING, cast

from streamkit.binder.binder import Binder, FailureListener
from streamkit.binder.error_channels import (
    ErrorChannels,
    ErrorFunction,
    consumer_error_channel,
    producer_error_channel,
)
from streamkit.config.settings import BindingProperties
from streamkit.errors import BinderError, MessageDeliveryError
from streamkit.messaging.message import ErrorMessage, Message

if TYPE_CHECKING:  # a program that only sends needs nothing that receives
    from streamkit.binder.attempt_loop import ErrorHandler

__all__ = ["ErrorHandling"]


class ErrorHandling:
    """The error handlers of an application's bindings.

    Attributes:
        functions: The functions of all ``error-handler-definition`` settings by name, as coroutine functions.
    """

    def __init__(self, channels: ErrorChannels) -> None:
        self.functions: dict[str, ErrorFunction] = {}
        self._channels = channels

    def of_consumer(self, binder: Binder, topic: str, properties: BindingProperties) -> "ErrorHandler":
        """Return the error handler of a consumer binding, for messages whose attempts have failed.

        For a binder that multiplexes, the error channel is that of the topic to which the failed message was sent.

        Args:
            binder: The binding's binder.
            topic: The destination.
            properties: The binding's settings.
        """
        handler = self._function(properties)
        group = properties.group or None
        channel = consumer_error_channel(topic, group)
        if not binder.multiplexes:
            return lambda error: self._channels.publish(channel, error, handler)

        async def report(error: ErrorMessage) -> bool:
            origin = binder.origin_of(cast("Message[bytes]", error.original_message))
            return await self._channels.publish(
                channel if origin is None else consumer_error_channel(origin, group), error, handler
            )

        return report

    def of_producer(self, binding: str, topic: str, properties: BindingProperties) -> FailureListener:
        """Return the failure listener of a producer binding, for messages that could not be sent.

        Args:
            binding: The binding's name, for errors.
            topic: The destination.
            properties: The binding's settings.
        """
        handler = self._function(properties)
        channel = producer_error_channel(topic)

        async def report(message: Message[bytes], error: BinderError) -> None:
            payload = MessageDeliveryError(f"binding {binding!r} could not send: {error}", message)
            payload.__cause__ = error
            failure = ErrorMessage(payload, message.headers.user_values(), original_message=message)
            await self._channels.report(channel, failure, handler)

        return report

    def _function(self, properties: BindingProperties) -> ErrorFunction | None:
        definition = properties.error_handler_definition
        # An unknown name is an error of `BindingFactory.find_error_handlers`, and the application does not start.
        return None if definition is None else self.functions.get(definition)
