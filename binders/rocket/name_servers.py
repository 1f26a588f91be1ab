"""Finds the name servers, and starts an embedded broker if the settings ask for one."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binders.rocket.binder_properties import Embedded, RocketBinderProperties
from rocket_remoting import ConnectError
from rocket_remoting.transports.transport import Transport
from streamkit.clock import Clock
from streamkit.config.located_errors import located
from streamkit.config.origin import Value
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError

if TYPE_CHECKING:  # only an application that starts a broker imports it
    from rocket_broker.embedded import EmbeddedBroker

__all__ = ["DEFAULT_NAME_SERVER", "PREFIX", "STORE", "NameServers"]

logger = logging.getLogger(__name__)

PREFIX: Final = "spring.cloud.stream.rocketmq.binder"
STORE: Final = f"{PREFIX}.embedded-store"

LOOPBACK: Final = "127.0.0.1"
DEFAULT_NAME_SERVER: Final = f"{LOOPBACK}:9876"
DEFAULT_BROKER_PORT: Final = 10911

_PROBE_TIMEOUT: Final = 1.0


class NameServers:
    """The name servers of one binder.

    Attributes:
        configured: The addresses in the settings; empty if they are not set.
        domain: The domain from which the clients fetch the addresses; None if they do not.
    """

    def __init__(
        self,
        binder: str,
        properties: RocketBinderProperties,
        configured: Sequence[str],
        transport: Transport,
        clock: Clock,
        *,
        store: Value | None = None,
    ) -> None:
        """Create the name servers of a binder; :meth:`find` finds them.

        Args:
            binder: The binder's name.
            properties: The binder's settings.
            configured: The addresses in the settings.
            transport: Connects, and carries the requests of an embedded broker.
            clock: The clock of an embedded broker.
            store: The setting of the embedded broker's store; None if it is not set.
        """
        self.configured = tuple(configured)
        is_given = bool(configured) or properties.embedded is Embedded.ALWAYS
        self.domain = None if is_given else properties.name_server_domain
        self._binder = binder
        self._properties = properties
        self._transport = transport
        self._clock = clock
        self._store = store
        self._broker: EmbeddedBroker | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the name server is that of an embedded broker started here."""
        return self._broker is not None

    async def find(self) -> tuple[str, ...]:
        """Return the addresses of the name servers; start an embedded broker first if the settings ask for one.

        The result is empty if the clients fetch the addresses.

        Raises:
            BinderError: The embedded broker cannot be started, and would not start later either, or `embedded=always`
                allows no other broker.
            BinderUnavailable: The embedded broker cannot be started now.
            ConfigurationError: The store of the embedded broker cannot be used.
        """
        configured = self.configured
        embedded = self._properties.embedded
        if embedded is Embedded.ALWAYS:
            address = configured[0] if configured else f"{LOOPBACK}:0"
            try:
                return (await self._start(address, broker_port=0),)
            except BinderUnavailable as error:  # not tried again: no other broker is allowed
                raise BinderError(str(error), binder=self._binder) from error.__cause__
        if configured:
            return configured
        if self.domain is not None:
            return ()
        if embedded is Embedded.NEVER or await self._is_reachable(DEFAULT_NAME_SERVER):
            return (DEFAULT_NAME_SERVER,)
        started = await self._start(DEFAULT_NAME_SERVER, DEFAULT_BROKER_PORT)
        logger.warning(
            "No server listens on %s, so an embedded RocketMQ broker was started there; its store is %s. "
            "Set %s.name-server to use a cluster, %s.embedded=never to wait for one.",
            started,
            self._properties.embedded_store,
            PREFIX,
            PREFIX,
        )
        return (started,)

    async def stop(self) -> None:
        """Stop the embedded broker if one was started."""
        if self._broker is not None:
            await self._broker.stop()
            self._broker = None

    async def _is_reachable(self, address: str) -> bool:
        try:
            connection = await self._transport.connect(address, timeout=_PROBE_TIMEOUT)
        except ConnectError:
            return False
        await connection.close()
        return True

    async def _start(self, address: str, broker_port: int) -> str:
        """Start the embedded broker and return the address of its name server."""
        if self._properties.use_tls:
            raise BinderError(
                f"binder {self._binder!r}: {PREFIX}.use-tls is set, and an embedded broker has no certificate: set "
                f"{PREFIX}.name-server to use a cluster, or remove use-tls",
                binder=self._binder,
            )
        from rocket_broker.embedded import EmbeddedBroker
        from rocket_broker.errors import BrokerError, StoreUnusable
        from rocket_broker.store.errors import StoreError

        broker = EmbeddedBroker(
            Path(self._properties.embedded_store),
            name_server_port=int(address.rpartition(":")[2]),
            broker_port=broker_port,
            transport=self._transport,
            clock=self._clock,
            settings={"messageDelayLevel": _delay_level_text(self._properties)},
        )
        try:
            await broker.start()
        except (BrokerError, StoreError) as error:
            raise self._refusal(error) from error
        except OSError as error:
            raise self._refusal(StoreUnusable(Path(self._properties.embedded_store), error)) from error
        self._broker = broker
        return broker.name_server_address

    def _refusal(self, error: Exception) -> BinderError | ConfigurationError:
        """Return the error for an embedded broker that could not start.

        It is a `BinderUnavailable` if a later start may succeed although nobody has changed anything here.
        """
        from rocket_broker.errors import (
            AddressInUse,
            BrokerError,
            SettingError,
            StartError,
            StoreUnusable,
            TableUnreadable,
        )
        from rocket_broker.store.errors import StoreFull, StoreLocked

        use_other = f"set {PREFIX}.name-server to use a broker that runs already"
        other_directory = f"set {STORE} to another directory"
        may_pass = error.may_pass if isinstance(error, BrokerError) else isinstance(error, StoreLocked | StoreFull)
        reason = str(error)
        if isinstance(error, AddressInUse):
            reason = f"{error.address} is in use by another process. Stop that, or {use_other}"
        elif isinstance(error, StoreLocked):
            reason = f"{error.path}: another broker has this store open. Stop that, {use_other}, or {other_directory}"
        elif isinstance(error, StoreUnusable | TableUnreadable):
            reason = str(type(error)(error.path, error.error, other_directory))
        elif not isinstance(error, SettingError | StartError):
            reason = f"{error}. To start with an empty store, {other_directory}"
        text = f"binder {self._binder!r} could not start its embedded broker: {reason}."
        if may_pass:
            return BinderUnavailable(text, binder=self._binder)
        if isinstance(error, StoreUnusable | TableUnreadable):
            return located(self._store, text)
        return BinderError(text, binder=self._binder)


def _delay_level_text(properties: RocketBinderProperties) -> str:
    return " ".join(f"{int(level.total_seconds())}s" for level in properties.message_delay_level)
