"""Prometheus' own tool reads the alert rules, and the metrics of a running broker and of an application."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from rocket_broker.embedded import EmbeddedBroker
from rocket_client import ClientMetrics
from rocket_client.metrics import ReadQueue
from rocket_remoting.transports.memory import MemoryTransport
from streamkit.application import StreamApplication
from streamkit.cli.metrics import alert_rules, tables
from streamkit.management.metrics import BindingMetrics
from tests.peer.artifacts import PeersUnavailableError
from tests.peer.debian_packages import unpacked

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def promtool() -> Sequence[str]:
    """The command of Debian's package `prometheus`."""
    try:
        packages = unpacked("prometheus")
    except PeersUnavailableError as error:
        pytest.skip(str(error))
    return [str(packages.root / "usr/bin/promtool"), "check"]


def test_rules_are_valid(promtool: Sequence[str], tmp_path: Path) -> None:
    """Names, durations and PromQL."""
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump(alert_rules(tables())))
    done = subprocess.run([*promtool, "rules", str(rules)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len(table.alerts) for table in tables())} rules found" in done.stdout


def text_of_broker() -> str:
    """Return the metrics of a new broker."""

    async def main() -> str:
        async with EmbeddedBroker(transport=MemoryTransport()) as embedded:
            steps = embedded.broker.metrics.scrape()
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return b"".join(end.value).decode()

    return asyncio.run(main())


def text_of_application() -> str:
    """Return the metrics of a new application."""
    settings = {
        "spring.cloud.stream.default-binder": "inmemory",
        "spring.cloud.stream.input-bindings": "in",
        "spring.cloud.stream.output-bindings": "out",
    }
    app = StreamApplication(config_location="optional:/none", properties=settings, args=())
    with app.test():
        metrics = BindingMetrics(app)
        metrics.observe(app.controller.query_states(), {"in": 1})
        return metrics.prometheus()


def text_of_client() -> str:
    """Return the metrics of a program with a producer and a consumer."""
    metrics = ClientMetrics()
    metrics.producer("a@1").sent("orders", 0.004, succeeded=True)
    metrics.consumer("a@1", "kitchen", ["orders"], lambda: [ReadQueue("orders", 7, 2, 64)])
    return metrics.prometheus_text()


@pytest.mark.parametrize("text", [text_of_broker, text_of_application, text_of_client])
def test_metrics_are_valid(promtool: Sequence[str], text: Callable[[], str]) -> None:
    """The format; exit code 3 is advice about names, which are RocketMQ's."""
    done = subprocess.run([*promtool, "metrics"], input=text(), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
