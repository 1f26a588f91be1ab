"""The commands ``streamkit namesrv`` and ``streamkit broker``: as mqnamesrv and mqbroker, from the same files."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rocket_broker.errors import BrokerError
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN, ApacheSettings, SettingRow
from rocket_broker.settings.broker_settings import LOOPBACK, SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import Entry, entries_of, read_properties
from rocket_broker.store.errors import StoreError

__all__ = ["broker", "namesrv"]

DEFAULT_STORE = Path(".streamkit")
NAME_SERVER_PORT = 9876
NAMESRV_ADDR = "NAMESRV_ADDR"

_config = click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="Settings file with Apache's keys."
)
_print_config = click.option(
    "-m", "--print-config", is_flag=True, help="Print the effective settings and their origins, and exit."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="With --print-config: as JSON.")


@click.command()
@_config
@click.option("-p", "--port", type=int, help="Port to listen on, 9876 by default; 0 takes a free one.")
@_print_config
@_as_json
def namesrv(*, config: Path | None, port: int | None, print_config: bool, as_json: bool) -> None:
    """Start a RocketMQ name server.

    It listens on loopback unless bindAddress in the settings file says otherwise.
    """
    _expect_printing(print_config, as_json)
    with _clear_errors():
        entries = read_properties(config) if config is not None else []
        if port is not None:
            entries.append(Entry("listenPort", str(port), "option -p"))
        settings = NameServerSettings.from_entries(entries)
        settings.source = settings.config_store_path or config
        if print_config:
            _print_settings(settings, as_json)
        else:
            from rocket_broker.process.service import run

            run(settings, None)


@click.command()
@_config
@click.option("-n", "--namesrv", "name_servers", help="Name servers to register with: host:port;host:port")
@click.option("-p", "--port", type=int, help="Port to listen on, 10911 by default; 0 takes a free one.")
@click.option(
    "--name-server-port",
    type=int,
    help="Without -c and -n: port of the name server, 9876 by default; 0 takes a free one.",
)
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the store.")
@_print_config
@_as_json
def broker(
    *,
    config: Path | None,
    name_servers: str | None,
    port: int | None,
    name_server_port: int | None,
    store: Path | None,
    print_config: bool,
    as_json: bool,
) -> None:
    """Start a RocketMQ broker; without -c and -n, a name server beside it.

    Without -c and -n both listen on loopback only, the name server on port 9876 and the broker on 10911, and
    the store is in ./.streamkit. The environment variable NAMESRV_ADDR counts as -n.
    """
    _expect_printing(print_config, as_json)
    with _clear_errors():
        alone = config is None and name_servers is None and NAMESRV_ADDR not in os.environ
        if name_server_port is not None and not alone:
            raise click.UsageError(
                "--name-server-port is for a broker that starts its own name server: without -c and -n"
            )
        beside = NAME_SERVER_PORT if name_server_port is None else name_server_port
        entries = _broker_defaults(alone, beside) if config is None else []
        if NAMESRV_ADDR in os.environ:
            origin = f"environment variable {NAMESRV_ADDR}"
            entries.append(Entry("namesrvAddr", os.environ[NAMESRV_ADDR], origin))
        if config is not None:
            entries += read_properties(config)
        for key, value, option in (
            ("namesrvAddr", name_servers, "-n"),
            ("listenPort", port, "-p"),
            ("storePathRootDir", store, "--store"),
        ):
            if value is not None:
                entries.append(Entry(key, str(value), f"option {option}"))
        settings = BrokerSettings.from_entries(entries)
        settings.source = config
        if print_config:
            _print_settings(settings, as_json)
        else:
            from rocket_broker.process.service import run

            run(_name_server_beside(settings, beside) if alone else None, settings)


def _broker_defaults(alone: bool, name_server_port: int) -> list[Entry]:
    """Return what holds without a settings file: sizes for a developer's machine, a store in this directory."""
    keys = SMALL_STORE | {"storePathRootDir": str(DEFAULT_STORE)}
    if alone:
        keys["namesrvAddr"] = f"{LOOPBACK}:{name_server_port}"
    return entries_of(keys, "streamkit broker without -c")


def _name_server_beside(broker_settings: BrokerSettings, port: int) -> NameServerSettings:
    keys = {
        "listenPort": str(port),
        "kvConfigPath": str(broker_settings.store_path_root_dir / "namesrv" / "kvConfig.json"),
        "orderMessageEnable": "true",
    }
    return NameServerSettings.from_entries(entries_of(keys, "streamkit broker without -c"))


def _expect_printing(print_config: bool, as_json: bool) -> None:
    """Refuse to start a server for somebody who wants to read its settings."""
    if as_json and not print_config:
        raise click.UsageError("--json is for --print-config, which is not asked for")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Show what went wrong as one sentence; a traceback is for mistakes of ours."""
    try:
        yield
    except (BrokerError, StoreError) as e:
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


def _print_table(rows: list[SettingRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("Setting", "Value", "Origin", "Meaning")
    for row in rows:
        style = "dim" if row.origin == DEFAULT_ORIGIN else ""
        table.add_row(row.key, row.value, row.origin, row.description, style=style)
    Console().print(table)
