"""The management endpoints, an ASGI application with Spring Boot Actuator's paths and answers.

::

    GET  /actuator                         the endpoints there are
    GET  /actuator/health[/…]              200, or 503 when something is DOWN; /liveness, /readiness for probes
    GET  /actuator/bindings[/{name}]       states and settings, secrets hidden
    POST /actuator/bindings/{name}         {"state": "STOPPED"}: also STARTED, PAUSED, RESUMED
    GET  /actuator/metrics[/{name}]        counts and lags, with ?tag=binding:orders those of one binding
    GET  /actuator/prometheus              the same as text

Which of them answer, `management.endpoints.web.exposure` says, and whether they may change something, their `access`.
The application can also be mounted in another web application. Requests by foreign names, of other sites' pages and
with large bodies are refused (`streamkit.management.request_guard`, `MAX_BODY`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamkit.binder.binder import BindingState, HealthStatus
from streamkit.config.application_properties import (
    ENDPOINT,
    ENDPOINTS,
    HEALTH,
    HEALTH_ENDPOINT,
    MANAGEMENT_SERVER,
    WEB_ENDPOINTS,
    Access,
    EndpointProperties,
    EndpointsProperties,
    HealthEndpointProperties,
    HealthProperties,
    ManagementServerProperties,
    Show,
    WebEndpointsProperties,
)
from streamkit.config.environment import Environment
from streamkit.config.secret import without_secrets
from streamkit.errors import (
    ApplicationError,
    BinderUnavailable,
    StreamkitError,
    UnknownBinding,
    UnsupportedCapability,
)
from streamkit.management.bindings_controller import BindingInfo, BindingsController
from streamkit.management.health import HealthComponent
from streamkit.management.metrics import LAG, METERS, BindingMetrics, Reading
from streamkit.management.problem import problem
from streamkit.management.request_guard import RequestGuard

__all__ = ["MAX_BODY", "NAMES", "Endpoints", "ManagedApplication"]

NAMES: Final = ("health", "bindings", "metrics", "prometheus")
"""The endpoints there are."""
MAX_BODY: Final = 16 * 1024
"""Bytes of a request's body: a change of state has some 20, and what JSON of that size becomes stays small."""

_JSON: Final = (
    "application/json",
    "application/vnd.spring-boot.actuator.v3+json",
    "application/vnd.spring-boot.actuator.v2+json",
)
_METERED: Final = ("metrics", "prometheus")
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Change(msgspec.Struct):
    """What is asked of a binding."""

    state: str


class ManagedApplication(Protocol):
    """What the endpoints need of an application."""

    @property
    def environment(self) -> Environment:
        """Its settings."""
        ...

    @property
    def controller(self) -> BindingsController:
        """Its bindings' states."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it is started, and nobody stops it."""
        ...

    async def health(self) -> HealthComponent:
        """Whether it can do its work."""
        ...

    async def lags(self) -> Mapping[str, int]:
        """How far its inputs are behind."""
        ...


