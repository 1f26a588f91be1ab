"""The broker of the demo: `streamkit broker` as a process of its own, so that it can be killed."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from samples.flights.running import Stalled


class Registration(NamedTuple):
    """How a broker registers with a name server that runs already.

    Attributes:
        name_server: The address of the name server.
        config: The settings file of the broker.
    """

    name_server: str
    config: Path


class BrokerProcess:
    """A name server and a broker on free loopback ports, with a store that outlives them.

    Args:
        store: The directory of the store, and of the log.
        registration: For a broker alone; None: its name server is started with it.
    """

    def __init__(self, store: Path, registration: Registration | None = None) -> None:
        self._store = store
        if registration is None:
            name_server_port, port = _free_ports(2)
            self.name_server = f"127.0.0.1:{name_server_port}"
            ports = ("--name-server-port", str(name_server_port), "--port", str(port))
            self._arguments: tuple[str, ...] = ("--store", str(store), *ports)
        else:
            self.name_server = registration.name_server
            self._arguments = ("-c", str(registration.config))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the processes, and return when the broker is ready; its log is `broker.log` in the store.

        Raises:
            Stalled: It ended before that; the text has what it logged.
        """
        self._store.mkdir(parents=True, exist_ok=True)
        log = self._store / "broker.log"
        with log.open("ab") as logged:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "streamkit.cli", "broker", *self._arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=logged,
                start_new_session=True,  # Ctrl-C is for the demo alone, which stops its broker last
            )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"The broker["):
                return
        code = await self._process.wait()
        raise Stalled(f"the broker ended with code {code}:\n{log.read_text()[-2000:]}")

    async def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def stop(self) -> None:
        """Stop the process in order."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.communicate()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
