"""The brokers that are loaded in turns: this checkout's, another checkout's, and Apache's."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.brokers import MeasuredBroker, bundled_broker_of
from tests.peer.apache import ApacheBroker

__all__ = ["Server", "apache", "bundled"]

_APACHE_DEFAULTS = {
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


@dataclass(frozen=True, slots=True)
class Server:
    """A broker that can be started.

    Attributes:
        name: The name in tables.
        start: Starts it, with a store of its own.
    """

    name: str
    start: Callable[[], AbstractContextManager[MeasuredBroker]]


def bundled(name: str, checkout: Path, *, native: bool = True) -> Server:
    """Return the bundled broker of a checkout of this project, run by this interpreter, with or without native core."""

    @contextmanager
    def start() -> Iterator[MeasuredBroker]:
        home = Path(tempfile.mkdtemp(prefix="streamkit-load-"))
        environment = os.environ | {"PYTHONPATH": str(checkout), "STREAMKIT_NATIVE": "1" if native else "0"}
        try:
            with bundled_broker_of(home, environment=environment, checkout=checkout) as broker:
                yield replace(broker, name=name)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return Server(name, start)


def apache(version: str) -> Server:
    """Return Apache's broker of a version, with its default settings."""

    @contextmanager
    def start() -> Iterator[MeasuredBroker]:
        broker = ApacheBroker(version, settings=_APACHE_DEFAULTS, optimizing=True)
        try:
            yield MeasuredBroker(f"Apache {version}", broker.name_server, broker.pid, 0.0, broker.address)
        finally:
            broker.kill()

    return Server(f"Apache {version}", start)
