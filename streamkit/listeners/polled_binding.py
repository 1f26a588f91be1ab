"""Polled bindings: the part of a running application that a pollable source uses."""

from collections.abc import Callable

from streamkit.binder.binding import InputBinding
from streamkit.binder.polled import PolledReceiver
from streamkit.listeners.arguments import Reader
from streamkit.listeners.input_settings import InputSettings
from streamkit.listeners.invocation import call_on_thread
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.messaging.handler import awaited, is_async
from streamkit.messaging.message import Message
from streamkit.settlement import raise_returned

__all__ = ["PolledBinding"]


class PolledBinding:
    """A polled binding of a running application."""

    def __init__(self, binding: InputBinding, inputs: InputSettings, threads: ListenerPools) -> None:
        """Create a polled binding with the polled receivers of `binding`.

        Args:
            binding: The binding.
            inputs: The settings of inputs, which give the readers of payloads.
            threads: The threads on which `def` handlers run.
        """
        self.receivers = [each for each in binding.receivers if isinstance(each, PolledReceiver)]
        self._name = binding.name
        self._make_reader = inputs.reader_factory(binding.name)
        self._readers: dict[object, Reader] = {}
        self._threads = threads

    def reader(self, type_: object) -> Reader:
        """Return the reader that converts payloads to a type.

        Raises:
            MessageConversionError: No converter supports the type.
        """
        found = self._readers.get(type_)
        if found is None:
            found = self._readers[type_] = self._make_reader(type_)
        return found

    async def call(self, handler: Callable[..., object], message: Message[object]) -> None:
        """Call a handler, on a thread if it is a `def`.

        Raises:
            Requeue: The handler returned this settlement.
            Reject: The handler returned this settlement.
        """
        if is_async(handler):
            result = await awaited(handler(message))
        else:
            result = await call_on_thread(self._threads.get(self._name, 1), handler, message)
        raise_returned(result)
