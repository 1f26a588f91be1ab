"""The servers of the other systems: NATS and Redis of the operating system's packages, and Kafka.

All store messages in files and flush them later, as RocketMQ does with ASYNC_FLUSH: JetStream its streams, Redis its
append-only file (`appendfsync everysec`).
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.brokers import MeasuredBroker, bundled_broker
from benchmarks.kafka import kafka_broker
from tests.ports import free_ports

__all__ = ["SERVERS", "missing", "nats_server", "redis_server", "version_of"]

_PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
"""Debian installs servers where only its administrator looks."""
_START_SECONDS = 20.0


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise RuntimeError(f"there is no {name} here; on Debian and Ubuntu: apt-get install {name}")
    return found


def missing() -> list[str]:
    """Return the names of the servers that are not installed on this machine."""
    return [name for name in ("nats-server", "redis-server") if shutil.which(name, path=_PATH) is None]


def version_of(program: str) -> str:
    """Return the line in which a server names its version."""
    done = subprocess.run([_program(program), "--version"], capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).strip()


@contextmanager
def nats_server() -> Iterator[MeasuredBroker]:
    """Run nats-server with JetStream, and its streams in a temporary directory."""
    with _process("NATS", lambda port, home: ["nats-server", "-a", "127.0.0.1", "-p", port, "-js", "-sd", home]) as own:
        yield own


@contextmanager
def redis_server() -> Iterator[MeasuredBroker]:
    """Run redis-server with an append-only file in a temporary directory."""

    def command(port: str, home: str) -> list[str]:
        files = ["--dir", home, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        return ["redis-server", "--bind", "127.0.0.1", "--port", port, *files]

    with _process("Redis", command) as own:
        yield own


@contextmanager
def _process(name: str, command: Callable[[str, str], list[str]]) -> Iterator[MeasuredBroker]:
    home, (_, port) = Path(tempfile.mkdtemp(prefix=f"{name.lower()}-bench-")), free_ports()
    program, *arguments = command(str(port), str(home))
    started = time.perf_counter()
    try:
        with subprocess.Popen(
            [_program(program), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _await_listening(port, process)
                address = f"127.0.0.1:{port}"
                yield MeasuredBroker(name, address, process.pid, time.perf_counter() - started, address)
            finally:
                process.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _await_listening(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise RuntimeError(f"{process.args!r} does not listen on port {port}")


SERVERS: dict[str, Callable[[], AbstractContextManager[MeasuredBroker]]] = {
    "streamkit": bundled_broker,
    "Kafka": kafka_broker,
    "NATS": nats_server,
    "Redis": redis_server,
}
"""By the name in tables."""
