"""The management endpoints of a running application, over HTTP."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar, cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from binders.inmemory.binder import InMemoryBinder
from streamkit.application import StreamApplication
from streamkit.binder.binder import Binder, BinderContext, HealthStatus
from streamkit.errors import BinderError, ConfigurationError
from streamkit.events import message_received, message_sent, message_settled
from streamkit.management.endpoints import Endpoints
from streamkit.management.metrics import BindingMetrics
from streamkit.messaging.message import Message
from streamkit.spark.events import query_failed, query_progressed
from tests.unit.binder.test_late_binding import FlakyPlugin

STREAM = "spring.cloud.stream"


def application(plugins: Sequence[object] = (), **settings: str) -> StreamApplication:
    """Return an in-memory application with an input and an output, and its endpoints on a free port."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "management.server.port": "0",
            "management.endpoints.web.exposure.include": "*",
            f"{STREAM}.default-binder": "inmemory",
            f"{STREAM}.bindings.in.destination": "topic",
            f"{STREAM}.bindings.in.group": "g",
            f"{STREAM}.bindings.in.consumer.max-attempts": "1",
            f"{STREAM}.bindings.out.destination": "topic",
            f"{STREAM}.output-bindings": "out",
            **{key.replace("__", "."): value for key, value in settings.items()},
        },
        plugins=plugins or [FlakyPlugin(up_at=float("inf"))],
    )

    @app.stream_listener("in")
    async def handle(text: str) -> None:
        if text == "bad":
            raise ValueError(text)

    return app


@contextmanager
def serving(app: StreamApplication) -> Iterator[httpx.Client]:
    """Yield a client of the endpoints of a running application."""
    with app:
        assert app.management_url is not None
        with httpx.Client(base_url=app.management_url) as client:
            yield client


def test_health_covers_binders_and_bindings() -> None:
    """UP with details, parts by their paths, and probes for Kubernetes."""
    with serving(application()) as client:
        answer = client.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "UP")
        parts = answer.json()["components"]
        assert parts["binders"]["components"]["inmemory"] == {
            "status": "UP",
            "details": {"destinations": "1", "lag.in": "0"},
        }
        assert parts["bindings"] == {"status": "UP", "details": {"in": "running", "out": "running"}}
        assert client.get("/health/binders/inmemory").json()["status"] == "UP"
        assert client.get("/health/binders/other").status_code == 404
        assert client.get("/health/liveness").json() == {"status": "UP"}
        assert client.get("/health/readiness").status_code == 200


def test_health_is_down_while_a_system_is_unavailable() -> None:
    """503 with the unbound bindings; liveness stays up, so that no restart interrupts the retries."""
    settings = {f"{STREAM}.default-binder": "flaky", f"{STREAM}.inmemory.binder.stands-in-for": "inmemory"}
    with serving(application(**settings)) as client:
        answer = client.get("/health")
        assert answer.status_code == 503
        parts = answer.json()["components"]
        assert parts["binders"]["components"]["flaky"]["status"] == "DOWN"
        assert parts["bindings"]["details"]["in"] == "cannot be bound, and is tried again: nobody there"
        assert client.get("/health/readiness").status_code == 503
        assert client.get("/health/liveness").status_code == 200
    ignored = {
        **settings,
        "management.health.defaults.enabled": "false",
        f"{STREAM}.binding-retry-interval": "9",
    }
    with serving(application(**ignored)) as client:
        assert "binders" not in client.get("/health").json()["components"]


def test_health_details_can_be_hidden() -> None:
    """show-details=never: only the status, without parts."""
    with serving(application(**{"management.endpoint.health.show-details": "never"})) as client:
        assert client.get("/health").json() == {"status": "UP"}
        assert client.get("/health/binders").status_code == 404


def test_bindings_are_read_and_changed() -> None:
    """As by Spring's endpoint: all, one, and POST of a state."""
    with serving(application()) as client:
        found = {each["bindingName"]: each for each in client.get("/bindings").json()}
        assert set(found) == {"in", "out"}
        status = client.get("/bindings/in").json()
        assert {key: status[key] for key in ("name", "group", "pausable", "state", "paused", "input")} == {
            "name": "topic",
            "group": "g",
            "pausable": True,
            "state": "running",
            "paused": False,
            "input": True,
        }
        assert status["extendedInfo"]["properties"]["max-attempts"] == "1"
        for state, expected in (
            ("PAUSED", "paused"),
            ("RESUMED", "running"),
            ("STOPPED", "stopped"),
            ("STARTED", "running"),
        ):
            assert client.post("/bindings/in", json={"state": state}).status_code == 204
            assert client.get("/bindings/in").json()["state"] == expected


