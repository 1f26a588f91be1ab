"""The metrics of an application's bindings, as Prometheus' own parser reads them."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamkit.application import StreamApplication
from streamkit.events import message_sent, notify
from streamkit.exposition import Kind
from streamkit.management.metrics import METERS, MOST_BINDINGS, OTHER_BINDINGS, BindingMetrics
from streamkit.settlement import Reject
from streamkit.testing.harness import Harness

PREFIX = "streamkit_messages"
STREAM = "spring.cloud.stream"
SETTINGS = {
    f"{STREAM}.default-binder": "inmemory",
    f"{STREAM}.bindings.in.destination": "orders",
    f"{STREAM}.bindings.in.group": "kitchen",
    f"{STREAM}.bindings.in.consumer.max-attempts": "3",
    f"{STREAM}.output-bindings": "out",
}

Samples = dict[tuple[str, str, str], float]


class Scraped:
    """A running application with one listener, and its metrics."""

    def __init__(self, app: StreamApplication, test: "Harness[StreamApplication]") -> None:
        self.app = app
        self.test = test
        self.metrics = BindingMetrics(app)

    def samples(self) -> Samples:
        """Return the values by name, binding and upper bound."""
        self.metrics.observe(self.app.controller.query_states(), {"in": 2})
        return {
            (sample.name, sample.labels["binding"], sample.labels.get("le", "")): sample.value
            for family in text_string_to_metric_families(self.metrics.prometheus())
            for sample in family.samples
        }


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS, args=())
    calls: list[str] = []

    @app.stream_listener("in")
    async def handle(text: str) -> None:
        calls.append(text)
        if text == "spoilt":
            raise Reject("spoilt")
        if text == "late" and len(calls) == 1:
            raise ValueError(text)
        await app.bridge.asend("out", text)

    with app.test() as test:
        found = Scraped(app, test)
        found.metrics.connect()
        yield found
        found.metrics.disconnect()


def test_counters_are_zero_before_anything_happens(scraped: Scraped) -> None:
    """Those of inputs and of outputs; a gauge has a value only if the value is known."""
    samples = scraped.samples()
    assert samples[f"{PREFIX}_rejected_total", "in", ""] == 0
    assert samples[f"{PREFIX}_unsent_total", "out", ""] == 0
    assert (f"{PREFIX}_unsent_total", "in", "") not in samples
    assert samples[f"{PREFIX}_handling_seconds_count", "in", ""] == 0
    assert samples["streamkit_bindings_running", "out", ""] == 1
    assert samples[f"{PREFIX}_lag", "in", ""] == 2
    assert {name for name, binding, _ in samples if binding == "out"} >= {
        meter.metric.name for meter in METERS if meter.of == "producer" and meter.kind is Kind.COUNTER
    }


def test_attempts_and_times_are_distributed(scraped: Scraped) -> None:
    """A message whose second call succeeds took a pause of a second, and two attempts."""
    scraped.test.input("in").send("late")
    scraped.test.input("in").send("spoilt")
    scraped.test.settle()
    scraped.test.advance(seconds=2)
    samples = scraped.samples()
    attempts = [value for (name, _, bound), value in samples.items() if name == f"{PREFIX}_attempts_bucket"]
    assert attempts[:2] == [1, 2]
    assert attempts[-1] == 2
    assert samples[f"{PREFIX}_latency_seconds_count", "in", ""] == 1
    assert 1 <= samples[f"{PREFIX}_latency_seconds_sum", "in", ""] < 2
    assert samples[f"{PREFIX}_handling_seconds_count", "in", ""] == 1
    assert samples[f"{PREFIX}_sending_seconds_count", "out", ""] == 1
    assert [samples[f"{PREFIX}_{name}_total", "in", ""] for name in ("accepted", "rejected", "failed")] == [1, 1, 1]


def test_the_number_of_bindings_is_limited(scraped: Scraped) -> None:
    """Names of outputs may come from messages."""
    for number in range(MOST_BINDINGS + 2):
        notify(message_sent, scraped.app, binding=f"to {number}", message=None)
    names = {binding for name, binding, _ in scraped.samples() if name == f"{PREFIX}_sent_total"}
    assert len(names) == MOST_BINDINGS + 1
    assert OTHER_BINDINGS in names


def test_names_of_bindings_are_escaped(scraped: Scraped) -> None:
    """Prometheus reads the name back."""
    notify(message_sent, scraped.app, binding='a"b\\c\nd', message=None)
    assert scraped.samples()[f"{PREFIX}_sent_total", 'a"b\\c\nd', ""] == 1
