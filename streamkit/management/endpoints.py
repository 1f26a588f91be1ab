"""The management endpoints, an ASGI application with Spring Boot Actuator's paths and responses.

::

    GET  /actuator                         the available endpoints
    GET  /actuator/health[/…]              200, or 503 if a component is DOWN; /liveness, /readiness for probes
    GET  /actuator/bindings[/{name}]       states and settings, secrets hidden
    POST /actuator/bindings/{name}         {"state": "STOPPED"}: also STARTED, PAUSED, RESUMED
    GET  /actuator/metrics[/{name}]        counts, times and lags; with ?tag=binding:orders those of one binding
    GET  /actuator/prometheus              all metrics in Prometheus' text format

`management.endpoints.web.exposure` selects the endpoints, and their `access` whether they may change something. The
application can also be mounted in another web application. Requests with unknown host names, changes requested by
pages of other sites, and large bodies are refused (`streamkit.management.request_guard`, `MAX_BODY`). If the settings
have a password or a token, all endpoints but `health` need it (`streamkit.management.login`).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

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
    SECURITY_USER,
    WEB_ENDPOINTS,
)
from streamkit.config.management_properties import (
    Access,
    EndpointProperties,
    EndpointsProperties,
    HealthEndpointProperties,
    HealthProperties,
    ManagementServerProperties,
    SecurityUserProperties,
    Show,
    WebEndpointsProperties,
)
from streamkit.config.secret import without_secrets
from streamkit.errors import (
    ApplicationError,
    BinderUnavailable,
    StreamkitError,
    UnknownBinding,
    UnsupportedCapability,
)
from streamkit.exposition import CONTENT_TYPE, Kind
from streamkit.management.bindings_controller import BindingInfo
from streamkit.management.endpoint import EndpointRoute, ManagedApplication, ManagementEndpoint
from streamkit.management.health import HealthComponent
from streamkit.management.login import Login
from streamkit.management.metrics import LAG, METERS, BindingMetrics, Reading
from streamkit.management.problem import problem
from streamkit.management.request_guard import RequestGuard

__all__ = ["MAX_BODY", "NAMES", "Endpoints"]

NAMES: Final = ("health", "bindings", "metrics", "prometheus")
"""The names of streamkit's own endpoints; plugins may add others."""
MAX_BODY: Final = 16 * 1024
"""The most bytes of a request's body: a change of state has some 20, and decoded JSON of this size stays small."""

_JSON: Final = (
    "application/json",
    "application/vnd.spring-boot.actuator.v3+json",
    "application/vnd.spring-boot.actuator.v2+json",
)
_FOR_ALL: Final = "health"
"""The endpoint that needs no login."""
_METERED: Final = ("metrics", "prometheus")


Answer = Callable[[Request], Awaitable[Response]]


class _Change(msgspec.Struct):
    """The body of a request to change a binding's state."""

    state: str


