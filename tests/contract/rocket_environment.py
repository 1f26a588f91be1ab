"""RocketMQ as the contract's system under test: the bundled broker in virtual time, or any broker in real time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from binders.rocket.binder import CAPABILITIES, use_transport
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Admin, ClientSettings
from rocket_remoting.clock import Clock
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import RequestCode
from streamkit.binder.capabilities import Capability
from streamkit.clock import use_clock
from streamkit.testing.contract import ContractEnvironment
from streamkit.testing.virtual_time import VirtualTime
from tests.certificates import authority
from tests.end_to_end.client_stage import ClientStage, restart
from tests.end_to_end.raw_client import RawClient

R = TypeVar("R")

PREFIX = "spring.cloud.stream.rocketmq"

MANY_CHECKS = "10000"
FEW_CHECKS = 3
"""What a broker has asked about so often is put aside; a machine with much to do may answer none of them in time."""
PUT_ASIDE_CASE = "test_a_transaction_that_stays_unknown_is_put_aside"
CHECKS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": MANY_CHECKS,
}
"""Settings of a broker on real time, so that it asks soon."""

_NAMES = {
    "ordered": "push.orderly",
    "broadcast": "broadcasting",
    "max_reconsume_times": "push.max-reconsume-times",
    "redelivery_level": "push.delay-level-when-next-consume",
    "suspend": "push.suspend-current-queue-time-millis",
    "consume_timeout": "push.consume-timeout",
    "tags": "tags",
    "sql": "sql",
    "start": "consume-from-where",
    "batch_size": "push.consume-message-batch-max-size",
}
_START = {"earliest": "CONSUME_FROM_FIRST_OFFSET", "latest": "CONSUME_FROM_LAST_OFFSET"}


class RocketEnvironment(ContractEnvironment):
    """A running RocketMQ over TCP in real time."""

    binder_type = "rocketmq"
    capabilities = CAPABILITIES | {Capability.SQL, Capability.DELAY_ANY}
    patience = 60.0  # a binding whose topic is not known in time is tried again after 30 s
    slack = 30.0
    delay_precision = 1.0
    transaction_check_interval = 1.0
    transaction_checks = FEW_CHECKS
    put_aside: str | None = "TRANS_CHECK_MAX_TIME_TOPIC"
    tls: ClientTls | None = None

    def __init__(
        self, name_server: str, offset_store: Path, delay_levels: str, name: str = "bundled broker, TCP"
    ) -> None:
        self.name = name
        self._name_server = name_server
        self._offset_store = offset_store
        self._delay_levels = delay_levels
        levels = [float(level.removesuffix("s")) for level in delay_levels.split()]
        self.delay_levels = tuple(levels)
        self.redelivery_delays = tuple(levels[2:])

    @property
    def properties(self) -> Mapping[str, str]:
        """Where the broker is; topics are made with the number of queues a case asks for.

        No case is about sends that take too long, and a machine with much to do may stand still for seconds.
        """
        return {
            f"{PREFIX}.binder.name-server": self._name_server,
            f"{PREFIX}.binder.provisioning": "create",
            f"{PREFIX}.binder.offset-store": str(self._offset_store),
            f"{PREFIX}.binder.message-delay-level": self._delay_levels,
            f"{PREFIX}.default.producer.send-message-timeout": "30000",
        }

    def consumer_properties(self, binding: str, portable: Mapping[str, object]) -> Mapping[str, str]:
        """Return the second generation's names."""
        prefix = f"{PREFIX}.bindings.{binding}.consumer"
        return {f"{prefix}.{_NAMES[name]}": _text(name, value) for name, value in portable.items()}

    def member(self, number: int) -> Mapping[str, str]:
        """Return a client id of its own, as each process has."""
        return {f"{PREFIX}.binder.unit-name": f"m{number}"}

    def transport(self) -> Transport | None:
        """Return the transport; None is TCP."""
        return None

    async def create_topic(self, name: str, partitions: int) -> None:
        """Create the topic, and wait until the name server knows it."""
        settings = ClientSettings(
            name_servers=self._name_server, request_timeout=timedelta(seconds=self.patience), tls=self.tls
        )
        async with Admin(settings, transport=self.transport(), clock=self.clock) as admin:
            await admin.create_topic(name, partitions)
            await admin.await_topic(name, queues=partitions, timeout=self.patience)