@pytest.mark.parametrize(
    ("path", "request_", "code", "text"),
    [
        (
            "/bindings/nope",
            {"json": {"state": "STOPPED"}},
            404,
            "there is no binding 'nope'; there are: in, out",
        ),
        ("/bindings/in", {"json": {"state": "HALTED"}}, 400, "unknown state change 'HALTED'"),
        ("/bindings/out", {"json": {"state": "PAUSED"}}, 400, "'out' is an output"),
        ("/bindings/in", {"json": {}}, 400, "expected a JSON object such as"),
        ("/bindings/in", {"json": []}, 400, "expected a JSON object such as"),
        (
            "/bindings/in",
            {"content": "{", "headers": {"content-type": "application/json"}},
            400,
            "a JSON object",
        ),
        ("/bindings/in", {"data": {"state": "STOPPED"}}, 415, "expected content type application/json"),
    ],
)
def test_invalid_request_is_reported(path: str, request_: dict[str, object], code: int, text: str) -> None:
    """With an HTTP status and a sentence; requests from pages of other sites are refused."""
    with serving(application()) as client:
        answer = client.post(path, **request_)
        assert answer.status_code == code
        assert text in answer.json()["error"]


def test_messages_are_counted_per_binding() -> None:
    """Received, handled, failed, settled, sent; as JSON and for Prometheus."""
    app = application()
    settled: list[object] = []
    all_settled = threading.Event()

    def note(sender: object, settlement: object, **_: object) -> None:
        settled.append(settlement)
        if len(settled) == 3:
            all_settled.set()

    with serving(app) as client, message_settled.connected_to(note, sender=app):
        for text in ("good", "good", "bad"):
            app.channel("out").send(Message(text))
        assert all_settled.wait(20)

        def count(name: str, **query: str) -> float:
            answer = client.get(f"/metrics/streamkit.messages.{name}", params=query).json()
            value: float = answer["measurements"][0]["value"]
            return value

        assert [count(name) for name in ("received", "failed", "handled", "accepted", "retried")] == [
            3,
            1,
            2,
            2,
            1,
        ]
        assert count("sent", tag="binding:out") == 3
        assert count("sent", tag="binding:in") == 0
        assert client.get("/metrics/streamkit.messages.handling").json()["baseUnit"] == "seconds"
        assert "streamkit.messages.rejected" in client.get("/metrics").json()["names"]
        assert client.get("/metrics/nope").status_code == 404
        status = client.get("/prometheus")
        assert status.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'streamkit_messages_sent_total{binding="out"} 3' in status.text.splitlines()
        assert "# TYPE streamkit_messages_handling_seconds histogram" in status.text.splitlines()


