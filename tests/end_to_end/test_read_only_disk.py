"""A broker whose file system becomes read-only: ext4 on a file, with a triggered error."""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.broker_process import running
from tests.end_to_end.raw_client import RawClient

pytestmark = pytest.mark.slow


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB that becomes read-only at its first error."""
    image, directory = tmp_path / "image", tmp_path / "disk"
    directory.mkdir()
    make, mount = shutil.which("mkfs.ext4"), shutil.which("mount")
    if make is None or mount is None:
        pytest.skip("there is no mkfs.ext4, or no mount, to make a file system with")
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    subprocess.run([make, "-q", "-F", str(image)], check=True)
    command = [mount, "-o", "loop,errors=remount-ro", str(image), str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def turn_read_only(disk: Path) -> None:
    """Trigger an error in the file system."""
    (device,) = [line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if f" {disk} " in line]
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip("this kernel lets nobody trigger an error of ext4")
    trigger.write_text("test")


def test_read_only_disk_refuses_messages_and_serves_stored_ones(failing_disk: Path, tmp_path: Path) -> None:
    """Senders get code 14, readers continue, offsets are kept in memory, and the broker stops in order."""
    arguments = ("-p", "0", "--name-server-port", "0", "--store", str(failing_disk / "store"))

    async def main(address: str) -> None:
        client = await RawClient.connect(TcpTransport(), address)
        for number in range(100):
            await client.send(body=b"%d" % number)
        turn_read_only(failing_disk)
        while (await client.try_send()).code != ResponseCode.SERVICE_NOT_AVAILABLE:
            pass  # taken until the next flush, half a second later at most
        assert [m.body for m in await client.messages()][:100] == [b"%d" % number for number in range(100)]
        await client.commit(50, group="g")
        for topic in ("new", "newer"):
            refused = await client.try_send(topic)
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "the file system is read-only" in (refused.remark or "")
        await client.connection.close()

    with running("broker", *arguments, cwd=tmp_path) as broker:
        asyncio.run(main(broker.address()))
        assert broker.signal(signal.SIGTERM) == 0
    log = "".join(broker.log)
    assert "the disk refused a flush, no more messages are taken" in log
    assert "Traceback" not in log
    with running("broker", *arguments, cwd=tmp_path) as broker:
        assert broker.wait() == 1
    assert "Read-only file system. See in the system's log" in "".join(broker.log)
