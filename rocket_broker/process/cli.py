"""The commands ``streamkit namesrv`` and ``streamkit broker``, which read the files of mqnamesrv and mqbroker.

This module has their options and texts. The broker is imported when one of them runs, so that their help is fast.
"""

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import click

__all__ = ["broker", "namesrv"]

_config = click.option("-c", "--config", type=click.Path(path_type=Path), help="Settings file with Apache's keys.")
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
    from rocket_broker.process.launch import launch_name_server

    launch_name_server(config, port, print_config=print_config, as_json=as_json)


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
        return {entry.name: entry for entry in entry_points(group=self.COMMANDS)}


@click.group(cls=BrokerGroup, invoke_without_command=True, subcommand_metavar="[COMMAND]")
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
@click.pass_context
def broker(
    context: click.Context,
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

    The commands administer brokers that run.
    """
    if context.invoked_subcommand is not None:
        return
    _expect_printing(print_config, as_json)
    from rocket_broker.process.launch import launch_broker

    launch_broker(config, name_servers, port, name_server_port, store, print_config=print_config, as_json=as_json)


def _expect_printing(print_config: bool, as_json: bool) -> None:
    """Check that --json comes with --print-config, so that it does not start a server."""
    if as_json and not print_config:
        raise click.UsageError("--json needs --print-config")
