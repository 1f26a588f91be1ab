"""The protocol of applications for the test harness."""

from collections.abc import Mapping
from typing import Protocol

from dependency_injector.containers import Container

from streamkit.binder.binding import Binding
from streamkit.config.environment import Environment
from streamkit.container import ApplicationContainer
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.portal import Portal

__all__ = ["TestedApplication"]


class TestedApplication(Protocol):
    """The part of a `StreamApplication` that the harness uses."""

    @property
    def container(self) -> ApplicationContainer:
        """The application's parts."""
        ...

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers in which names are looked up."""
        ...

    @property
    def environment(self) -> Environment:
        """All settings."""
        ...

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """The bindings by name, while the application runs."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether the application has been started and is not being stopped."""
        ...

    def channel(self, name: str) -> SubscribableChannel:
        """Return the channel of a binding, or an error channel."""
        ...

    async def start(self, *, portal: Portal | None, watch_loop: bool, serve_management: bool) -> None:
        """Start the application on the running loop."""
        ...

    async def stop(self) -> None:
        """Stop the application."""
        ...
