"""docs/observability.md: the metrics and alerts that it lists, and the files that are made from the same tables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx

from streamkit.cli.metrics import alert_rules, dashboard, markdown, tables
from streamkit.exposition import Kind
from tests.docs.pages import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


def test_page_has_the_tables_of_all_metrics_and_alerts() -> None:
    """Exactly as `streamkit metrics list` prints them."""
    assert [table.title for table in tables()] == ["Application", "Broker", "RocketMQ client", "Name server"]
    text = PAGE.read_text()
    for table in tables():
        assert markdown(table) in text


def test_a_program_serves_the_metrics_of_its_client() -> None:
    """With the snippet of the page."""
    (snippet,) = [block.text for block in blocks_of("docs/observability.md") if "ClientMetrics" in block.text]
    names: dict[str, Any] = {}
    exec(snippet, names)
    server = names["serve_metrics"](0)
    try:
        answer = httpx.get("http://{}:{}/metrics".format(*server.server_address), timeout=60)
    finally:
        server.shutdown()
        server.server_close()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE rocketmq_send_cost_time histogram" in answer.text


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Counters end in `_total`, histograms have growing bounds, texts are sentences."""
    for table in tables():
        names = [metric.name for metric in table.metrics]
        assert len(set(names)) == len(names)
        for metric in table.metrics:
            assert re.fullmatch(r"[a-z][a-z_]*", metric.name)
            assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
            assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
            assert list(metric.buckets) == sorted(set(metric.buckets))
            assert metric.text.endswith(".")


def test_dashboard_has_a_panel_for_each_metric() -> None:
    """None lies over another."""
    panels = cast("list[Mapping[str, Any]]", dashboard(tables())["panels"])
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    assert titles == [metric.name for table in tables() for metric in table.metrics]
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert covered.isdisjoint(cells)
        assert place["x"] + place["w"] <= 24
        covered |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_name_metrics_that_exist() -> None:
    """And labels that their metrics have."""
    known = {metric.name for table in tables() for metric in table.metrics}
    groups = cast("list[Mapping[str, Any]]", alert_rules(tables())["groups"])
    for rule in (rule for group in groups for rule in group["rules"]):
        named = set(re.findall(r"(?:streamkit|rocketmq)_\w+", rule["expr"]))
        assert named
        assert named <= known
