"""``streamkit metrics``: the metrics of all kinds of processes, a dashboard for Grafana, alert rules for Prometheus.

All three are written from the tables of the installed packages (the entry points `streamkit.metrics`), which the
processes themselves use to serve their metrics.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from streamkit.entry_points import METRICS, claim_conflict, described, offers_of

if TYPE_CHECKING:
    from streamkit.exposition import Metric, MetricTable

__all__ = ["alert_rules", "dashboard", "markdown", "metrics", "tables"]

_WIDTH: Final = 8
_HEIGHT: Final = 7
_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_BYTES: Final = ("bytes", "throughput", "storage_size", "offset")


@click.group()
def metrics() -> None:
    """Print the metrics for Prometheus, a dashboard or alert rules."""


@metrics.command("list")
def list_() -> None:
    """Print all metrics and alerts as Markdown."""
    click.echo("\n".join(map(markdown, tables())), nl=False)


@metrics.command("dashboard")
def dashboard_() -> None:
    """Print a dashboard for Grafana as JSON."""
    click.echo(json.dumps(dashboard(tables()), indent=1))


@metrics.command("alerts")
def alerts_() -> None:
    """Print the alert rules as YAML, for `rule_files` of Prometheus."""
    import yaml

    click.echo(yaml.safe_dump(alert_rules(tables()), sort_keys=False, width=200), nl=False)


def tables() -> "list[MetricTable]":
    """Return the tables of the installed packages, by the names of their entry points.

    Raises:
        click.ClickException: Two packages have a table of one name, or an entry point names no table.
    """
    from streamkit.exposition import MetricTable

    found = []
    for name, entries in offers_of(METRICS).items():
        if len(entries) > 1:
            raise click.ClickException(claim_conflict(f"the metrics {name}", map(described, entries)))
        try:
            table = entries[0].load()
        except (ImportError, AttributeError) as error:
            raise click.ClickException(f"the metrics {described(entries[0])} cannot be loaded: {error}") from error
        if not isinstance(table, MetricTable):
            raise click.ClickException(f"{described(entries[0])} is not a MetricTable")
        found.append(table)
    return found


def markdown(table: "MetricTable") -> str:
    """Return a table's metrics and alerts as two tables of Markdown."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in table.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.text} |")
    lines += ["", "| alert | severity | when | for | what to do |", "|---|---|---|---|---|"]
    for alert in table.alerts:
        when = f"`{alert.expression}`".replace("|", r"\|")
        lines.append(f"| {alert.name} | {alert.severity} | {when} | {alert.lasting} | {alert.action} |")
    return f"### {table.title}\n\n" + "\n".join(lines) + "\n"


def alert_rules(tables: "Sequence[MetricTable]") -> Mapping[str, object]:
    """Return the alerts as the content of a rule file of Prometheus."""
    return {
        "groups": [
            {
                "name": table.title,
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expression,
                        "for": alert.lasting,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary, "description": alert.action},
                    }
                    for alert in table.alerts
                ],
            }
            for table in tables
            if table.alerts
        ]
    }


def dashboard(tables: "Sequence[MetricTable]") -> Mapping[str, object]:
    """Return a dashboard of Grafana: a row for each table, a panel for each metric."""
    return {
        "title": "streamkit",
        "uid": "streamkit",
        "tags": ["streamkit"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(up, job)",
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                },
            ]
        },
        "panels": list(_panels(tables)),
    }


def _panels(tables: "Sequence[MetricTable]") -> Iterator[Mapping[str, object]]:
    number = top = 0
    for table in tables:
        number += 1
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": table.title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for index, metric in enumerate(table.metrics):
            number += 1
            row, column = divmod(index, _COLUMNS // _WIDTH)
            place = {"x": column * _WIDTH, "y": top + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _panel(number, metric, place)
        top += -(-len(table.metrics) // (_COLUMNS // _WIDTH)) * _HEIGHT


def _panel(number: int, metric: "Metric", place: Mapping[str, int]) -> Mapping[str, object]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for index, (query, legend) in enumerate(_queries(metric))
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name,
        "description": metric.text,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": _unit(metric)}, "overrides": []},
        "targets": targets,
    }


def _queries(metric: "Metric") -> Iterator[tuple[str, str]]:
    """Yield each query of a metric's panel, with the legend of its lines."""
    from streamkit.exposition import Kind

    by = metric.labels or ("instance",)
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    grouped = ", ".join(by)
    jobs = '{job=~"$job"}'
    if metric.kind is Kind.HISTOGRAM:
        for share in (0.5, 0.99):
            rate = f"rate({metric.name}_bucket{jobs}[$__rate_interval])"
            yield f"histogram_quantile({share}, sum by (le, {grouped}) ({rate}))", f"{share:.0%} {legend}"
    elif metric.kind is Kind.COUNTER:
        yield f"sum by ({grouped}) (rate({metric.name}{jobs}[$__rate_interval]))", legend
    else:
        yield f"sum by ({grouped}) ({metric.name}{jobs})", legend


def _unit(metric: "Metric") -> str:
    """Return Grafana's name of the unit of a metric's panel."""
    from streamkit.exposition import Kind

    is_rate = metric.kind is Kind.COUNTER
    if metric.name.endswith("_seconds"):
        return "dateTimeAsIso" if "start_time" in metric.name else "s"
    if any(word in metric.name for word in _BYTES):
        return "Bps" if is_rate else "bytes"
    if "latency" in metric.name or metric.name.endswith("_time"):
        return "ms"
    return "cps" if is_rate else "short"
