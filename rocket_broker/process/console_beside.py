"""The console of `streamkit broker --console`: a process of its own, so that no page delays a broker.

The process runs `streamkit console`. It ends with the command, also if the command is killed. One that fails is started
again; one that never started shows a mistake, such as a port in use, and ends the command.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from rocket_broker.errors import BrokerError, SettingError, StartError
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.server_settings import LOOPBACK
from rocket_remoting.session.address import format_address, parse_address
from rocket_remoting.wire.errors import ConnectError
from streamkit.processes.supervised_process import SupervisedProcess

__all__ = ["CONSOLE", "ConsoleBeside", "ConsolePlace", "console_command"]

CONSOLE: Final = "Console"
"""The name of the process in the log."""

_STOP_SECONDS: Final = 5.0
"""Seconds for which the console may take to stop before it is killed; it finishes its responses within one."""


@dataclass(frozen=True)
class ConsolePlace:
    """Where the console listens.

    Attributes:
        address: The address.
        port: The port; 0 takes a free one.
    """

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the place that is written as ``PORT``, of loopback, or as ``ADDRESS:PORT``.

        Raises:
            ValueError: The text is neither.
        """
        try:
            return cls(*parse_address(f"{LOOPBACK}:{text}" if ":" not in text else text))
        except ConnectError:
            raise ValueError(f"{text!r} is not a place for the console: write PORT or ADDRESS:PORT") from None

    def __str__(self) -> str:
        return format_address((self.address, self.port))


def console_command(place: ConsolePlace, name_servers: str, broker: BrokerSettings) -> Sequence[str]:
    """Return the arguments to Python with which the console runs.

    Args:
        place: Where it listens.
        name_servers: The name servers of the broker, separated by ``;``.
        broker: The settings of the broker, whose encryption to the name servers the console uses, too.

    Raises:
        BrokerError: There is no name server, through which the console would find the broker.
        SettingError: The settings of TLS are not in a file that the console can read.
    """
    if not name_servers:
        raise BrokerError("--console needs a name server, through which the console finds the broker: set namesrvAddr")
    return [
        *("-m", "streamkit.cli", "console", "--name-server", name_servers),
        *("--address", place.address, "--port", str(place.port)),
        *_encryption(broker),
    ]


def _encryption(broker: BrokerSettings) -> Sequence[str]:
    if broker.client_tls() is None:
        return ()
    if broker.tls_config_file:
        return ("--tls", "--tls-config", broker.tls_config_file)
    own = next((key for key in broker.origins if key.startswith("tls.client.")), None)
    if own is not None:
        reason = "the console does not read this file: with --console, write it into the file of tls.config.file"
        raise SettingError(own, "…", broker.origins.get(own, DEFAULT_ORIGIN), reason)
    return ("--tls",)


class ConsoleBeside:
    """The process of the console beside the broker of this process."""

    def __init__(self, place: ConsolePlace, command: Sequence[str]) -> None:
        """Create it without starting a process.

        Args:
            place: Where the console listens.
            command: The arguments to Python, from `console_command`.
        """
        self._place = place
        self._process = SupervisedProcess(CONSOLE, command)
        self._stopping = asyncio.Event()
        self._keeping: asyncio.Task[int] | None = None

    async def start(self) -> str:
        """Start the process; return the URL of the console when it serves.

        Raises:
            StartError: It cannot start; its own error is in the log.
        """
        self._keeping = asyncio.create_task(self._process.keep(self._stopping), name="console")
        await self._process.tried.wait()
        if not self._process.was_up:
            raise StartError(str(self._place), f"the console at {self._place} could not start, see its error above")
        return self._process.report

    async def stop(self) -> None:
        """End the process, and wait until it has ended; kill it if that takes too long."""
        if self._keeping is None:
            return
        self._stopping.set()
        self._process.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.shield(self._keeping)
        self._process.kill()
        await self._keeping
