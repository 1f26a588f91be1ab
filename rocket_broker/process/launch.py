"""What ``streamkit namesrv`` and ``streamkit broker`` do: read the settings, then print them or start the servers.

Each function imports what its servers need: a name server needs nothing of a broker.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocket_broker.errors import BrokerError
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN, ApacheSettings, SettingRow

if TYPE_CHECKING:
    from rocket_broker.process.broker_options import BrokerOptions
    from rocket_broker.process.console_beside import ConsolePlace

__all__ = ["launch_broker", "launch_name_server", "launch_one_of_several", "launch_several"]


def launch_name_server(
    config: Path | None, port: int | None, *, log_format: str | None, print_config: bool, as_json: bool
) -> None:
    """Run a name server until a signal, or print its settings; the arguments are those of the command.

    Raises:
        click.ClickException: The settings are wrong, or the server cannot start.
    """
    from rocket_broker.namesrv.settings import NameServerSettings
    from rocket_broker.process.machine_settings import settings_of_machine
    from rocket_broker.settings.properties_file import Entry, read_properties

    with _clear_errors():
        entries = [*settings_of_machine(), *(read_properties(config) if config is not None else [])]
        if port is not None:
            entries.append(Entry("listenPort", str(port), "option -p"))
        if log_format is not None:
            entries.append(Entry("logFormat", log_format, "option --log-format"))
        settings = NameServerSettings.from_entries(entries)
        settings.source = settings.config_store_path or config
        if print_config:
            _print_settings(settings, as_json)
        else:
            from rocket_broker.process.service import run

            run(settings, None)


def launch_broker(
    options: "BrokerOptions",
    name_server_port: int | None,
    *,
    console: "ConsolePlace | None",
    print_config: bool,
    as_json: bool,
) -> None:
    """Run a broker until a signal, or print its settings.

    Args:
        options: The options that are settings of the broker.
        name_server_port: The port of the name server that is started with the broker.
        console: Where the console listens that is started beside the broker; None for no console.
        print_config: Whether to print the settings instead.
        as_json: Whether to print them as JSON.

    Raises:
        click.ClickException: The options or the settings are wrong, or the broker cannot start.
    """
    from rocket_broker.process.name_server_beside import NAME_SERVER_PORT, name_server_beside
    from rocket_broker.settings.server_settings import LOOPBACK
    from rocket_broker.store.errors import StoreError

    with _clear_errors(StoreError):
        if name_server_port is not None and not options.is_alone:
            raise click.UsageError(
                "--name-server-port is for a broker that starts its own name server, so not with -c or -n"
            )
        beside = NAME_SERVER_PORT if name_server_port is None else name_server_port
        name_server = f"{LOOPBACK}:{beside}" if options.is_alone else ""
        settings = options.settings(name_server)
        if print_config:
            _print_settings(settings, as_json)
        else:
            from rocket_broker.process.service import run

            entries = options.entries(name_server)
            beside_broker = name_server_beside(settings, entries, beside) if options.is_alone else None
            run(beside_broker, settings, console=console)


def launch_several(
    options: "BrokerOptions",
    processes: int,
    name_server_port: int | None,
    *,
    console: "ConsolePlace | None",
    print_config: bool,
    as_json: bool,
) -> None:
    """Run several brokers until a signal, or print their settings.

    Args:
        options: The options that are settings of the brokers.
        processes: The number of brokers.
        name_server_port: The port of the name server that is started with them.
        console: Where the console listens that is started with them; None for no console.
        print_config: Whether to print the settings instead.
        as_json: Whether to print the settings, or the brokers that run, as JSON.

    Raises:
        click.ClickException: The options or the settings are wrong, or a broker cannot start.
        click.exceptions.Exit: A broker could not start, or did not stop in order.
    """
    from rocket_broker.process.several import SeveralBrokers
    from rocket_broker.store.errors import StoreError

    with _clear_errors(StoreError):
        brokers = SeveralBrokers(options, processes, name_server_port, console)
        if print_config:
            _print_several({settings.broker_name: settings for settings in brokers.settings}, as_json)
            return
        code = brokers.run(as_json=as_json)
    if code:
        raise click.exceptions.Exit(code)


def launch_one_of_several(options: "BrokerOptions") -> None:
    """Run one broker of several until its supervisor, or a signal, ends it.

    Raises:
        click.ClickException: The settings are wrong, or the broker cannot start.
    """
    from rocket_broker.process.service import run
    from rocket_broker.store.errors import StoreError
    from streamkit.processes.supervisor_line import SupervisorLine

    with _clear_errors(StoreError):
        run(None, options.settings(), SupervisorLine.from_environment())


@contextmanager
def _clear_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn expected errors into one sentence: `BrokerError` and these kinds. Tracebacks are for defects."""
    expected: tuple[type[Exception], ...] = (BrokerError, *kinds)
    try:
        yield
    except expected as e:
        raise click.ClickException(str(e)) from e


def _print_settings(settings: ApacheSettings, as_json: bool) -> None:
    rows = settings.rows()
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows], indent=1))
    elif sys.stdout.isatty():
        _print_table(rows)
    else:
        for row in rows:
            click.echo(f"{row.key}={row.value}\t# {row.origin}")
    for warning in settings.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _print_several(several: Mapping[str, ApacheSettings], as_json: bool) -> None:
    if as_json:
        rows = {name: [row._asdict() for row in settings.rows()] for name, settings in several.items()}
        click.echo(json.dumps(rows, indent=1))
        return
    for name, settings in several.items():
        click.echo(f"# {name}")
        _print_settings(settings, as_json=False)


def _print_table(rows: list[SettingRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("Setting", "Value", "Origin", "Meaning")
    for row in rows:
        style = "dim" if row.origin == DEFAULT_ORIGIN else ""
        table.add_row(row.key, row.value, row.origin, row.description, style=style)
    Console().print(table)
