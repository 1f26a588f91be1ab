"""``streamkit broker --processes``: several brokers that tests kill one by one."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rocket_broker.settings.broker_settings import SMALL_STORE
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.ports import free_ports

NAMES = ("broker-a-0", "broker-a-1")


class SeveralBrokers:
    """The command with two brokers that serve.

    Attributes:
        command: The process of the command.
        name_server: The address of the name server that the command has started.
        addresses: The address of each broker.
        pids: The process id of each broker at the start.
    """

    def __init__(self, command: ServerProcess) -> None:
        """Wait until the brokers serve."""
        cluster = command.cluster()
        self.command = command
        self.name_server: str = cluster["nameServers"]
        self.addresses: list[str] = [broker["address"] for broker in cluster["brokers"]]
        self.pids: list[int] = [broker["pid"] for broker in cluster["brokers"]]
        assert [broker["name"] for broker in cluster["brokers"]] == list(NAMES)

    def signal(self, number: int, sent: signal.Signals) -> None:
        """Send a broker a signal."""
        os.kill(self.pids[number], sent)

    def wait_for_start(self, number: int, times: int) -> None:
        """Wait until a broker has started so many times."""
        self.command.wait_for_log(f"Broker {NAMES[number]} has started", times)


def write_settings(directory: Path, port: int, **settings: str) -> Path:
    """Write the settings file of the brokers, and return it."""
    keys = SMALL_STORE | {"listenPort": str(port), "storePathRootDir": str(directory / "store")} | PATIENT | settings
    file = directory / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return file


@contextmanager
def several_brokers(directory: Path) -> Iterator[SeveralBrokers]:
    """Start two brokers with a name server, and end all at the end."""
    _, port = free_ports(brokers=len(NAMES))
    config = write_settings(directory, port)
    arguments = ("-c", str(config), "--processes", str(len(NAMES)), "--name-server-port", "0", "--json")
    command = ServerProcess("broker", *arguments, cwd=directory)
    brokers = None
    try:
        brokers = SeveralBrokers(command)
        yield brokers
    finally:
        for pid in brokers.pids if brokers is not None else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # a failed test may have left one stopped, which would never end
        command.end()
