"""`python -m benchmarks.peers`: measure streamkit beside other systems, and write the sections of the page."""

from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks.brokers import have_java
from benchmarks.page import Section, console_tables, write_section
from benchmarks.peers import broker_parts, client, in_memory, listener
from benchmarks.peers.run import Run
from benchmarks.peers.servers import SERVERS, missing

PARTS: dict[str, Callable[[Run], Section]] = {
    "client": client.measure,
    "listener": listener.measure,
    "kafka": listener.measure_kafka,
    "in-memory": in_memory.measure,
    "start": broker_parts.measure_start,
    "growth": broker_parts.measure_growth,
    "flush": broker_parts.measure_flush,
    "backlog": broker_parts.measure_backlog,
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="Only these parts.")
@click.option("--rounds", default=3, show_default=True, help="Rounds; the median of each figure counts.")
@click.option("--seconds", default=1.0, show_default=True, help="Seconds of each measurement; backlogs grow with it.")
@click.option("--backlog", default=1_000_000, show_default=True, help="Messages of the large backlog and store.")
@click.option("--without", multiple=True, type=click.Choice(list(SERVERS)), help="Leave out these servers.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the sections.")
def main(
    *, only: tuple[str, ...], rounds: int, seconds: float, backlog: int, without: tuple[str, ...], report: Path | None
) -> None:
    """Measure clients, listeners and binders beside other systems', each on its own server, in turns."""
    console = Console(stderr=True)
    absent = {name.partition("-")[0].lower() for name in missing()} | {name.lower() for name in without}
    absent |= set() if have_java() else {"kafka"}
    servers = [name for name in SERVERS if name.lower() not in absent]
    if len(servers) < len(SERVERS):
        console.print(f"left out: {', '.join(name for name in SERVERS if name not in servers)}")
    with console.status("starting ...") as status:
        say = status.update if console.is_terminal else console.print
        run = Run(rounds, seconds, backlog, servers, say)
        for name in only or PARTS:
            section = PARTS[name](run)
            for table in console_tables(section):
                console.print(table)
            if report is not None:
                write_section(report, section)


if __name__ == "__main__":
    main()