class VirtualRocketEnvironment(RocketEnvironment):
    """The bundled broker, client and application on one virtual loop over the in-memory transport."""

    broker: EmbeddedBroker
    is_virtual = True
    patience = 600.0
    quiet = 60.0
    slack = 0.2
    back_off = 1.0
    suspend = 1.0
    transaction_check_interval = 60.0
    transaction_checks = 15
    broker_settings: Mapping[str, str] = {}

    def __init__(self, time: VirtualTime, home: Path) -> None:
        levels = "1s 5s 10s 30s 60s 120s 180s 240s 300s 360s 420s 480s 540s 600s 1200s 1800s 3600s 7200s"
        super().__init__("", home / "offsets", levels, "bundled broker")
        self._time = time
        self._store = home / "store"
        self._memory = MemoryTransport()
        self.clock: Clock = time.clock

    def transport(self) -> Transport:
        """Return the in-memory transport."""
        return self._memory

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run on the virtual loop."""
        return self._time.run(main)

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Run the case with its own broker."""
        self.broker = EmbeddedBroker(
            self._store, transport=self._memory, clock=self.clock, settings=self.broker_settings
        )
        async with self.broker:
            self._name_server = self.broker.name_server_address
            with use_transport(self._memory), use_clock(self._time.clock):
                yield

    async def restart_broker(self) -> None:
        """Start the broker again, running or not, at its address with its store."""
        port = int(self.broker.broker_address.rpartition(":")[2])
        await self.broker.broker.stop()
        await restart(ClientStage(self._time, self.broker, self._memory), port)


class EncryptedRocketEnvironment(VirtualRocketEnvironment):
    """The same with a broker that accepts TLS only, from clients with a certificate."""

    def __init__(self, time: VirtualTime, home: Path) -> None:
        super().__init__(time, home)
        ours = authority()
        server, client = ours.server(), ours.client(signed_by=ours)
        self.broker_settings = {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(server.certificate),
            "tls.server.keyPath": str(server.key),
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": str(ours.file),
            "tls.client.trustCertPath": str(ours.file),
            "tls.client.certPath": str(client.certificate),
            "tls.client.keyPath": str(client.key),
        }
        self.tls = client

    @property
    def properties(self) -> Mapping[str, str]:
        """As for any broker, and the certificates."""
        return {
            **super().properties,
            f"{PREFIX}.binder.use-tls": "true",
            f"{PREFIX}.binder.tls.trust-cert-path": str(self.tls.trust_certificates),
            f"{PREFIX}.binder.tls.cert-path": str(self.tls.certificate),
            f"{PREFIX}.binder.tls.key-path": str(self.tls.key),
        }


@contextmanager
def few_checks(address: str) -> Iterator[None]:
    """Make a broker put unknown transactions aside soon."""
    _set_checks(address, str(FEW_CHECKS))
    try:
        yield
    finally:
        _set_checks(address, MANY_CHECKS)


def checks_of(request: pytest.FixtureRequest, address: str) -> AbstractContextManager[None]:
    """Make a broker check rarely in the case about the last check."""
    return few_checks(address) if request.node.originalname == PUT_ASIDE_CASE else nullcontext()


def _set_checks(address: str, number: str) -> None:
    async def main() -> None:
        client = await RawClient.connect(TcpTransport(), address)
        setting = f"transactionCheckMax={number}\n".encode()
        await client.ask_ok(RequestCode.UPDATE_BROKER_CONFIG, None, setting)
        await client.connection.close()

    asyncio.run(main())


def _text(name: str, value: object) -> str:
    if name == "start":
        return _START[str(value)]
    if name == "suspend":
        return f"{float(str(value)) * 1000:g}"
    if name == "consume_timeout":
        return f"{value}s"
    return str(value)
