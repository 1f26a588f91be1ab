"""A name server or a broker as a process: it runs until a signal comes, and logs to the terminal."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from rocket_broker.errors import AddressInUse, StartError
from rocket_broker.process.bounded_log import MOST_CHARACTERS, BoundedLog, OneLine
from rocket_broker.settings.apache_settings import ApacheSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.native import has_native_core
from rocket_remoting.transports.tcp import TcpTransport
from streamkit.processes.signals import on_signals
from streamkit.service_manager import notify_progress, notify_ready, notify_stopping

if TYPE_CHECKING:
    from rocket_broker.namesrv.settings import NameServerSettings
    from rocket_broker.process.console_beside import ConsolePlace
    from rocket_broker.settings.broker_settings import BrokerSettings
    from streamkit.processes.supervisor_line import SupervisorLine

__all__ = ["allow_files", "log_to_terminal", "run", "start_name_server"]

logger = logging.getLogger(__name__)

SERIALIZE_TYPE = "JSON"

MOST_FILES = 65_536
"""More open files than the connections that a name server and a broker allow together."""

COLLECTED_AFTER = (2_000, 10, 100)
"""Thresholds of `gc.set_threshold`: new objects until a collection of the youngest, and collections of a generation
until one of the next."""


def run(
    name_server: "NameServerSettings | None",
    broker: "BrokerSettings | None",
    supervisor: "SupervisorLine | None" = None,
    console: "ConsolePlace | None" = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then stop in order; a second SIGTERM or SIGINT ends the process at once.

    systemd is notified while a broker reads a long commit log, when all servers serve, and when the stop begins. With
    a supervisor, the supervisor is notified instead, and the process stops when the supervisor is gone.

    Args:
        name_server: Settings of the name server to start; None for no name server.
        broker: Settings of the broker to start after the name server; None for no broker.
        supervisor: The line to the supervisor of several brokers; None if this process has none.
        console: Where the console listens that is started beside the broker; None for no console.

    Raises:
        BrokerError: A server cannot start.
        StoreError: The store is in use or damaged.
    """
    as_json = any(settings is not None and settings.log_format == "json" for settings in (broker, name_server))
    log = log_to_terminal(broker.broker_name if broker is not None and supervisor is not None else "", as_json=as_json)
    if supervisor is not None:
        supervisor.stop_with_supervisor()
    allow_files()
    if broker is not None:
        # Loaded now, so that the first send does not wait for it.
        logger.info("the native core is %s", "used" if has_native_core() else "not used: sends take more CPU")
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        runner.run(_serve(name_server, broker, log, supervisor, console))


async def _serve(
    name_server: "NameServerSettings | None",
    broker: "BrokerSettings | None",
    log: BoundedLog,
    supervisor: "SupervisorLine | None",
    console: "ConsolePlace | None",
) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    say = click.echo if supervisor is None else _say_nothing
    async with log.minutes(), AsyncExitStack() as running:
        running.enter_context(on_signals(lambda _: loop.call_soon_threadsafe(asked_to_stop.set)))
        if name_server is not None:
            address = await start_name_server(name_server, running, beside_broker=broker is not None)
            say(f"The Name Server boot success. serializeType={SERIALIZE_TYPE}, address {address}")
            if broker is not None:
                broker.namesrv_addr = address  # a free port is known only now
        served = ""
        if broker is not None:
            on_progress = notify_progress if supervisor is None else supervisor.report_progress
            served = await _start_broker(broker, running, on_progress)
            known_by = f" and name server is {broker.namesrv_addr}" if broker.namesrv_addr else ""
            say(f"The broker[{broker.broker_name}, {served}] boot success. serializeType={SERIALIZE_TYPE}{known_by}")
            if console is not None:
                from rocket_broker.process.console_beside import ConsoleBeside, console_command

                beside = ConsoleBeside(console, console_command(console, broker.namesrv_addr, broker))
                running.push_async_callback(beside.stop)
                say(f"The console is at {await beside.start()}")
        _collect_garbage_rarely()
        if not asked_to_stop.is_set():
            notify_ready()
            if supervisor is not None:
                supervisor.report_started(served)
        await asked_to_stop.wait()
        notify_stopping()
        say("Stopping ... (a second signal ends it at once)")
    say("Stopped.")


def _say_nothing(text: str) -> None:
    """Print nothing, because the supervisor prints the state of its brokers."""


def _collect_garbage_rarely() -> None:
    """Make full garbage collections a hundred times rarer, since all clients wait for them.

    Objects from the start are never examined again (`gc.freeze`), nor searched for garbage before: less than one in a
    hundred is garbage, and the first message would wait 20 ms for the search. A collection of young objects, most of
    which are garbage, takes 1 to 2 ms for 20,000. A full collection takes over 100 ms with the subscriptions of a few
    large groups.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


async def start_name_server(settings: "NameServerSettings", running: AsyncExitStack, *, beside_broker: bool) -> str:
    """Start a name server, which stops with the exit stack; return its address.

    Args:
        settings: The settings of the name server.
        running: The exit stack.
        beside_broker: Whether brokers could register with another name server that has the port.

    Raises:
        BrokerError: The name server cannot start.
    """
    from rocket_broker.namesrv.server import NameServer

    _warn(settings)
    server = NameServer(settings, transport=TcpTransport())
    running.push_async_callback(server.stop)
    try:
        await server.start()
    except AddressInUse as e:
        if not beside_broker:
            raise
        raise StartError(
            e.address,
            f"{e.address} is in use by another process. If that is a name server, register with it: streamkit broker "
            f"-n {e.address}. Otherwise choose another port with --name-server-port",
        ) from e
    return server.address


async def _start_broker(settings: "BrokerSettings", running: AsyncExitStack, on_progress: Callable[[], object]) -> str:
    """Start a broker, which stops with the exit stack; return its address."""
    from rocket_broker.broker import Broker  # a name server needs nothing of it

    _warn(settings)
    broker = Broker(settings, transport=TcpTransport(), clock=SystemClock(), on_progress=on_progress)
    running.push_async_callback(broker.stop)
    await broker.start()
    if not settings.namesrv_addr:
        logger.warning("no name server: clients cannot find this broker. Set namesrvAddr, or use -n")
    return broker.address


def _warn(settings: ApacheSettings) -> None:
    for warning in settings.warnings:
        logger.warning("%s", warning)


def allow_files() -> None:
    """Raise the limit of open files as far as the machine allows: each connection is one, and 1,024 are usual."""
    if sys.platform == "win32":
        return
    import resource

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def log_to_terminal(name: str = "", *, as_json: bool = False) -> BoundedLog:
    """Log to standard error: as JSON, or in colours on a terminal and in plain lines otherwise.

    Args:
        name: The name of this process of several, for each line; empty if there is one process.
        as_json: Whether each line is a JSON object.
    """
    who = f"{name} " if name else ""
    if as_json:
        from streamkit.log_format import JsonFormatter

        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter({"broker": name} if name else {}, most_characters=MOST_CHARACTERS))
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True), show_path=False)
        handler.setFormatter(OneLine(f"{who}%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(OneLine(f"%(asctime)s %(levelname)s {who}%(name)s: %(message)s"))
    log = BoundedLog(handler)
    logging.basicConfig(level=logging.INFO, handlers=[log])
    return log
