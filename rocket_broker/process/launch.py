"""What ``streamkit namesrv`` and ``streamkit broker`` do: read the settings, then print them or start the servers."""

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
from rocket_broker.settings.tls_settings import DEFAULT_TLS_FILE, name_server_entries
from rocket_broker.store.errors import StoreError

__all__ = ["launch_broker", "launch_name_server"]

DEFAULT_STORE = Path(".streamkit")
NAME_SERVER_PORT = 9876
NAMESRV_ADDR = "NAMESRV_ADDR"
ROCKETMQ_HOME = "ROCKETMQ_HOME"


def launch_name_server(config: Path | None, port: int | None, *, print_config: bool, as_json: bool) -> None:
    """Run a name server until a signal, or print its settings; the arguments are those of the command.

    Raises:
        click.ClickException: The settings are wrong, or the server cannot start.
    """
    with _clear_errors():
        entries = [*_tls_file(), *_installation(), *(read_properties(config) if config is not None else [])]
        if port is not None:
            entries.append(Entry("listenPort", str(port), "option -p"))
        settings = NameServerSettings.from_entries(entries)
        settings.source = settings.config_store_path or config
        if print_config:
            _print_settings(settings, as_json)
        else:
            from rocket_broker.process.service import run

            run(settings, None)


def launch_broker(
    config: Path | None,
    name_servers: str | None,
    port: int | None,
    name_server_port: int | None,
    store: Path | None,
    *,
    print_config: bool,
    as_json: bool,
) -> None:
    """Run a broker until a signal, or print its settings; the arguments are those of the command.

    Raises:
        click.ClickException: The options or the settings are wrong, or the broker cannot start.
    """
    with _clear_errors():
        alone = config is None and name_servers is None and NAMESRV_ADDR not in os.environ
        if name_server_port is not None and not alone:
            raise click.UsageError(
                "--name-server-port is for a broker that starts its own name server, so not with -c or -n"
            )
        beside = NAME_SERVER_PORT if name_server_port is None else name_server_port
        entries = [*_tls_file(), *_installation(), *(_broker_defaults(alone, beside) if config is None else [])]
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

            run(_name_server_beside(settings, entries, beside) if alone else None, settings)


def _installation() -> list[Entry]:
    """Return the setting that the environment variable ROCKETMQ_HOME stands for."""
    home = os.environ.get(ROCKETMQ_HOME)
    return [Entry("rocketmqHome", home, f"environment variable {ROCKETMQ_HOME}")] if home else []


def _broker_defaults(alone: bool, name_server_port: int) -> list[Entry]:
    """Return the settings without a settings file: sizes for a developer's machine, and a store in this directory."""
    keys = SMALL_STORE | {"storePathRootDir": str(DEFAULT_STORE)}
    if alone:
        keys["namesrvAddr"] = f"{LOOPBACK}:{name_server_port}"
    return entries_of(keys, "streamkit broker without -c")


def _tls_file() -> list[Entry]:
    """Return the setting that names Apache's usual file of TLS settings, if there is such a file."""
    if not os.access(DEFAULT_TLS_FILE, os.R_OK):
        return []
    return [Entry("tls.config.file", str(DEFAULT_TLS_FILE), DEFAULT_ORIGIN)]


def _name_server_beside(broker_settings: BrokerSettings, entries: list[Entry], port: int) -> NameServerSettings:
    keys = {
        "listenPort": str(port),
        "kvConfigPath": str(broker_settings.store_path_root_dir / "namesrv" / "kvConfig.json"),
        "orderMessageEnable": "true",
    }
    own = entries_of(keys, "streamkit broker without -c")
    return NameServerSettings.from_entries([*own, *name_server_entries(entries)])


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn expected errors into one sentence; a traceback is for defects of this program."""
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
