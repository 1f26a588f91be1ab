"""A master of ours before slaves that send and read single frames of Apache's HA protocol."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from rocket_broker.replication import master
from rocket_broker.replication.master import BYTES_A_TURN, MOST_SLAVES, MOST_SLAVES_OF_ADDRESS
from rocket_broker.store.files import OsFileSystem
from rocket_client import Message, Producer, ProducerSettings, SendStatus
from rocket_remoting.wire.bodies import HARuntimeInfo
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from tests.end_to_end.client_stage import until
from tests.end_to_end.raw_slave import MasterStage, warnings, with_master

SYNC = {"brokerRole": "SYNC_MASTER"}


def test_an_empty_slave_is_sent_the_whole_log(tmp_path: Path) -> None:
    """Byte for byte, over several files, and what is stored later too."""

    async def scene(stage: MasterStage) -> None:
        for number in range(20):
            await stage.client.send(body=b"%d" % number * 500)
        slave = await stage.slave(0)
        before = stage.end
        log = await slave.log(0, before)
        await stage.client.send(body=b"later")
        log += await slave.log(before, stage.end)
        files = sorted((tmp_path / "commitlog").glob("[0-9]*"))
        assert len(files) > 1
        assert log == b"".join(file.read_bytes() for file in files)[: stage.end]

    with_master(scene, tmp_path)


def test_an_empty_slave_may_be_sent_the_last_file_only() -> None:
    """With syncFromLastFile, as by Apache's 4.9.7."""

    async def scene(stage: MasterStage) -> None:
        for _ in range(20):
            await stage.client.send(body=bytes(1000))
        slave = await stage.slave(0)
        assert (await slave.frame()).offset == stage.end - stage.end % 8192 > 0

    with_master(scene, syncFromLastFile="true")


def test_a_slave_continues_where_its_log_ends() -> None:
    """In the middle of a record, too: a slice may have ended there."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.send(body=bytes(1000))
        slave = await stage.slave(100)
        frame = await slave.frame()
        assert (frame.offset, len(frame.data)) == (100, stage.end - 100)

    with_master(scene)


def test_slices_are_as_long_as_the_settings_say() -> None:
    """Each at most haTransferBatchSize."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.send(body=bytes(1000))
        slave = await stage.slave(0)
        assert len((await slave.frame()).data) == 300

    with_master(scene, haTransferBatchSize="300")


def test_sync_master_answers_when_a_slave_has_the_message() -> None:
    """Not before."""

    async def scene(stage: MasterStage) -> None:
        slave = await stage.following()
        sending = asyncio.ensure_future(stage.client.try_send())
        await slave.log(0, 1)
        slave.report(stage.end - 1)
        assert await slave.frame() == (stage.end, b"")
        assert not sending.done()
        slave.report(stage.end)
        assert (await sending).code == ResponseCode.SUCCESS

    with_master(scene, slaveTimeout="60000", **SYNC)


