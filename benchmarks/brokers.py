"""The measured brokers, each in its own process on free loopback ports."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.peer.apache import ApacheBroker
from tests.ports import free_ports


@dataclass(frozen=True, slots=True)
class MeasuredBroker:
    """A running broker: its address, its process id, and the seconds that its start took."""

    name: str
    name_server: str
    pid: int
    start_seconds: float
    address: str = ""


@contextmanager
def bundled_broker() -> Iterator[MeasuredBroker]:
    """`streamkit broker`, with a store in a temporary directory."""
    home = Path(tempfile.mkdtemp(prefix="streamkit-bench-"))
    try:
        with bundled_broker_of(home) as broker:
            yield broker
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def bundled_broker_of(
    home: Path,
    last_signal: signal.Signals = signal.SIGTERM,
    *,
    log: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    checkout: Path | None = None,
) -> Iterator[MeasuredBroker]:
    """`streamkit broker`, with its store in the directory, which stays; it is ended by the signal.

    Args:
        home: The store's directory.
        last_signal: What ends the process.
        log: Where the process logs to; None: nowhere.
        environment: The environment of the process; None: this process's.
        checkout: The checkout of this project whose broker it is; None: the current directory, or the installed one.
    """
    name_server_port, broker_port = free_ports()
    command = [sys.executable, "-m", "streamkit.cli", "broker", "--store", str(home)]
    command += ["--name-server-port", str(name_server_port), "--port", str(broker_port)]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log or subprocess.DEVNULL, text=True, env=environment, cwd=checkout
    )
    try:
        _await_boot(process)
        elapsed = time.perf_counter() - started
        name_server, address = f"127.0.0.1:{name_server_port}", f"127.0.0.1:{broker_port}"
        yield MeasuredBroker("bundled", name_server, process.pid, elapsed, address)
    finally:
        process.send_signal(last_signal)
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def _await_boot(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "broker[" in line and "boot success" in line:
            return
    raise RuntimeError(f"the broker ended with code {process.wait()} before it was up")


@contextmanager
def apache_broker(version: str) -> Iterator[MeasuredBroker]:
    """Apache's broker and name server of `version`, in one JVM."""
    started = time.perf_counter()
    broker = ApacheBroker(version, optimizing=True)
    elapsed = time.perf_counter() - started
    try:
        yield MeasuredBroker(f"Apache {version}", broker.name_server, broker.pid, elapsed)
    finally:
        broker.kill()


def have_java() -> bool:
    """Whether Apache's brokers can be started here."""
    return all(shutil.which(os.environ.get(name.upper(), name)) for name in ("java", "mvn"))