class Endpoints:
    """The endpoints of one application, and the metrics that they show, counted from the creation of this object.

    Attributes:
        base_path: The path of the endpoints.
        exposed: The names of the exposed endpoints.
        asgi: The ASGI application.
    """

    def __init__(self, application: ManagedApplication, prefix: str = "") -> None:
        """Create the endpoints that the application's settings expose, and start to count if metrics are among them.

        Args:
            application: The application.
            prefix: The path in front of the settings' base path.
        """
        self._application = application
        self._metrics = BindingMetrics(application)
        environment = application.environment
        web = environment.bind(WEB_ENDPOINTS, WebEndpointsProperties)
        self._health_endpoint = environment.bind(HEALTH_ENDPOINT, HealthEndpointProperties)
        health = environment.bind(HEALTH, HealthProperties)
        counts = health.binders.enabled
        self._counts_binders = health.defaults.enabled if counts is None else counts
        self.base_path = f"/{prefix.strip('/')}/{web.base_path.strip('/')}".replace("//", "/").rstrip("/")
        every = environment.bind(ENDPOINTS, EndpointsProperties)
        self._endpoints = self._own_endpoints() | {
            endpoint.name: endpoint for endpoint in application.plugins.management_endpoints(application, NAMES)
        }
        self._access = {
            name: every.access_to(environment.bind(f"{ENDPOINT}.{name}", EndpointProperties))
            for name in self._endpoints
            if web.exposure.exposes(name)
        }
        self.exposed = [name for name, access in self._access.items() if access is not Access.NONE]
        server = environment.bind(MANAGEMENT_SERVER, ManagementServerProperties)
        self._login = Login(server, environment.bind(SECURITY_USER, SecurityUserProperties))
        self.asgi = Starlette(
            routes=list(self._routes()),
            middleware=[Middleware(RequestGuard, allowed_hosts=server.hosts)],
            exception_handlers={
                StreamkitError: _refused,
                HTTPException: self._not_served,
                ClientDisconnect: _client_closed,
                Exception: _internal_error,
            },
            max_body_size=MAX_BODY,
        )
        if any(name in self.exposed for name in _METERED):
            self._metrics.connect()

    @property
    def needs_login(self) -> bool:
        """Whether the endpoints, but `health`, answer those only who have logged in."""
        return self._login.is_needed

    def close(self) -> None:
        """Stop counting; the counters keep their values."""
        self._metrics.disconnect()

    def _own_endpoints(self) -> dict[str, ManagementEndpoint]:
        routes: Mapping[str, Sequence[EndpointRoute]] = {
            "health": [
                EndpointRoute("GET", "", self._health),
                EndpointRoute("GET", "/{path:path}", self._health),
            ],
            "bindings": [
                EndpointRoute("GET", "", self._bindings),
                EndpointRoute("GET", "/{name:path}", self._binding),
                EndpointRoute("POST", "/{name:path}", self._change),
            ],
            "metrics": [
                EndpointRoute("GET", "", self._meters),
                EndpointRoute("GET", "/{name:path}", self._meter),
            ],
            "prometheus": [EndpointRoute("GET", "", self._prometheus)],
        }
        return {name: ManagementEndpoint(name, routes[name]) for name in NAMES}

    def _routes(self) -> Iterable[Route]:
        for path in dict.fromkeys((self.base_path or "/", f"{self.base_path}/")):
            yield Route(path, self._for_admitted(self._links), methods=["GET"])
        for name in self.exposed:
            for route in self._endpoints[name].routes:
                if route.method != "GET" and self._access[name] is not Access.UNRESTRICTED:
                    continue
                answer = route.answer if name == _FOR_ALL else self._for_admitted(route.answer)
                yield Route(f"{self.base_path}/{name}{route.path}", answer, methods=[route.method])

    def _for_admitted(self, answer: Answer) -> Answer:
        """Return the answer to requests that may use the endpoints, before their body is read."""

        async def answer_if_admitted(request: Request) -> Response:
            refusal = self._login.refusal(request)
            return await answer(request) if refusal is None else refusal

        return answer_if_admitted

    async def _not_served(self, request: Request, error: Exception) -> Response:
        """Return the response to an unknown path or method, or to a body that is too large."""
        assert isinstance(error, HTTPException)
        return self._login.refusal(request) or problem(error.status_code, error.detail, error.headers)

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
        shows_details, shows_parts = self._shown(request)
        if path == ["readiness"] or not path:
            found: HealthComponent | None = whole
        else:
            found = whole.find(*path) if shows_parts else None
        if found is None:
            return problem(404, f"there is no health component {'/'.join(path)!r}")
        code = 503 if found.status is HealthStatus.DOWN or not self._application.is_running else 200
        shown = _health_json(found, shows_parts=shows_parts, shows_details=shows_details)
        return JSONResponse(shown, status_code=code)

    @property
    def _show_details(self) -> Show:
        default = Show.WHEN_AUTHORIZED if self._login.is_needed else Show.ALWAYS
        return self._health_endpoint.show_details or default

    def _shown(self, request: Request) -> Iterator[bool]:
        """Yield whether a request sees details of the health, and whether it sees its components."""
        shows = self._show_details, self._health_endpoint.show_components or self._show_details
        # Asked once, because a wrong password is counted.
        is_known = Show.WHEN_AUTHORIZED in shows and self._login.is_authorized(request, self._health_endpoint.roles)
        for show in shows:
            yield is_known if show is Show.WHEN_AUTHORIZED else show is Show.ALWAYS

    async def _whole_health(self) -> HealthComponent:
        """Return the health to show; DOWN for an application that is not running in this process."""
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
        return JSONResponse(_binding_json(self._application.controller.query_state(request.path_params["name"])))

    async def _change(self, request: Request) -> Response:
        # A browser sends this content type to another site only if that site allows it.
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
        await self._observe(with_lags=name == LAG.name)
        readings = [each for each in self._metrics.readings() if each.meter.name == name]
        wanted = {tag.removeprefix("binding:") for tag in request.query_params.getlist("tag")}
        return JSONResponse(_meter_json(name, readings, wanted))

    async def _prometheus(self, request: Request) -> Response:
        await self._observe(with_lags=True)
        return PlainTextResponse(self._metrics.prometheus(), media_type=CONTENT_TYPE)

    async def _observe(self, *, with_lags: bool) -> None:
        """Read the bindings, and the lags from their binders; there are none unless the application runs here."""
        try:
            lags = await self._application.lags() if with_lags else {}
            bindings = self._application.controller.query_states()
        except ApplicationError:
            lags, bindings = {}, []
        self._metrics.observe(bindings, lags)


def _health_json(health: HealthComponent, *, shows_parts: bool, shows_details: bool) -> dict[str, object]:
    shown: dict[str, object] = {"status": health.status.value}
    if shows_parts and health.components:
        shown["components"] = {
            name: _health_json(part, shows_parts=True, shows_details=shows_details)
            for name, part in health.components.items()
        }
    if shows_details and health.details:
        shown["details"] = {name: without_secrets(text) for name, text in health.details.items()}
    return shown


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
    asked = [each.value for each in readings if not wanted or each.binding in wanted]
    # A counter without events is 0; a gauge without a value is unknown, and 0 would be a wrong answer.
    is_known = bool(asked) or meter.kind is not Kind.GAUGE
    measured = meter.measurements(asked) if is_known else {}
    bindings = [each.binding for each in readings]
    return {
        "name": name,
        "description": meter.text,
        "baseUnit": meter.unit or "messages",
        "measurements": [{"statistic": statistic, "value": value} for statistic, value in measured.items()],
        "availableTags": [] if wanted or not bindings else [{"tag": "binding", "values": bindings}],
    }


async def _refused(request: Request, error: Exception) -> Response:
    """Return the response to an error of the application: not found, not possible, or unavailable now."""
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


async def _client_closed(request: Request, error: Exception) -> Response:
    """Return a response that is not sent: the client closed the connection before its request was complete."""
    return problem(400, "the request is not complete")


async def _internal_error(request: Request, error: Exception) -> Response:
    """Return a response without details of an unexpected error; the server logs the error."""
    # uvicorn closes the connection after an error.
    return problem(500, "Internal Server Error", {"connection": "close"})
