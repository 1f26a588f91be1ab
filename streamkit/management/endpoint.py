"""A management endpoint: its name and its routes. This module does not import starlette, which is slow."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from streamkit.config.environment import Environment
from streamkit.management.bindings_controller import BindingsController
from streamkit.management.health import HealthComponent

if TYPE_CHECKING:  # needed only if management endpoints are served
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["EndpointPlugins", "EndpointRoute", "ManagedApplication", "ManagementEndpoint"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")


class ManagedApplication(Protocol):
    """The part of an application that the endpoints use."""

    @property
    def plugins(self) -> "EndpointPlugins":
        """The application's plugins."""
        ...

    @property
    def environment(self) -> Environment:
        """The application's settings."""
        ...

    @property
    def controller(self) -> BindingsController:
        """The controller of the application's bindings."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether the application has been started and is not being stopped."""
        ...

    async def health(self) -> HealthComponent:
        """Return the health of the application."""
        ...

    async def lags(self) -> Mapping[str, int]:
        """Return the number of unsettled messages by input binding."""
        ...


class EndpointPlugins(Protocol):
    """The plugins that offer endpoints."""

    def management_endpoints(
        self, application: ManagedApplication, own: Iterable[str]
    ) -> "Iterable[ManagementEndpoint]":
        """Return the plugins' endpoints; refuse names that are in `own`, the names of streamkit's endpoints."""
        ...


@dataclass(frozen=True, slots=True)
class EndpointRoute:
    """One kind of request that an endpoint answers.

    Attributes:
        method: The HTTP method. Methods other than ``GET`` are served only if the endpoint's access is unrestricted.
        path: The path below the endpoint's name, in starlette's form: empty, or ``/{name}``.
        answer: Returns the response to a request.
    """

    method: str
    path: str
    answer: "Callable[[Request], Awaitable[Response]]"


@dataclass(frozen=True, slots=True)
class ManagementEndpoint:
    """An endpoint below the base path of the management endpoints, `/actuator`.

    Attributes:
        name: The endpoint's name: the first part of its path, and its name in settings
            (``management.endpoint.<name>.access``).
        routes: The requests that the endpoint answers.

    Raises:
        ValueError: The name has other characters than letters, digits and single hyphens.
    """

    name: str
    routes: Sequence[EndpointRoute]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is not a valid name for an endpoint: use letters, digits and single hyphens"
            )