def test_a_message_that_is_sent_back_is_answered_when_a_slave_has_it() -> None:
    """The consumer commits its offset then, and the redelivery must not be lost with the master."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.try_send()
        (message,) = await stage.client.messages()
        await stage.client.heartbeat(consumers={"g": {"orders": "*"}})
        slave = await stage.following()
        start = stage.end
        sending = asyncio.ensure_future(stage.client.send_back(message))
        await slave.log(start, start + 1)
        slave.report(stage.end - 1)
        assert await slave.frame() == (stage.end, b"")
        assert not sending.done()
        slave.report(stage.end)
        assert (await sending).code == ResponseCode.SUCCESS

    with_master(scene, slaveTimeout="60000", **SYNC)


def test_sync_master_without_a_slave_says_so() -> None:
    """The message is stored all the same."""

    async def scene(stage: MasterStage) -> None:
        assert (await stage.client.try_send()).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert len(await stage.client.messages()) == 1

    with_master(scene, **SYNC)


def test_sync_master_does_not_wait_for_slaves_that_are_far_behind() -> None:
    """By more than haSlaveFallbehindMax."""

    async def scene(stage: MasterStage) -> None:
        await stage.following()
        assert (await stage.client.try_send(body=bytes(2000))).code == ResponseCode.SLAVE_NOT_AVAILABLE

    with_master(scene, haSlaveFallbehindMax="1000", **SYNC)


def test_sync_master_waits_no_longer_than_the_timeout() -> None:
    """Of slaveTimeout milliseconds."""

    async def scene(stage: MasterStage) -> None:
        await stage.following()
        assert (await stage.client.try_send()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT

    with_master(scene, slaveTimeout="20", **SYNC)


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_messages_that_do_not_wait_are_answered_at_once(settings: dict[str, str]) -> None:
    """All of an ASYNC_MASTER, and those with WAIT=false."""

    async def scene(stage: MasterStage) -> None:
        await stage.following()
        properties = {"WAIT": "false"} if settings else {}
        assert (await stage.client.try_send(properties=properties)).code == ResponseCode.SUCCESS

    with_master(scene, **settings)


def test_sends_that_are_stored_together_have_the_same_answers() -> None:
    """Many at once, over the path that reads them by the native core."""

    async def scene(stage: MasterStage) -> None:
        settings = ProducerSettings(name_servers=stage.embedded.name_server_address)
        async with Producer("producers", settings, transport=stage.transport) as producer:
            results = await asyncio.gather(*(producer.send(Message("orders", b"hello")) for _ in range(20)))
            assert {result.status for result in results} == {SendStatus.SLAVE_NOT_AVAILABLE}
            slave = await stage.following()
            sending = asyncio.gather(*(producer.send(Message("orders", b"hello")) for _ in range(20)))
            while not sending.done():
                frame = await slave.frame()
                slave.report(frame.offset + len(frame.data))
            assert {result.status for result in await sending} == {SendStatus.SEND_OK}

    with_master(scene, slaveTimeout="60000", **SYNC)


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ([-1], "its log ends at -1"),
        ([10_000_000], "its log ends at 10000000, and this master has the log from 0 to"),
        ([0, -5], "reports the log up to -5"),
        ([0, 10_000_000], "reports the log up to 10000000, and was sent it up to"),
    ],
)
def test_a_slave_with_impossible_offsets_is_refused(
    reports: list[int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Senders would be told that it has their messages."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.send()
        slave = await stage.slave(*reports)
        await slave.until_closed()
        assert stage.slaves.acknowledged.offset == 0
        assert [reason in logged for logged in warnings(caplog)] == [True]

    with_master(scene)


@pytest.mark.parametrize("between_heartbeats", ["20", "3600000"])
def test_a_silent_connection_is_closed(caplog: pytest.LogCaptureFixture, between_heartbeats: str) -> None:
    """After haHousekeepingInterval, whether it was a slave or reported nothing, and however rare heartbeats are."""

    async def scene(stage: MasterStage) -> None:
        silent, stopped = await stage.slave(), await stage.slave(0)
        await silent.until_closed()
        await stopped.until_closed()
        assert len(warnings(caplog)) == 2

    with_master(scene, haHousekeepingInterval="50", haSendHeartbeatInterval=between_heartbeats)


def test_silent_connections_do_not_keep_slaves_away() -> None:
    """The oldest connection without a report makes room."""

    async def scene(stage: MasterStage) -> None:
        silent = [await stage.slave() for _ in range(MOST_SLAVES_OF_ADDRESS + 2)]
        await stage.following()
        await silent[0].until_closed()

    with_master(scene)


def test_the_number_of_slaves_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Each could make the master read the whole log, and one address could take the place of all slaves."""

    async def scene(stage: MasterStage) -> None:
        for _ in range(MOST_SLAVES_OF_ADDRESS):
            await stage.following()
        await (await stage.slave(0)).until_closed()
        assert f"{MOST_SLAVES_OF_ADDRESS} are connected from there, which is the limit" in caplog.text
        assert len(stage.slaves.slaves) == MOST_SLAVES_OF_ADDRESS

    with_master(scene)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have 127.0.0.1 only")
def test_the_number_of_slaves_of_all_addresses_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Further ones are refused, from whatever address."""

    async def scene(stage: MasterStage) -> None:
        for number in range(MOST_SLAVES):
            await stage.following(f"127.0.0.{2 + number}")
        await (await stage.slave(0)).until_closed()
        assert f"{MOST_SLAVES} are connected, which is the limit" in caplog.text

    with_master(scene)


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        ({"haAllowedSlaves": "10.0.0.7, 127.0.0.1"}, True),
        ({"haAllowedSlaves": "127.0.0.0/8", "aclEnable": "true"}, True),
        ({"haAllowedSlaves": "10.0.0.0/8"}, False),
        ({"aclEnable": "true"}, False),
    ],
)
def test_slaves_are_accepted_from_allowed_addresses(
    settings: dict[str, str], is_allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The protocol has no accounts. With access control no address is allowed that the setting does not name."""

    async def scene(stage: MasterStage) -> None:
        slave = await stage.slave(0)
        if is_allowed:
            await until(lambda: len(stage.slaves.slaves) == 1)
        else:
            await slave.until_closed()
            assert "haAllowedSlaves does not have its address" in caplog.text

    with_master(scene, **settings)


