"""Several brokers as processes of one command, behind one name server."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import click
from msgspec.structs import replace

from rocket_broker.errors import BrokerError, SettingError
from rocket_broker.process.broker_options import BrokerOptions
from rocket_broker.process.console_beside import CONSOLE, ConsolePlace, console_command
from rocket_broker.process.name_server_beside import NAME_SERVER_PORT, name_server_beside
from rocket_broker.process.service import allow_files, log_to_terminal, start_name_server
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.several_brokers import check_several, settings_of_number, stores_without_broker
from rocket_remoting.session.address import format_address, parse_address
from streamkit.processes.supervised_process import SupervisedProcess
from streamkit.processes.supervisor import Plan, Supervisor

__all__ = ["SeveralBrokers"]

logger = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 90.0
"""Seconds for which a broker may take to stop, such as to flush a large store; a kill loses nothing acknowledged."""


class _Serving(NamedTuple):
    """A broker that serves, as the command prints it."""

    name: str
    address: str
    store: str
    pid: int | None


class SeveralBrokers:
    """The brokers of one command, their name server if no other one is named, and their console if it is asked for.

    Attributes:
        settings: The settings of each broker.

    Raises:
        BrokerError: The settings are wrong, or do not allow several brokers.
        click.UsageError: A port is given for a name server that the command does not start.
    """

    def __init__(
        self,
        options: BrokerOptions,
        processes: int,
        name_server_port: int | None,
        console: ConsolePlace | None = None,
    ) -> None:
        """Read the settings.

        Args:
            options: The options that are settings of the brokers.
            processes: The number of brokers.
            name_server_port: The port of the name server that is started with them; None for the usual one.
            console: Where the console listens that is started with them; None for no console.
        """
        self._options = options
        self._console = console
        self._processes = processes
        self._common = options.settings()
        self._starts_name_server = not self._common.namesrv_addr
        self._name_server = ""
        self._name_server_port = NAME_SERVER_PORT if name_server_port is None else name_server_port
        if name_server_port is not None and not self._starts_name_server:
            raise click.UsageError(
                f"--name-server-port is for a name server that the command starts, but {self._common.namesrv_addr} is "
                f"named by {self._common.origins['namesrvAddr']}"
            )
        check_several(self._common)
        if self._starts_name_server:
            _check_open(self._common)
        self.settings = self._settings()

    def _settings(self) -> Sequence[BrokerSettings]:
        """Return the settings of each broker.

        Raises:
            BrokerError: The settings are wrong.
        """
        return [self._options_of(number).settings() for number in range(self._processes)]

    def run(self, *, as_json: bool) -> int:
        """Run the brokers until a signal; return 0, or the exit code of the first one that failed for good.

        systemd is notified when all brokers serve, and when the stop begins.

        Args:
            as_json: Whether to print the brokers as JSON when all serve, and not as a table.

        Raises:
            BrokerError: The name server cannot start.
        """
        log = log_to_terminal(as_json=self._common.log_format == "json")
        allow_files()
        for path in stores_without_broker(self._common, self._processes):
            logger.warning(
                "no broker of --processes %d has the store %s: its messages are not served", self._processes, path
            )

        async def supervise() -> int:
            async with log.minutes(), AsyncExitStack() as running:
                if self._starts_name_server:
                    self._name_server = await self._start_name_server(running)
                plan = Plan(
                    self._commands,
                    BrokerError,
                    on_started=lambda processes: self._print(processes, as_json),
                    stop_timeout=STOP_TIMEOUT,
                )
                return await Supervisor(plan).run()

        return asyncio.run(supervise())

    def _options_of(self, number: int) -> BrokerOptions:
        return replace(self._options, own=settings_of_number(self._common, number))

    async def _start_name_server(self, running: AsyncExitStack) -> str:
        """Start the name server; return the address at which brokers and clients reach it."""
        settings = name_server_beside(self._common, self._options.entries(), self._name_server_port)
        address = await start_name_server(settings, running, beside_broker=True)
        return format_address((self._common.advertised_host, parse_address(address)[1]))

    def _commands(self) -> Mapping[str, Sequence[str]]:
        """Return the arguments to Python for each broker, made of the present settings file.

        Raises:
            BrokerError: The file cannot be read, its settings are wrong, or the brokers would have other names.
        """
        common = self._options.settings()
        if common.broker_name != self._common.broker_name:
            origin = common.origins.get("brokerName", DEFAULT_ORIGIN)
            reason = f"the name of running brokers is {self._common.broker_name} and cannot change: restart the command"
            raise SettingError("brokerName", common.broker_name, origin, reason)
        check_several(common)
        self._common = common
        self.settings = self._settings()
        commands = {f"Broker {each.broker_name}": self._command(number) for number, each in enumerate(self.settings)}
        if self._console is not None:
            commands[CONSOLE] = console_command(self._console, self._name_server or common.namesrv_addr, common)
        return commands

    def _command(self, number: int) -> Sequence[str]:
        config, name_servers = self._options.config, self._name_server or self._options.name_servers
        own = settings_of_number(self._common, number)
        return [
            *("-m", "rocket_broker.process"),
            *(() if config is None else ("-c", str(config))),
            *(() if name_servers is None else ("-n", name_servers)),
            *(argument for key, value in own.items() for argument in ("--set", f"{key}={value}")),
        ]

    def _print(self, processes: Sequence[SupervisedProcess], as_json: bool) -> None:
        name_servers = self._name_server or self._common.namesrv_addr
        serving = [
            _Serving(settings.broker_name, process.report, str(settings.store_path_root_dir), process.pid)
            for settings, process in zip(self.settings, processes[: len(self.settings)], strict=True)
        ]
        console = processes[-1].report if self._console is not None else None
        if as_json:
            printed = {"nameServers": name_servers, "brokers": [each._asdict() for each in serving]}
            click.echo(json.dumps(printed if console is None else {**printed, "console": console}))
            return
        if sys.stdout.isatty():
            _print_table(name_servers, serving)
        else:
            click.echo(f"Name servers {name_servers}")
            for each in serving:
                click.echo(f"{each.name} at {each.address}, store {each.store}, process {each.pid}")
        if console is not None:
            click.echo(f"Console at {console}")


def _check_open(common: BrokerSettings) -> None:
    """Check that the brokers need no name server with access control.

    Raises:
        SettingError: They do.
    """
    for key, is_on in (("aclEnable", common.acl_enable), ("authenticationEnabled", common.checks_users)):
        if is_on:
            origin = common.origins.get(key, DEFAULT_ORIGIN)
            reason = "the name server that --processes starts checks no requests: start one, and name it by namesrvAddr"
            raise SettingError(key, "true", origin, reason)


def _print_table(name_servers: str, serving: Iterable[_Serving]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("Broker", "Address", "Store", "Process", title=f"Name servers {name_servers}", title_justify="left")
    for name, address, store, pid in serving:
        table.add_row(name, address, store, str(pid))
    Console().print(table)
