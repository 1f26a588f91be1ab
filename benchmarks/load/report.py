"""The figures as tables and a section of the page: medians, and how many times the first broker's they are."""

import platform
from collections.abc import Mapping, Sequence

from rich.table import Table as ConsoleTable

from benchmarks.load.scenarios import SCENARIOS, Figures
from benchmarks.page import Plot, Section, Table

__all__ = ["WITHOUT", "console_table", "section"]

WITHOUT = "without the native core"
"""The name of this checkout's broker without the native core."""

Medians = Mapping[str, Sequence[Figures]]
"""For each scenario, the figures of each broker."""


def console_table(servers: Sequence[str], medians: Medians) -> ConsoleTable:
    """Return the table for a terminal."""
    table = ConsoleTable(title="messages/s · CPU of the broker for each message", title_justify="left")
    table.add_column("")
    for server in servers:
        table.add_column(server, justify="right")
    for name, figures in medians.items():
        table.add_row(SCENARIOS[name].title, *(_cell(one) for one in figures))
        if len(servers) > 1:
            table.add_row("", *(_against(figures[0], one) for one in figures), style="dim")
    return table


def section(servers: Sequence[str], medians: Medians, *, rounds: int, seconds: float) -> Section:
    """Return the section of the page."""
    rows = []
    for name, figures in medians.items():
        ours = figures[0]
        ratios = (
            f"{ours.per_second / other.per_second:.2f}×, {ours.broker_cpu_us / other.broker_cpu_us:.2f}×"
            for other in figures[1:]
        )
        rows.append([SCENARIOS[name].title, *map(_cell, figures), *ratios])
    busiest = max(figure.own_cpu_share for figures in medians.values() for figure in figures)
    notes = [f"The load generator used at most {busiest:.0%} of a core."]
    if WITHOUT in servers:
        notes.append(
            f"The first column is the broker with the native core (`make native`), *{WITHOUT}* the same broker with "
            "`STREAMKIT_NATIVE=0`. [Architecture](architecture.md#the-broker) says what the core does, and why it is "
            "in Rust."
        )
    return Section(
        "The broker",
        "broker",
        [
            (
                "`python -m benchmarks.load --report docs/performance.md` wrote this section. Each load was put on "
                f"all brokers in turns, in one run, after a warm-up. The figures are medians of {rounds} rounds of "
                f"{seconds:g} s: messages per second, and microseconds of CPU of the broker's process for each "
                f"message. Bodies have 128 bytes where nothing else is said. Python {platform.python_version()} on "
                f"{platform.system()} {platform.machine()}. The load generator writes requests that were encoded "
                "before, on blocking sockets, and runs on the same machine. Apache's brokers have their default "
                "settings and run on an optimizing JVM with a heap of 1 GiB. A rate above 1× and CPU below 1× are "
                "in favour of streamkit."
            ),
            (
                "Signed sends go to brokers of their own, which check signatures and rights: by accounts of "
                "RocketMQ 4.9, on Apache 5.3.3 by its users and policies. Encrypted ones take a TLS connection to "
                "the same brokers."
            ),
        ],
        [
            Table(
                ["load", *servers, *(f"{servers[0]} / {other}: rate, CPU" for other in servers[1:])],
                rows,
            )
        ],
        Plot(
            "CPU of the broker for each message, µs (less is better)",
            [SCENARIOS[name].title for name in medians],
            {
                server: [figures[index].broker_cpu_us for figures in medians.values()]
                for index, server in enumerate(servers)
            },
        ),
        notes,
    )


def _cell(figures: Figures) -> str:
    cell = f"{figures.per_second:,.0f}/s · {figures.broker_cpu_us:.3g} µs"
    if figures.latency_p50_us:
        cell += f" · p50 {figures.latency_p50_us:.0f} µs, p99 {figures.latency_p99_us:.0f} µs"
    return cell


def _against(first: Figures, other: Figures) -> str:
    if first is other:
        return ""
    return (
        f"{first.per_second / other.per_second:.2f}× the rate, {first.broker_cpu_us / other.broker_cpu_us:.2f}× the CPU"
    )