class Endpoints:
    """The endpoints of one application, and what they count of it from when they are made.

    Attributes:
        base_path: The path they are found below.
        exposed: Which of them answer.
        asgi: The ASGI application.
    """

    def __init__(self, application: ManagedApplication, prefix: str = "") -> None:
        """Make the endpoints its settings expose; where these tell what is counted, count.

        Args:
            application: The application.
            prefix: What comes before the base path of the settings.
        """
        self._application = application
        self._metrics = BindingMetrics(application)
        environment = application.environment
        web = environment.bind(WEB_ENDPOINTS, WebEndpointsProperties)
        self._shows_details = (
            environment.bind(HEALTH_ENDPOINT, HealthEndpointProperties).show_details is not Show.NEVER
        )
        health = environment.bind(HEALTH, HealthProperties)
        counts = health.binders.enabled
        self._counts_binders = health.defaults.enabled if counts is None else counts
        self.base_path = f"/{prefix.strip('/')}/{web.base_path.strip('/')}".replace("//", "/").rstrip("/")
        every = environment.bind(ENDPOINTS, EndpointsProperties)
        self._access = {
            name: every.access_to(environment.bind(f"{ENDPOINT}.{name}", EndpointProperties))
            for name in _exposed(web.exposure.include, web.exposure.exclude)
        }
        self.exposed = [name for name, access in self._access.items() if access is not Access.NONE]
        server = environment.bind(MANAGEMENT_SERVER, ManagementServerProperties)
        self.asgi = Starlette(
            routes=list(self._routes()),
            middleware=[Middleware(RequestGuard, allowed_hosts=server.hosts)],
            exception_handlers={
                StreamkitError: _refused,
                HTTPException: _not_served,
                ClientDisconnect: _gone,
                Exception: _broken,
            },
            max_body_size=MAX_BODY,
        )
        if any(name in self.exposed for name in _METERED):
            self._metrics.connect()

    def close(self) -> None:
        """Count no more; what was counted is told."""
        self._metrics.disconnect()

    def _routes(self) -> Iterable[Route]:
        routes: Mapping[str, Sequence[tuple[str, str, Callable[[Request], object]]]] = {
            "health": [("GET", "/health", self._health), ("GET", "/health/{path:path}", self._health)],
            "bindings": [
                ("GET", "/bindings", self._bindings),
                ("GET", "/bindings/{name:path}", self._binding),
                ("POST", "/bindings/{name:path}", self._change),
            ],
            "metrics": [("GET", "/metrics", self._meters), ("GET", "/metrics/{name:path}", self._meter)],
            "prometheus": [("GET", "/prometheus", self._prometheus)],
        }
        for path in dict.fromkeys((self.base_path or "/", f"{self.base_path}/")):
            yield Route(path, self._links, methods=["GET"])
        for name in self.exposed:
            for method, path, endpoint in routes[name]:
                if method != "GET" and self._access[name] is not Access.UNRESTRICTED:
                    continue
                yield Route(f"{self.base_path}{path}", endpoint, methods=[method])

    async def _links(self, request: Request) -> Response:
        here = str(request.base_url).rstrip("/") + self.base_path
        links = {"self": {"href": here, "templated": False}}
        links |= {name: {"href": f"{here}/{name}", "templated": False} for name in self.exposed}
        return JSONResponse({"_links": links})

    async def _health(self, request: Request) -> Response:
        path = [step for step in request.path_params.get("path", "").split("/") if step]
        if path == ["liveness"]:
            return JSONResponse({"status": HealthStatus.UP.value})
        whole = await self._whole_health()
        if path == ["readiness"] or not path:
            found: HealthComponent | None = whole
        else:
            found = whole.find(*path) if self._shows_details else None
        if found is None:
            return problem(404, f"there is no health component {'/'.join(path)!r}")
        code = 503 if found.status is HealthStatus.DOWN or not self._application.is_running else 200
        return JSONResponse(_health_json(found, self._shows_details), status_code=code)

    async def _whole_health(self) -> HealthComponent:
        """What there is to tell; an application that does not run here can do no work."""
        try:
            whole = await self._application.health()
        except ApplicationError as error:
            return HealthComponent(HealthStatus.DOWN, {"reason": str(error)})
        if self._counts_binders:
            return whole
        parts = {name: part for name, part in whole.components.items() if name != "binders"}
        return HealthComponent(parts["bindings"].status, components=parts)

    async def _bindings(self, request: Request) -> Response:
        return JSONResponse([_binding_json(info) for info in self._application.controller.query_states()])

    async def _binding(self, request: Request) -> Response:
        return JSONResponse(
            _binding_json(self._application.controller.query_state(request.path_params["name"]))
        )

    async def _change(self, request: Request) -> Response:
        # A page in a browser cannot send this content type to another site without being allowed to.
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in _JSON:
            return problem(415, f"expected content type {_JSON[0]}, not {content_type!r}")
        try:
            change = msgspec.json.decode(await request.body(), type=_Change)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return problem(400, f'expected a JSON object such as {{"state": "STOPPED"}}: {error}')
        await self._application.controller.change_state(request.path_params["name"], change.state)
        return Response(status_code=204)

    async def _meters(self, request: Request) -> Response:
        return JSONResponse({"names": [meter.name for meter in METERS]})

    async def _meter(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in {meter.name for meter in METERS}:
            return problem(404, f"there is no meter {name!r}")
        if name == LAG.name:
            await self._observe()
        readings = [each for each in self._metrics.readings() if each.meter.name == name]
        wanted = {tag.removeprefix("binding:") for tag in request.query_params.getlist("tag")}
        return JSONResponse(_meter_json(name, readings, wanted))

    async def _prometheus(self, request: Request) -> Response:
        await self._observe()
        return PlainTextResponse(self._metrics.prometheus(), media_type=_PROMETHEUS)

    async def _observe(self) -> None:
        """Look how far inputs are behind; of an application that does not run here nothing is known."""
        try:
            lags = await self._application.lags()
        except ApplicationError:
            lags = {}
        self._metrics.observe(lags)


def _exposed(include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    wanted = [name for name in NAMES if "*" in include or name in include]
    return [name for name in wanted if name not in exclude and "*" not in exclude]


def _health_json(health: HealthComponent, shows_details: bool) -> dict[str, object]:
    told: dict[str, object] = {"status": health.status.value}
    if shows_details and health.components:
        told["components"] = {name: _health_json(part, True) for name, part in health.components.items()}
    if shows_details and health.details:
        told["details"] = {name: without_secrets(text) for name, text in health.details.items()}
    return told


def _binding_json(info: BindingInfo) -> dict[str, object]:
    return {
        "bindingName": info.name,
        "name": ",".join(info.destinations),
        "group": info.group,
        "pausable": info.is_pausable,
        "state": info.state.value,
        "paused": info.state is BindingState.PAUSED,
        "input": info.kind == "consumer",
        "binder": info.binder,
        "extendedInfo": {"dynamic": info.is_dynamic, "properties": dict(info.settings)},
    }


def _meter_json(name: str, readings: Sequence[Reading], wanted: set[str]) -> dict[str, object]:
    meter = next(meter for meter in METERS if meter.name == name)
    total = sum(each.value for each in readings if not wanted or each.binding in wanted)
    bindings = [each.binding for each in readings]
    return {
        "name": name,
        "description": meter.text,
        "baseUnit": meter.unit or "messages",
        "measurements": [{"statistic": meter.statistic, "value": total}],
        "availableTags": [] if wanted or not bindings else [{"tag": "binding", "values": bindings}],
    }


async def _refused(request: Request, error: Exception) -> Response:
    """Tell an error of the application: not there, not possible, not now."""
    match error:
        case BinderUnavailable():
            return problem(503, str(error))
        case UnsupportedCapability():
            return problem(409, str(error))
        case UnknownBinding():
            return problem(404, str(error))
        case ApplicationError():
            return problem(400, str(error))
    return problem(500, str(error))


async def _not_served(request: Request, error: Exception) -> Response:
    """Tell that there is no such path or method, or that the body is too large."""
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """Answer nobody: the client has closed its connection before its request was complete."""
    return problem(400, "the request is not complete")


async def _broken(request: Request, error: Exception) -> Response:
    """Tell nothing of an error that nobody expected; the server logs it."""
    return problem(500, "Internal Server Error", {"connection": "close"})  # as the server does after an error
