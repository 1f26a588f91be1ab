"""The command ``streamkit wire``, which shows what clients and servers say to each other."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rocket_admin.commands.connection_options import found_cluster, name_server_option
from rocket_admin.commands.output import Output, json_option
from streamkit.printable_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocket_admin.wire.conversation import ExplainedCommand, Unreadable

__all__ = ["wire"]


@click.command()
@name_server_option
@click.option(
    "--read",
    "capture",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Show the commands in a capture of tcpdump or Wireshark (pcap or pcapng; - is standard input) instead.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port for clients; by default a free one.")
@click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="Show only requests with this name and their responses; NAME may have `*`, as in 'SEND_*'. Repeatable.",
)
@click.option("--bodies", is_flag=True, help="Show the beginning of the bodies, which may be private.")
@json_option
@click.pass_context
def wire(
    context: click.Context,
    *,
    name_servers: str | None,
    capture: str | None,
    host: str,
    port: int,
    patterns: tuple[str, ...],
    bodies: bool,
    output: Output,
) -> None:
    """Show each command between clients and a RocketMQ cluster, with names instead of numbers.

    Start your client with the printed address as its name server. The proxy passes everything on, also between the
    client and the brokers. Ctrl-C ends it.

    With --read, no proxy is needed: the commands come from a file, such as the output of

    \b
        tcpdump -i any -s 0 -w shop.pcap 'tcp port 9876 or tcp port 10911'
    """

    def show(seen: "ExplainedCommand | Unreadable") -> None:
        from rocket_admin.wire.conversation import Unreadable

        if not isinstance(seen, Unreadable) and not _is_wanted(seen, patterns):
            return
        if output.as_json:
            output.json(seen)
        elif isinstance(seen, Unreadable):
            click.secho(_line_of_unreadable(seen), fg="yellow")
        else:
            click.echo(_line(seen))

    try:
        if capture is None:
            _proxy(
                found_cluster(name_servers, "--name-server").name_servers, show, host, port, output, shows_bodies=bodies
            )
            return
        for name in ("name_servers", "host", "port"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError("--read needs no proxy: leave --name-server, --host and --port out")
        _read(capture, show, output, shows_bodies=bodies)
    except KeyboardInterrupt:
        pass


def _proxy(
    name_servers: str,
    show: "Callable[[ExplainedCommand | Unreadable], None]",
    host: str,
    port: int,
    output: Output,
    *,
    shows_bodies: bool,
) -> None:
    """Show what passes through a proxy until Ctrl-C."""
    import asyncio

    from rocket_admin.wire.proxy import WireProxy
    from rocket_remoting.wire.errors import ConnectError

    (name_server, *others) = name_servers.split(";")
    if others:
        output.warn(f"Only the first name server is used: {name_server}")

    async def serve() -> None:
        async with WireProxy(name_server, show, host=host, port=port, shows_bodies=shows_bodies) as proxy:
            click.secho(
                f"Clients with name server {proxy.address} reach {name_server} through this proxy. Ctrl-C ends it.",
                err=True,
            )
            await asyncio.Event().wait()

    try:
        asyncio.run(serve())
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except ConnectError as error:
        raise click.ClickException(str(error)) from error


def _read(
    capture: str, show: "Callable[[ExplainedCommand | Unreadable], None]", output: Output, *, shows_bodies: bool
) -> None:
    """Show the commands in a capture."""
    from rocket_admin.wire.capture import Capture
    from rocket_admin.wire.capture_file import CaptureFileError

    try:
        with click.open_file(capture, "rb") as file:
            read = Capture(file, shows_bodies=shows_bodies)
            for seen in read.commands():
                show(seen)
    except CaptureFileError as error:
        raise click.ClickException(f"{capture}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{capture} cannot be read: {error.strerror}") from error
    for note in read.notes:
        output.warn(f"{capture}: {note}")


def _is_wanted(command: "ExplainedCommand", patterns: tuple[str, ...]) -> bool:
    name = command.answers or command.name
    return not patterns or any(fnmatchcase(name, pattern.upper()) for pattern in patterns)


def _line(command: "ExplainedCommand") -> str:
    colour = "red" if command.failed else "green" if command.kind == "response" else "cyan"
    about = f" to {command.answers} in {command.milliseconds:g} ms" if command.answers is not None else ""
    one_way = " (one-way)" if command.kind == "one-way request" else ""
    facts = [f"{name}={_shown(value)}" for name, value in command.fields.items()]
    if command.remark:
        facts.append(f"remark={command.remark!r}")
    if command.body is not None:
        facts.append(f"body: {printable(command.body)} ({command.size:,} bytes)")
    name = click.style(command.name, fg=colour, bold=True)
    return f"{_begin(command)} {name} #{command.opaque}{one_way}{about}  {'  '.join(facts)}".rstrip()


def _line_of_unreadable(seen: "Unreadable") -> str:
    follows = "what follows can be read again" if seen.goes_on else "nothing that follows is shown"
    return f"{_begin(seen)} cannot be read: {seen.reason}; {follows}"


def _begin(seen: "ExplainedCommand | Unreadable") -> str:
    time = f"{seen.time.astimezone():%H:%M:%S.%f}"[:-3]
    return f"{time} {seen.connection}{'→' if seen.by_client else '←'}{seen.server}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={printable(str(text))}" for name, text in value.items()) + "}"
    return printable(str(value))
