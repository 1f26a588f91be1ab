"""What an application was told to run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamkit.functions.routing_callback import RoutingCallback
from streamkit.listeners.function_declaration import FunctionDeclaration
from streamkit.listeners.listener import Listener
from streamkit.messaging.interceptor import GlobalChannelInterceptors

if TYPE_CHECKING:  # slow to import, and needed only when the application starts
    from streamkit.binder.customizers import Customizers
    from streamkit.binder.factory import NewDestination
    from streamkit.binder.feeding import FeederDeclaration

__all__ = ["Registrations"]


class Registrations:
    """Listeners and interfaces, before the application starts.

    Attributes:
        sources: Modules, classes and objects with decorated functions.
        listeners: Functions registered by the application's own decorators.
        error_listeners: Functions for the failures told on a channel.
        functions: Functions that settings bind by their names.
        polled: The names of polled consumers.
        routing_callback: What the routing function asks first.
        transaction_listeners: Functions and classes that answer for producer groups.
        feeders: What sends to outputs by itself.
        interfaces: Binding interfaces.
        interceptors: For channels whose names match.
        on_new_destination: May change the settings of an output binding that is made by name.
    """

    def __init__(self, sources: Sequence[object]) -> None:
        self.sources = list(sources)
        self.listeners: list[tuple[Callable[..., object], Listener]] = []
        self.error_listeners: list[tuple[Callable[..., object], str]] = []
        self.functions: list[tuple[Callable[..., object], FunctionDeclaration]] = []
        self.polled: list[str] = []
        self.routing_callback: RoutingCallback | None = None
        self.transaction_listeners: list[tuple[object, str]] = []
        self.feeders: list[FeederDeclaration] = []
        self.interfaces: list[type] = []
        self.interceptors = GlobalChannelInterceptors()
        self._customizers: Customizers | None = None
        self.on_new_destination: Callable[[NewDestination], object] | None = None

    @property
    def customizers(self) -> "Customizers":
        """What is done to binders and to what they make."""
        if self._customizers is None:
            from streamkit.binder.customizers import Customizers

            self._customizers = Customizers()
        return self._customizers
