"""Polled bindings: what a pollable source finds in a running application."""

from collections.abc import Awaitable, Callable
from typing import cast

from streamkit.binder.binding import InputBinding
from streamkit.binder.polled import PolledReceiver
from streamkit.listeners.arguments import Reader
from streamkit.listeners.invocation import call_on_thread
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.listeners.parts import Parts
from streamkit.messaging.handler import is_async
from streamkit.messaging.message import Message

__all__ = ["PolledBinding"]


class PolledBinding:
    """A polled binding of a running application."""

    def __init__(self, binding: InputBinding, parts: Parts, pools: ListenerPools) -> None:
        self.receivers = [each for each in binding.receivers if isinstance(each, PolledReceiver)]
        self._name = binding.name
        self._make_reader = parts.reader_factory(binding.name)
        self._readers: dict[object, Reader] = {}
        self._pools = pools

    def reader(self, type_: object) -> Reader:
        """Return what reads its payloads as a type.

        Raises:
            MessageConversionError: Nobody can.
        """
        found = self._readers.get(type_)
        if found is None:
            found = self._readers[type_] = self._make_reader(type_)
        return found

    async def call(self, handler: Callable[..., object], message: Message[object]) -> None:
        """Call a handler, on a thread if it is a `def`."""
        if is_async(handler):
            await cast("Awaitable[object]", handler(message))
        else:
            await call_on_thread(self._pools.get(self._name, 1), handler, message)
