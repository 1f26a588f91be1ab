"""The measured brokers, each in its own process on free loopback ports."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
    settings: Mapping[str, str] | None = None,
    ports: tuple[int, int] | None = None,
) -> Iterator[MeasuredBroker]:
    """`streamkit broker`, with its store in the directory, which stays; it is ended by the signal.

    Args:
        home: The store's directory.
        last_signal: What ends the process.
        log: Where the process logs to; None: nowhere.
        environment: The environment of the process; None: this process's.
        checkout: The checkout of this project whose broker it is; None: the current directory, or the installed one.
        settings: Settings of the broker. With them its name server is a process of its own, and is not measured.
        ports: The name server's and the broker's; None: free ones.
    """
    name_server_port, broker_port = ports or free_ports()
    name_server, address = f"127.0.0.1:{name_server_port}", f"127.0.0.1:{broker_port}"
    with ExitStack() as stack:

        def start(boots_as: str, *arguments: str) -> "subprocess.Popen[str]":
            command = [sys.executable, "-m", "streamkit.cli", *arguments]
            output = log or subprocess.DEVNULL
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=output, text=True, env=environment, cwd=checkout
            )
            stack.callback(_end, process, last_signal)
            _await_boot(process, boots_as)
            return process

        if settings is None:
            arguments = ["--store", str(home), "--name-server-port", str(name_server_port), "--port", str(broker_port)]
        else:
            keys = {"listenPort": str(name_server_port), "kvConfigPath": str(home / "kvConfig.json")}
            start("The Name Server boot success", "namesrv", "-c", _write_conf(home / "namesrv.conf", keys))
            keys = {"listenPort": str(broker_port), "namesrvAddr": name_server, "storePathRootDir": str(home / "store")}
            arguments = ["-c", _write_conf(home / "broker.conf", keys | dict(settings))]
        started = time.perf_counter()
        process = start("broker[", "broker", *arguments)
        yield MeasuredBroker("bundled", name_server, process.pid, time.perf_counter() - started, address)


def _write_conf(path: Path, keys: Mapping[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def _end(process: "subprocess.Popen[str]", last_signal: signal.Signals) -> None:
    process.send_signal(last_signal)
    process.wait(timeout=60)
    assert process.stdout is not None
    process.stdout.close()


def _await_boot(process: "subprocess.Popen[str]", boots_as: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if boots_as in line and "boot success" in line:
            return
    raise RuntimeError(f"{process.args!r} ended with code {process.wait()} before it was up")


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
