"""The settings of the inputs of listeners and functions."""

from collections.abc import Callable
from typing import Any

from streamkit.binder.binding_settings import BindingSettings, topics_of
from streamkit.errors import MessageConversionError
from streamkit.listeners.arguments import Reader
from streamkit.messaging.converter import CompositeMessageConverter

__all__ = ["InputSettings"]


class InputSettings:
    """The settings of inputs that the invocation of listeners needs.

    Attributes:
        bindings: The settings of all bindings.
    """

    def __init__(self, bindings: BindingSettings, converter: CompositeMessageConverter) -> None:
        """Create the settings; each setting is looked up when it is needed.

        Args:
            bindings: The settings of all bindings.
            converter: Converts payloads.
        """
        self.bindings = bindings
        self._converter = converter

    @property
    def not_propagated(self) -> list[str]:
        """The headers of an input that are not copied to the messages that a listener sends."""
        return self.bindings.stream.integration.message_handler_not_propagated_headers

    def reader_factory(self, binding: str) -> Callable[[object], Reader]:
        """Return a factory of readers for an input's payloads: it takes a type and returns the reader."""
        properties = self.bindings.properties(binding)
        if properties.consumer.use_native_decoding:
            return _native_reader
        place = f"binding {binding!r}"
        return lambda type_: self._converter.payload_reader(type_, properties.content_type, place=place)

    def is_batch(self, binding: str) -> bool:
        """Return whether an input is in batch mode."""
        return self.bindings.properties(binding).consumer.batch_mode

    def width(self, binding: str) -> int:
        """Return how many calls of an input's listeners may run at once: its concurrency, for each of its topics."""
        properties = self.bindings.properties(binding)
        return properties.consumer.concurrency * len(topics_of(properties.destination or binding))


def _native_reader(type_: object) -> Reader:
    if type_ in (bytes, Any, object):
        return lambda message: message.payload
    raise MessageConversionError("with use-native-decoding the payload is what the binder received: bytes")
