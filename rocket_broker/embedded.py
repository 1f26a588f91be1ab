"""A name server and a broker inside the running event loop: the framework's default broker, and one for tests.

Both speak the real protocol over the given transport and keep a real store, so Apache's clients can use them
as well.
"""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rocket_broker.broker import Broker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import Entry, entries_of
from rocket_broker.settings.server_settings import LOOPBACK
from rocket_broker.settings.tls_settings import name_server_entries
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport

if TYPE_CHECKING:
    from streamkit.chaos import Chaos

__all__ = ["EmbeddedBroker"]

_OF_ACCOUNTS = ("aclEnable", "requireSignedCode", "rocketmqHome")
"""Settings of the broker that the name server gets too."""


class EmbeddedBroker:
    """A name server and a broker that registers with it, started and stopped together.

    Args:
        store: Directory of the store, kept after `stop`. None: a temporary directory, removed by `stop`.
        name_server_port: Port of the name server; 0 takes a free port.
        broker_port: Port of the broker; 0 takes a free port.
        transport: Transport that both listen on; TCP on loopback if not given.
        clock: Wall-clock time; the system's clock if not given.
        settings: Further settings of the broker, by the keys of ``broker.conf``; those of TLS also for the name server.
        chaos: Faults that the broker injects, for tests.

    Attributes:
        name_server: The name server; set by `start`.
        broker: The broker; set by `start`.
        store_path: Directory of the store; set by `start`.
    """

    name_server: NameServer
    broker: Broker
    store_path: Path

    def __init__(
        self,
        store: Path | None = None,
        *,
        name_server_port: int = 0,
        broker_port: int = 0,
        transport: Transport | None = None,
        clock: Clock | None = None,
        settings: Mapping[str, str] | None = None,
        chaos: "Chaos | None" = None,
    ) -> None:
        self._store = store
        self._name_server_port = name_server_port
        self._broker_port = broker_port
        self._transport: Transport = transport if transport is not None else TcpTransport()
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._settings = dict(settings or {})
        self._chaos = chaos
        self._running: AsyncExitStack | None = None

    @property
    def name_server_address(self) -> str:
        """Address of the name server, for a client's ``namesrvAddr``."""
        return self.name_server.address

    @property
    def broker_address(self) -> str:
        """Address of the broker."""
        return self.broker.address

    async def start(self) -> None:
        """Start both. When this returns, routes contain the broker.

        Raises:
            RuntimeError: Both are started already.
            SettingError: One of the settings is wrong.
            StartError: A port is in use, the address cannot be listened on, or a file of TLS cannot be used.
            DamagedTable: A table's file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read a table.
            StoreUnusable: The file system refuses to read or write the store.
            StoreError: Another broker has the store open, or the store is damaged.
        """
        if self._running is not None:
            raise RuntimeError(f"{self!r} is already started")
        async with AsyncExitStack() as undo:
            self.store_path = self._store if self._store is not None else _temporary_store(undo)
            self.name_server = NameServer(self._name_server_settings(), transport=self._transport, clock=self._clock)
            undo.push_async_callback(self.name_server.stop)
            await self.name_server.start()
            self.broker = Broker(
                self._broker_settings(), transport=self._transport, clock=self._clock, chaos=self._chaos
            )
            undo.push_async_callback(self.broker.stop)
            await self.broker.start()
            self._running = undo.pop_all()

    async def stop(self) -> None:
        """Stop the broker, then the name server. All data is on the disk afterwards, unless the store is temporary."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()

    def _name_server_settings(self) -> NameServerSettings:
        """Return the settings of the name server, which checks requests too if the broker can sign its own."""
        given = self._settings
        signs = "innerClientAuthenticationCredentials" in given
        keys = {
            "listenPort": str(self._name_server_port),
            "kvConfigPath": str(self.store_path / "namesrv" / "kvConfig.json"),
            "orderMessageEnable": "true",
        }
        keys |= {key: value for key, value in given.items() if signs and key in _OF_ACCOUNTS}
        entries = entries_of(keys, "the embedded broker")
        return NameServerSettings.from_entries([*entries, *name_server_entries(self._given())])

    def _broker_settings(self) -> BrokerSettings:
        keys = SMALL_STORE | {
            "brokerIP1": LOOPBACK,
            "listenPort": str(self._broker_port),
            "storePathRootDir": str(self.store_path),
            "namesrvAddr": self.name_server.address,
        }
        return BrokerSettings.from_entries([*entries_of(keys, "the embedded broker"), *self._given()])

    def _given(self) -> list[Entry]:
        return [Entry(key, value, f"embedded broker's setting {key}") for key, value in self._settings.items()]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        state = f"at {self.name_server_address}" if self._running is not None else "not started"
        return f"<EmbeddedBroker {state}>"


def _temporary_store(undo: AsyncExitStack) -> Path:
    path = Path(tempfile.mkdtemp(prefix="streamkit-broker-"))
    undo.callback(shutil.rmtree, path, ignore_errors=True)
    return path
