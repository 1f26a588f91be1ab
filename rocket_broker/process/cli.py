"""The commands ``streamkit namesrv`` and ``streamkit broker``, which read the files of mqnamesrv and mqbroker.

This module has their options and texts. The broker is imported when one of them runs, so that their help is fast.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streamkit.entry_points import EntryPoint, offers_of

if TYPE_CHECKING:
    from rocket_broker.process.console_beside import ConsolePlace

__all__ = ["broker", "namesrv"]

CONSOLE_PORT: Final = "8090"
MOST_PROCESSES: Final = 256
"""More than a machine has cores; each process takes ten ports."""

_config = click.option("-c", "--config", type=click.Path(path_type=Path), help="Settings file with Apache's keys.")
_print_config = click.option(
    "-m", "--print-config", is_flag=True, help="Print the effective settings and their origins, and exit."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="With --print-config: as JSON.")
_broker_as_json = click.option(
    "--json", "as_json", is_flag=True, help="With --print-config or --processes: print the settings or brokers as JSON."
)
_log_format = click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Format of the log: text (default) or JSON."
)


@click.command()
@_config
@click.option("-p", "--port", type=int, help="Port to listen on, 9876 by default; 0 takes a free one.")
@_print_config
@_log_format
@_as_json
def namesrv(
    *, config: Path | None, port: int | None, print_config: bool, as_json: bool, log_format: str | None
) -> None:
    """Start a RocketMQ name server.

    It listens on loopback unless bindAddress in the settings file says otherwise.
    """
    _expect_printing(print_config, as_json)
    from rocket_broker.process.launch import launch_name_server

    launch_name_server(config, port, log_format=log_format, print_config=print_config, as_json=as_json)


class BrokerGroup(click.Group):
    """A command that starts a broker; its subcommands, which administer running ones, are entry points of others."""

    COMMANDS: Final = "streamkit.commands.broker"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return sorted(self._entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand and return it; None if there is none of this name."""
        entry = self._entries().get(cmd_name)
        command = None if entry is None else entry.load()
        return command if isinstance(command, click.Command) else None

    def _entries(self) -> dict[str, EntryPoint]:
        return {name: entries[0] for name, entries in offers_of(self.COMMANDS).items()}


@click.group(cls=BrokerGroup, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@_config
@click.option("-n", "--namesrv", "name_servers", help="Name servers to register with: host:port;host:port")
@click.option("-p", "--port", type=int, help="Port to listen on, 10911 by default; 0 takes a free one.")
@click.option(
    "--name-server-port",
    type=int,
    help="Port of the name server, if the command starts one: 9876 by default; 0 takes a free one.",
)
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the store.")
@click.option(
    "--processes",
    type=click.IntRange(min=1, max=MOST_PROCESSES),
    help="Start this many brokers, each as a process with its own port and store.",
)
@click.option(
    "--console",
    is_flag=False,
    flag_value=CONSOLE_PORT,
    metavar="[[ADDRESS:]PORT]",
    help=f"Start `streamkit console` beside the broker, on loopback at port {CONSOLE_PORT} unless a place is given.",
)
@_print_config
@_log_format
@_broker_as_json
@click.pass_context
def broker(
    context: click.Context,
    *,
    config: Path | None,
    name_servers: str | None,
    port: int | None,
    name_server_port: int | None,
    store: Path | None,
    processes: int | None,
    console: str | None,
    print_config: bool,
    as_json: bool,
    log_format: str | None,
) -> None:
    """Start a RocketMQ broker; without -c and -n, a name server beside it.

    Without -c and -n both listen on loopback only, the name server on port 9876 and the broker on 10911, and
    the store is in ./.streamkit. The environment variable NAMESRV_ADDR counts as -n.

    With --processes, brokers of one cluster share the load: broker-a-0 on 10911, broker-a-1 on 10921 and so on, each
    with its own store in the directory of the store. Unless -n names a name server, one is started with them.

    With --console, a separate process serves web pages about the cluster. At an address other than loopback they
    require a password, as with `streamkit console`: $STREAMKIT_CONSOLE_OPERATOR_PASSWORD.

    The commands administer running brokers.
    """
    if context.invoked_subcommand is not None:
        return
    if processes is None:
        _expect_printing(print_config, as_json)
    from rocket_broker.process.broker_options import BrokerOptions
    from rocket_broker.process.launch import launch_broker, launch_several

    options = BrokerOptions(config, name_servers, port, store, log_format)
    if sys.platform == "win32" and (processes is not None or console is not None):
        raise click.ClickException("--processes and --console need POSIX signals, which Windows does not have")
    place = None if console is None else _console_place(console)
    if processes is None:
        launch_broker(options, name_server_port, console=place, print_config=print_config, as_json=as_json)
    else:
        launch_several(options, processes, name_server_port, console=place, print_config=print_config, as_json=as_json)


def _console_place(text: str) -> "ConsolePlace":
    from rocket_broker.process.console_beside import ConsolePlace

    try:
        return ConsolePlace.parse(text)
    except ValueError as error:
        raise click.UsageError(f"--console: {error}") from None


def _expect_printing(print_config: bool, as_json: bool) -> None:
    """Check that --json comes with --print-config, so that it does not start a server."""
    if as_json and not print_config:
        raise click.UsageError("--json needs --print-config")
