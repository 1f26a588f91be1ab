"""Errors at start give the reason and a remedy; a server that listens beyond loopback logs a warning."""

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.errors import CannotListen, StoreUnusable, TableUnreadable
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting.clock import SystemClock
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport


def broker_on(root: Path, transport: Transport | None = None, **keys: str) -> Broker:
    """Return a broker that is not started."""
    keys = SMALL_STORE | {"storePathRootDir": str(root), "listenPort": "0", "brokerIP1": "127.0.0.1"} | keys
    settings = BrokerSettings.from_entries(entries_of(keys, "test"))
    return Broker(settings, transport=transport or TcpTransport(), clock=SystemClock())


def start(broker: Broker) -> None:
    """Start a broker and stop it again."""

    async def main() -> None:
        await broker.start()
        await broker.stop()

    asyncio.run(main())


WITH_FEW_FILES = """
import asyncio, resource, shutil, sys
from pathlib import Path
from rocket_broker.store.messages import StoreMessage
from rocket_remoting.transports.tcp import TcpTransport
from tests.unit.rocket_broker.test_start_errors import broker_on

root, files, queues = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

async def fill():
    broker = broker_on(root / "running", mappedFileSizeConsumeQueue="6000")
    await broker.start()
    for queue_id in range(queues):
        broker.store.put(StoreMessage("orders", queue_id, b"body", b""))
    shutil.copytree(root / "running", root / "killed")
    await broker.stop()

async def start_again():
    broker = broker_on(root / "killed", mappedFileSizeConsumeQueue="6000")
    await broker.start()
    connections = [await TcpTransport().connect(broker.address) for _ in range(10)]
    print(broker.recovery.queues, "queues,", len([c for c in connections if not c.is_closed]), "connections")
    for connection in connections:
        await connection.close()
    await broker.stop()

asyncio.run(fill())
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
asyncio.run(start_again())
"""


def run_with_few_files(root: Path, files: int, queues: int) -> tuple[str, str]:
    """Start a broker after a kill, in a process with a low limit of open files; return its output and last error."""
    process = subprocess.run(
        [sys.executable, "-c", WITH_FEW_FILES, str(root), str(files), str(queues)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    return process.stdout.strip(), (process.stderr.strip().splitlines() or [""])[-1]


def test_recovery_needs_few_open_files(tmp_path: Path) -> None:
    """256 are enough for 240 queues; the rest is left to connections."""
    printed, error = run_with_few_files(tmp_path, 256, 240)
    assert printed == "240 queues, 10 connections", error


@pytest.mark.parametrize(("queues", "reported"), [(20, "StoreUnusable"), (2, "TooFewFiles")])
def test_too_low_open_file_limit_is_reported(tmp_path: Path, queues: int, reported: str) -> None:
    """The files of 20 queues cannot be opened; with those of two open, every client would be refused.

    Another address or directory does not help.
    """
    printed, error = run_with_few_files(tmp_path, 25, queues)
    assert printed == ""
    assert reported in error
    assert "storePathRootDir" not in error
    assert "brokerIP1" not in error
    assert "ulimit -n 65536" in error


def test_foreign_listen_address_is_refused(tmp_path: Path) -> None:
    """The error names the setting of the address or of the host name."""
    with pytest.raises(CannotListen, match=r"192\.0\.2\.7:\d+: .*Set bindAddress to an address of this"):
        start(broker_on(tmp_path, bindAddress="192.0.2.7"))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "Let the user that runs the server read and write it"),
        (errno.EMFILE, "ulimit -n 65536"),
        (errno.ENOSPC, "Make room on the disk"),
        (errno.EROFS, "mount it for writing"),
        (errno.EIO, "a disk that works"),
        (errno.ENOLCK, "on a local disk"),
        (errno.EXDEV, "See the system's log"),
    ],
)
def test_unusable_store_error_suggests_a_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    """Another directory is suggested only where it helps."""
    error = OSError(number, "the reason", str(tmp_path / "abort"))
    assert str(StoreUnusable(tmp_path, error)).startswith(
        f"the store in {tmp_path} cannot be used: {tmp_path / 'abort'}: the reason. "
    )
    assert remedy in str(StoreUnusable(tmp_path, error))


def test_unreadable_table_fails_the_start(tmp_path: Path) -> None:
    """The backup is older, and an empty table would lose data."""
    (tmp_path / "config" / "topics.json").mkdir(parents=True)
    with pytest.raises(TableUnreadable, match=r"topics\.json cannot be read: Is a directory\. Move") as caught:
        start(broker_on(tmp_path))
    assert "empty table" not in str(caught.value)


def test_unreadable_journal_is_a_store_error(tmp_path: Path) -> None:
    """It names the file and has no traceback."""
    (tmp_path / "config" / "topics.json.log").mkdir(parents=True)
    with pytest.raises(StoreUnusable, match=r"cannot be used: .*/topics\.json\.log: Is a directory\. Move"):
        start(broker_on(tmp_path))


@pytest.mark.parametrize(("address", "is_open"), [("127.0.0.1", False), ("localhost", False), ("192.0.2.7", True)])
def test_server_beyond_loopback_warns_about_missing_access_control(
    tmp_path: Path, address: str, is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once per broker, for all its ports, and once per name server; never on loopback."""

    async def main() -> None:
        transport = MemoryTransport()
        keys = {"bindAddress": address, "listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        settings = NameServerSettings.from_entries(entries_of(keys, "test"))
        name_server = NameServer(settings, transport=transport)
        broker = broker_on(tmp_path / "store", transport, bindAddress=address, brokerIP1=address)
        await name_server.start()
        await broker.start()
        await broker.stop()
        await name_server.stop()

    asyncio.run(main())
    reported = [text for record in caplog.records if "no access control" in (text := record.getMessage())]
    assert [text.partition(" listens on ")[0] for text in reported] == ["the name server", "the broker"] * is_open
    assert all("bindAddress=127.0.0.1" in text for text in reported)