def test_reports_may_arrive_in_pieces_and_in_floods() -> None:
    """The last one counts, and all must be possible."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.send(body=bytes(1000))
        slave = await stage.slave(0)
        await slave.log(0, stage.end)
        for byte in (500).to_bytes(8, "big"):
            slave.write(bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: stage.slaves.acknowledged.offset == 500)
        slave.write(b"".join(offset.to_bytes(8, "big") for offset in range(stage.end + 1)) * 100)
        await until(lambda: stage.slaves.acknowledged.offset == stage.end)
        slave.write(b"".join(offset.to_bytes(8, "big") for offset in range(stage.end + 2)))
        await slave.until_closed()

    with_master(scene)


class SlowDisk(OsFileSystem):
    """A disk that reads nothing without a map before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_read = threading.Event()

    def read(self, path: Path, start: int, length: int) -> bytes:
        self.is_asked.set()
        assert self.may_read.wait(60)
        return super().read(path, start, length)


def test_senders_do_not_wait_while_the_disk_is_read_for_a_slave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that is far behind needs what is not in the page cache any more."""
    monkeypatch.setattr(master, "NEAR_BYTES", 1000)

    async def scene(stage: MasterStage) -> None:
        for number in range(20):
            await stage.client.send(body=b"%d" % number * 500)
        disk = stage.embedded.broker.store._files.log.files.maps.file_system = SlowDisk()
        end = stage.end
        slave = await stage.slave(0)
        await until(disk.is_asked.is_set)
        await stage.client.send(body=b"meanwhile")
        disk.may_read.set()
        log = await slave.log(0, stage.end)
        files = sorted((stage.embedded.store_path / "commitlog").glob("[0-9]*"))
        assert end > 2 * 8192
        assert log == b"".join(file.read_bytes() for file in files)[: stage.end]

    with_master(scene)


@pytest.mark.parametrize(("error", "reason"), [(FileNotFoundError(), "has been deleted"), (OSError(5, "EIO"), "EIO")])
def test_a_log_that_cannot_be_read_ends_the_connection(
    error: OSError, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log of the broker has the reason."""
    monkeypatch.setattr(master, "NEAR_BYTES", 0)

    class Failing(OsFileSystem):
        def read(self, path: Path, start: int, length: int) -> bytes:
            raise error

    async def scene(stage: MasterStage) -> None:
        await stage.client.send()
        stage.embedded.broker.store._files.log.files.maps.file_system = Failing()
        await (await stage.slave(0)).until_closed()
        assert [reason in logged for logged in warnings(caplog)] == [True]

    with_master(scene)


def test_a_slave_that_does_not_read_costs_little_memory() -> None:
    """What one turn sends; and no sender waits for it."""

    async def scene(stage: MasterStage) -> None:
        for _ in range(40):
            await stage.client.send(body=bytes(1024 * 1024))
        await stage.slave(0, receive_buffer=4096)
        await until(lambda: any(slave.is_paused for slave in stage.slaves.slaves))
        await stage.client.send()
        (slave,) = stage.slaves.slaves
        assert slave.sent < stage.end
        assert 0 < slave.buffered_bytes <= BYTES_A_TURN + 8 * 12

    with_master(scene, mappedFileSizeCommitLog=str(64 * 1024 * 1024))


def test_a_master_stops_while_slaves_follow() -> None:
    """Their connections are closed."""
    slaves = []

    async def scene(stage: MasterStage) -> None:
        slaves.append(await stage.following())
        await stage.embedded.stop()
        await slaves[0].until_closed()

    with_master(scene)


def test_the_state_of_slaves_is_reported() -> None:
    """As mqadmin's haStatus shows it."""

    async def scene(stage: MasterStage) -> None:
        await stage.client.send()
        near = await stage.following()
        await stage.client.send(body=bytes(2000))
        await near.log(stage.slaves.acknowledged.offset, stage.end)
        status = await stage.client.fetch(RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)
        (slave,) = status.ha_connection_info
        assert (status.master, status.master_commit_log_max_offset, status.in_sync_slave_nums) == (True, stage.end, 0)
        assert (slave.diff, slave.in_sync) == (stage.end - slave.slave_ack_offset, False)
        assert slave.diff > 2000
        assert slave.transfer_from_where == stage.end

    with_master(scene, haSlaveFallbehindMax="1000")
