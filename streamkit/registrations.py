"""What an application was told to run."""

from collections.abc import Callable, Sequence

from streamkit.messaging.interceptor import GlobalChannelInterceptors

__all__ = ["Registrations"]


class Registrations:
    """Listeners and interfaces, before the application starts.

    Attributes:
        sources: Modules, classes and objects with decorated functions.
        functions: Functions registered by the application's own decorators.
        interfaces: Binding interfaces.
        interceptors: For channels whose names match.
    """

    def __init__(self, sources: Sequence[object]) -> None:
        self.sources = list(sources)
        self.functions: list[Callable[..., object]] = []
        self.interfaces: list[type] = []
        self.interceptors = GlobalChannelInterceptors()

    def add_function(self, function: Callable[..., object]) -> None:
        """Register a function, once however often it is decorated."""
        if function not in self.functions:
            self.functions.append(function)
