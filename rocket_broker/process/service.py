"""A name server or a broker as a process: it runs until a signal comes, and logs to the terminal."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

import click

from rocket_broker.broker import Broker
from rocket_broker.errors import AddressInUse, StartError
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.process.bounded_log import BoundedLog, OneLine
from rocket_broker.process.signals import stop_on_signal
from rocket_broker.settings.apache_settings import ApacheSettings
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.native import has_native_core
from rocket_remoting.transports.tcp import TcpTransport
from streamkit.service_manager import notify_progress, notify_ready, notify_stopping

__all__ = ["run"]

logger = logging.getLogger(__name__)

SERIALIZE_TYPE = "JSON"

MOST_FILES = 65_536
"""More open files than the connections that a name server and a broker allow together."""

COLLECTED_AFTER = (2_000, 10, 100)
"""Thresholds of `gc.set_threshold`: new objects until a collection of the youngest, and collections of a generation
until one of the next."""


def run(name_server: NameServerSettings | None, broker: BrokerSettings | None) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order; a second signal ends the process at once.

    systemd is notified while a broker reads a long commit log, when all servers serve, and when the stop begins.

    Args:
        name_server: Settings of the name server to start; None for no name server.
        broker: Settings of the broker to start after the name server; None for no broker.

    Raises:
        BrokerError: A server cannot start.
        StoreError: The store is in use or damaged.
    """
    log = _log_to_terminal()
    _allow_files()
    if broker is not None:
        # Loaded now, so that the first send does not wait for it.
        logger.info("the native core is %s", "used" if has_native_core() else "not used: sends take more CPU")
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        runner.run(_serve(name_server, broker, log))


async def _serve(name_server: NameServerSettings | None, broker: BrokerSettings | None, log: BoundedLog) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with log.minutes(), AsyncExitStack() as running:
        running.enter_context(stop_on_signal(lambda: loop.call_soon_threadsafe(asked_to_stop.set)))
        if name_server is not None:
            address = await _start_name_server(name_server, running, beside_broker=broker is not None)
            if broker is not None:
                broker.namesrv_addr = address  # a free port is known only now
        if broker is not None:
            await _start_broker(broker, running)
        _collect_garbage_in_small_parts()
        if not asked_to_stop.is_set():
            notify_ready()
        await asked_to_stop.wait()
        notify_stopping()
        click.echo("Stopping ... (a second signal ends it at once)")
    click.echo("Stopped.")


def _collect_garbage_in_small_parts() -> None:
    """Make full garbage collections a hundred times rarer, since all clients wait for them.

    Objects from the start are never examined again (`gc.freeze`). A collection of young objects, most of which are
    garbage, takes 1 to 2 ms for 20,000. A full collection takes over 100 ms with the subscriptions of a few large
    groups.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


async def _start_name_server(settings: NameServerSettings, running: AsyncExitStack, *, beside_broker: bool) -> str:
    _warn(settings)
    server = NameServer(settings, transport=TcpTransport())
    running.push_async_callback(server.stop)
    try:
        await server.start()
    except AddressInUse as e:
        if not beside_broker:
            raise
        hint = f"If that is a name server, register with it: streamkit broker -n {e.address}"
        raise StartError(e.address, f"{e.address} is in use by another process. {hint}") from e
    click.echo(f"The Name Server boot success. serializeType={SERIALIZE_TYPE}, address {server.address}")
    return server.address


async def _start_broker(settings: BrokerSettings, running: AsyncExitStack) -> None:
    _warn(settings)
    broker = Broker(settings, transport=TcpTransport(), clock=SystemClock(), on_progress=notify_progress)
    running.push_async_callback(broker.stop)
    await broker.start()
    known_by = f" and name server is {settings.namesrv_addr}" if settings.namesrv_addr else ""
    click.echo(
        f"The broker[{settings.broker_name}, {broker.address}] boot success. serializeType={SERIALIZE_TYPE}{known_by}"
    )
    if not settings.namesrv_addr:
        logger.warning("no name server: clients cannot find this broker. Set namesrvAddr, or use -n")


def _warn(settings: ApacheSettings) -> None:
    for warning in settings.warnings:
        logger.warning("%s", warning)


def _allow_files() -> None:
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


def _log_to_terminal() -> BoundedLog:
    """Log to standard error, in colours on a terminal and in plain lines otherwise."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler: logging.Handler = RichHandler(console=Console(stderr=True), show_path=False)
        handler.setFormatter(OneLine("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = BoundedLog(handler)
    logging.basicConfig(level=logging.INFO, handlers=[log])
    return log
