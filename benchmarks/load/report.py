"""The figures as tables and a plot: medians, and how many times the first broker's they are."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from rich.table import Table

from benchmarks.load.scenarios import SCENARIOS, Figures

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["WITHOUT", "console_table", "write_page"]

WITHOUT = "without the native core"
"""The name of this checkout's broker without the native core."""

Medians = Mapping[str, Sequence[Figures]]
"""For each scenario, the figures of each broker."""

_COLORS = ("#1f6feb", "#8b949e", "#d29922", "#a371f7")


def console_table(servers: Sequence[str], medians: Medians) -> Table:
    """Return the table for a terminal."""
    table = Table(title="messages/s · CPU of the broker for each message", title_justify="left")
    table.add_column("")
    for server in servers:
        table.add_column(server, justify="right")
    for name, figures in medians.items():
        table.add_row(SCENARIOS[name].title, *(_cell(one) for one in figures))
        if len(servers) > 1:
            table.add_row("", *(_against(figures[0], one) for one in figures), style="dim")
    return table


def write_page(page: Path, servers: Sequence[str], medians: Medians, *, rounds: int, seconds: float) -> None:
    """Write the page in Markdown, and a plot with its name and the ending ``.svg``."""
    plot = page.with_suffix(".svg")
    _plot(plot, servers, medians)
    page.write_text("\n".join(_lines(page, plot, servers, medians, rounds, seconds)) + "\n")


def _lines(  # noqa: PLR0917 - one call
    page: Path, plot: Path, servers: Sequence[str], medians: Medians, rounds: int, seconds: float
) -> list[str]:
    head = ["load", *servers, *(f"{servers[0]} / {other}: rate, CPU" for other in servers[1:])]
    lines = [
        "# Performance",
        "",
        "`python -m benchmarks.load --report docs/performance.md` wrote this page. Each load was put on all brokers",
        f"in turns, in one run, after a warm-up. The figures are medians of {rounds} rounds of {seconds:g} s: messages",
        "per second, and microseconds of CPU of the broker's process for each message. Compare ratios; rates depend",
        f"on the machine. Bodies have 128 bytes where nothing else is said. Python {platform.python_version()} on",
        f"{platform.system()} {platform.machine()}. The load generator writes requests that were encoded before, on",
        "blocking sockets, and runs on the same machine. Apache's brokers have their default settings and run on an",
        "optimizing JVM with a heap of 1 GiB. A rate above 1× and CPU below 1× are in favour of streamkit.",
        "Signed sends go to brokers of their own, which check signatures and rights: by accounts of RocketMQ 4.9, on",
        "Apache 5.3.3 by its users and policies. Encrypted ones take a TLS connection to the same brokers.",
        "",
        f"![CPU of the brokers for each message]({plot.name})",
        "",
        f"| {' | '.join(head)} |",
        f"|---{'|--:' * (len(head) - 1)}|",
    ]
    for name, figures in medians.items():
        ours = figures[0]
        ratios = (
            f"{ours.per_second / other.per_second:.2f}×, {ours.broker_cpu_us / other.broker_cpu_us:.2f}×"
            for other in figures[1:]
        )
        lines.append(f"| {SCENARIOS[name].title} | {' | '.join([*map(_cell, figures), *ratios])} |")
    busiest = max(figure.own_cpu_share for figures in medians.values() for figure in figures)
    if WITHOUT in servers:
        lines += [
            "",
            "## The native core",
            "",
            f"The first column is the broker with the native core (`make native`), *{WITHOUT}* the same broker",
            "with `STREAMKIT_NATIVE=0`. [Architecture](architecture.md#the-broker) says what the core does, and why it",
            "is in Rust.",
        ]
    lines += ["", f"The load generator used at most {busiest:.0%} of a core."]
    return lines


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


def _plot(path: Path, servers: Sequence[str], medians: Medians) -> None:
    mpl.rcParams["svg.hashsalt"] = "streamkit"  # the same figures give the same file
    figure, axes = plt.subplots(figsize=(8, 0.6 * len(medians) + 1.2))
    height = 0.8 / len(servers)
    for index, server in enumerate(servers):
        places = [row + index * height for row in range(len(medians))]
        cpu = [figures[index].broker_cpu_us for figures in medians.values()]
        bars = axes.barh(places, cpu, height, label=server, color=_COLORS[index % len(_COLORS)])
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    middle = height * (len(servers) - 1) / 2
    axes.set_yticks([row + middle for row in range(len(medians))], [SCENARIOS[name].title for name in medians])
    axes.invert_yaxis()
    axes.set_xlabel("CPU of the broker for each message, µs (less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.1)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