def test_consumer_lag_is_measured_where_the_binder_supports_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On request; a binder that does not answer affects no other meter and is logged once."""
    away = BinderError("away")

    class Behind(InMemoryBinder):
        answers: ClassVar[list[object]] = [{"in": 7}, {"in": 5}, {}, away, away, {}, away]

        async def lags(self) -> Mapping[str, int]:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return cast(Mapping[str, int], answer)

    class Plugin(FlakyPlugin):
        def create_binder(self, name: str, context: BinderContext) -> Binder:
            return Behind(name, context)

    settings = {f"{STREAM}.default-binder": "flaky", f"{STREAM}.inmemory.binder.stands-in-for": "inmemory"}
    app = application(plugins=[Plugin(up_at=0)], **settings)
    with serving(app) as client:
        lag = client.get("/metrics/streamkit.messages.lag").json()
        assert lag["measurements"] == [{"statistic": "VALUE", "value": 7}]
        assert lag["availableTags"] == [{"tag": "binding", "values": ["in"]}]
        status = client.get("/prometheus").text.splitlines()
        assert "# TYPE streamkit_messages_lag gauge" in status
        assert 'streamkit_messages_lag{binding="in"} 5' in status
        assert "lag" not in client.get("/prometheus").text
        app.channel("out").send(Message("good"))
        for _ in range(4):
            assert 'streamkit_messages_sent_total{binding="out"} 1' in client.get("/prometheus").text
    status = [each.getMessage() for each in caplog.records if each.name == "streamkit.management.lags"]
    assert status == ["Binder 'flaky' could not read the lag of its inputs: away"] * 2


def test_large_numbers_have_all_digits() -> None:
    """Rounded, they would stand still and then leap in Prometheus."""
    metrics = BindingMetrics(application())
    metrics.observe([], {"in": 1234567})
    assert 'streamkit_messages_lag{binding="in"} 1234567' in metrics.prometheus().splitlines()


def test_mounted_endpoints_count_from_their_creation() -> None:
    """The counts are also served while the application does not run."""
    app = application(**{"management.server.port": "-1", "management.server.allowed-hosts": "web"})

    async def main() -> None:
        endpoints = Endpoints(app)
        transport = httpx.ASGITransport(Starlette(routes=[Mount("/shop", endpoints.asgi)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://web/shop/actuator") as client:
            assert (await client.get("/prometheus")).status_code == 200
            async with app:
                await app.channel("out").asend(Message("good"))
            assert 'messages_sent_total{binding="out"} 1\n' in (await client.get("/prometheus")).text
            lag = (await client.get("/metrics/streamkit.messages.lag")).json()
            assert lag["measurements"] == []  # unknown, and not 0
        endpoints.close()
        assert not list(message_sent.receivers_for(app))

    asyncio.run(main())


def test_stopped_application_is_down() -> None:
    """Probes of mounted endpoints get DOWN before the start and after the stop; liveness is UP."""
    app = application(**{"management.server.port": "-1", "management.server.allowed-hosts": "web"})

    async def main() -> None:
        endpoints = Endpoints(app)
        transport = httpx.ASGITransport(endpoints.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://web/actuator/health") as client:

            async def status() -> list[tuple[int, str]]:
                answers = [await client.get(path) for path in ("", "/readiness", "/liveness")]
                return [(answer.status_code, answer.json()["status"]) for answer in answers]

            is_down = [(503, "DOWN"), (503, "DOWN"), (200, "UP")]
            assert await status() == is_down
            assert "does not run" in (await client.get("")).json()["details"]["reason"]
            async with app:
                assert await status() == [(200, "UP")] * 3
            assert await status() == is_down
        endpoints.close()

    asyncio.run(main())


def test_spark_queries_are_counted() -> None:
    """Per output: batches, rows read, durations and failures."""
    app = application()
    batch = SimpleNamespace(
        sources=[SimpleNamespace(numInputRows=3), SimpleNamespace(numInputRows=4)],
        durationMs={"triggerExecution": 1500, "addBatch": 1000},
    )
    with serving(app) as client:
        for _ in range(2):
            query_progressed.send(app, binding="out", progress=batch)
        query_failed.send(app, binding="out", error="the disk is full")
        status = client.get("/prometheus").text.splitlines()
    assert [line for line in status if line.startswith("streamkit_queries")] == [
        'streamkit_queries_batches_total{binding="out"} 2',
        'streamkit_queries_rows_total{binding="out"} 14',
        'streamkit_queries_working_seconds_total{binding="out"} 3',
        'streamkit_queries_failed_total{binding="out"} 1',
    ]


def test_only_exposed_endpoints_answer_and_others_are_not_counted() -> None:
    """By default only health; exclude overrides include."""
    app = application(**{"management.endpoints.web.exposure.include": "health"})
    with serving(app) as client:
        assert [client.get(path).status_code for path in ("/health", "/bindings", "/metrics")] == [
            200,
            404,
            404,
        ]
        assert not list(message_received.receivers_for(app))
        assert not list(message_sent.receivers_for(app))
        assert set(client.get("").json()["_links"]) == {"self", "health"}
    app = application(**{"management.endpoints.web.exposure.exclude": "bindings,prometheus"})
    with serving(app) as client:
        assert set(client.get("").json()["_links"]) == {"self", "health", "metrics"}


def test_endpoint_paths_are_configurable() -> None:
    """A prefix and a base path; either may be empty."""
    app = application(**{"management.server.base-path": "/ops", "management.endpoints.web.base-path": "/"})
    with serving(app) as client:
        assert str(client.base_url).endswith("/ops/")
        assert client.get("/health").status_code == 200


def test_endpoints_listen_on_loopback_and_end_with_the_application() -> None:
    """Unless another address is set."""
    app = application()
    with serving(app) as client:
        host, port = client.base_url.host, client.base_url.port
        assert host == "127.0.0.1"
    assert port is not None
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port)):
        pass


def test_no_port_means_no_endpoints() -> None:
    """Nor their modules; health can still be read in the process."""
    app = application(**{"management.server.port": "-1"})

    async def main() -> None:
        async with app:
            assert app.management_url is None
            assert (await app.health()).status is HealthStatus.UP

    asyncio.run(main())


def test_port_in_use_is_reported_with_the_setting() -> None:
    """Its origin, the address, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = application(**{"management.server.port": str(port)})
        with (
            pytest.raises(
                ConfigurationError, match=f"given in code: management.server.port={port}: .*127.0.0.1:{port}"
            ),
            app,
        ):
            pass
    assert not app.is_running
    assert not list(message_sent.receivers_for(app))
