"""What an application was told to run."""

from collections.abc import Callable, Sequence

from streamkit.listener import Listener
from streamkit.messaging.interceptor import GlobalChannelInterceptors

__all__ = ["Registrations"]


class Registrations:
    """Listeners and interfaces, before the application starts.

    Attributes:
        sources: Modules, classes and objects with decorated functions.
        listeners: Functions registered by the application's own decorators.
        error_listeners: Functions for the failures told on a channel.
        interfaces: Binding interfaces.
        interceptors: For channels whose names match.
    """

    def __init__(self, sources: Sequence[object]) -> None:
        self.sources = list(sources)
        self.listeners: list[tuple[Callable[..., object], Listener]] = []
        self.error_listeners: list[tuple[Callable[..., object], str]] = []
        self.interfaces: list[type] = []
        self.interceptors = GlobalChannelInterceptors()
