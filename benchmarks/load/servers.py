"""The brokers that are loaded in turns: this checkout's, another checkout's, and Apache's. Each is there twice if need
be: as it is by default, and guarded, that is with access control and TLS."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from benchmarks.brokers import MeasuredBroker, bundled_broker_of
from benchmarks.guarded import ACCOUNTS, apache_settings, apache_tls, settings_of
from tests.peer.apache import ApacheBroker

__all__ = ["APACHE_DEFAULTS", "Server", "Start", "apache", "bundled"]

APACHE_DEFAULTS = {
    "mappedFileSizeCommitLog": str(1024**3),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "waitTimeMillsInSendQueue": "200",
    "osPageCacheBusyTimeOutMills": "1000",
    "brokerFastFailureEnable": "true",
    "transactionOpBatchInterval": "3000",
    "enablePropertyFilter": "false",
}
"""Apache's defaults of the settings that the peer tests change."""


class Start(Protocol):
    """Starts a broker with a store of its own."""

    def __call__(
        self,
        is_guarded: bool = False,
        *,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> AbstractContextManager[MeasuredBroker]:
        """Start it.

        Args:
            is_guarded: With access control and TLS.
            settings: Further settings.
            ports: The name server's and the broker's; None: free ones.
        """


@dataclass(frozen=True, slots=True)
class Server:
    """A broker that can be started.

    Attributes:
        name: The name in tables.
        start: Starts it.
    """

    name: str
    start: Start


def bundled(name: str, checkout: Path, *, native: bool = True) -> Server:
    """Return the bundled broker of a checkout of this project, run by this interpreter, with or without native core."""

    @contextmanager
    def start(
        is_guarded: bool = False,
        *,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> Iterator[MeasuredBroker]:
        home = Path(tempfile.mkdtemp(prefix="streamkit-load-"))
        environment = os.environ | {"PYTHONPATH": str(checkout), "STREAMKIT_NATIVE": "1" if native else "0"}
        try:
            own = settings_of(home) | dict(settings or {}) if is_guarded else settings
            with bundled_broker_of(
                home, environment=environment, checkout=checkout, settings=own, ports=ports
            ) as broker:
                yield replace(broker, name=name)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return Server(name, start)


def apache(version: str) -> Server:
    """Return Apache's broker of a version, with its default settings."""

    @contextmanager
    def start(
        is_guarded: bool = False,
        *,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> Iterator[MeasuredBroker]:
        broker = ApacheBroker(
            version,
            settings=APACHE_DEFAULTS | (apache_settings(version) if is_guarded else {}) | dict(settings or {}),
            ports=ports,
            optimizing=True,
            system_properties=apache_tls() if is_guarded else None,
            accounts=ACCOUNTS if is_guarded else "",
        )
        try:
            yield MeasuredBroker(f"Apache {version}", broker.name_server, broker.pid, 0.0, broker.address)
        finally:
            broker.kill()

    return Server(f"Apache {version}", start)
