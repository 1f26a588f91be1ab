"""What listeners and functions are put together from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamkit.binder.binding_service import BindingService
from streamkit.binder.binding_settings import topics_of
from streamkit.binder.channels import Channels
from streamkit.binder.error_channels import ErrorChannels
from streamkit.bridge import StreamBridge
from streamkit.clock import Clock
from streamkit.config.settings import StreamSettings
from streamkit.container import Providers
from streamkit.errors import MessageConversionError
from streamkit.listeners.arguments import Reader
from streamkit.messaging.converter import CompositeMessageConverter

__all__ = ["Parts"]


@dataclass(slots=True)
class Parts:
    """What listeners, functions and their classes are given.

    Attributes:
        application: The application, for constructors that ask for it.
        settings: `spring.cloud.stream.*`.
        service: Takes charge of the bindings.
        channels: The application's channels.
        error_channels: Where failures are told.
        converter: Converts payloads.
        providers: Looks up a container's markers.
        bridge: Sends to bindings by name.
        clock: Wall-clock time.
    """

    application: object
    settings: StreamSettings
    service: BindingService
    channels: Channels
    error_channels: ErrorChannels
    converter: CompositeMessageConverter
    providers: Providers
    bridge: StreamBridge
    clock: Clock

    def reader_factory(self, binding: str) -> Callable[[object], Reader]:
        """Return what makes readers of an input's payloads, each for a type."""
        properties = self.service.factory.settings.properties(binding)
        if properties.consumer.use_native_decoding:
            return _native_reader
        place = f"binding {binding!r}"
        return lambda type_: self.converter.payload_reader(type_, properties.content_type, place=place)

    def is_batch(self, binding: str) -> bool:
        """Return whether an input hands over several messages at once."""
        return self.service.factory.settings.properties(binding).consumer.batch_mode

    def width(self, binding: str) -> int:
        """Return how many calls of an input's listeners there may be at once."""
        properties = self.service.factory.settings.properties(binding)
        return properties.consumer.concurrency * len(topics_of(properties.destination or binding))


def _native_reader(type_: object) -> Reader:
    if type_ in (bytes, Any, object):
        return lambda message: message.payload
    raise MessageConversionError("with use-native-decoding the payload is what the binder received: bytes")
