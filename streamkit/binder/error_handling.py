"""Who hears of a binding's failures: the function its settings name, its error channel, everybody."""

from typing import cast

from streamkit.binder.binder import Binder, FailureListener
from streamkit.binder.error_channels import (
    ErrorChannels,
    ErrorFunction,
    consumer_error_channel,
    producer_error_channel,
)
from streamkit.binder.receiving import ErrorHandler
from streamkit.config.settings import BindingProperties
from streamkit.errors import BinderError, MessageDeliveryError
from streamkit.messaging.message import ErrorMessage, Message

__all__ = ["ErrorHandling"]


class ErrorHandling:
    """The error handlers of an application's bindings.

    Attributes:
        functions: What ``error-handler-definition`` may name, as coroutine functions.
    """

    def __init__(self, channels: ErrorChannels) -> None:
        self.functions: dict[str, ErrorFunction] = {}
        self._channels = channels

    def of_consumer(self, binder: Binder, topic: str, properties: BindingProperties) -> ErrorHandler:
        """Return what is told of a message given up in process."""
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
        """Return what is told of a message that was not sent."""
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
        # One that was not found is told already, and the application does not start.
        return None if definition is None else self.functions.get(definition)
