"""``streamkit broker promote``: when a slave may become the master, and what happens to its settings file."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from rocket_broker.broker import Broker
from rocket_broker.process.promote import promote
from rocket_broker.replication.promotion import Candidate, examine
from rocket_remoting.session.address import parse_address
from tests.end_to_end.broker_pair import BrokerPair, with_pair
from tests.end_to_end.client_stage import until
from tests.ports import free_ports

WITHOUT_WAITING = {"WAIT": "false"}


async def candidate(pair: BrokerPair, slave: Broker) -> Candidate:
    """Return what is found about a slave, as by its settings file."""
    return await examine(replace(slave.settings, listen_port=parse_address(slave.address)[1]), pair.transport)


def test_a_slave_whose_master_lives_is_not_promoted(tmp_path: Path) -> None:
    """Both would accept messages."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        following, registered = (await candidate(pair, pair.slave)).obstacles
        assert "it still copies the log of the master at 127.0.0.1:" in following
        assert f"the master at {pair.master.broker_address} is registered" in registered

    with_pair(tmp_path, scene)


def test_a_slave_whose_master_is_gone_may_be_promoted(tmp_path: Path) -> None:
    """It is the only one, and so has the longest log."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        await pair.client.send()
        await pair.master.broker.stop()
        await until(lambda: pair.slave.slave is not None and not pair.slave.slave.connected_to)
        assert await candidate(pair, pair.slave) == Candidate(pair.slave.store.max_commit_log_offset, [])

    with_pair(tmp_path, scene)


def test_of_two_slaves_the_one_with_the_longer_log_is_promoted(tmp_path: Path) -> None:
    """Only it has every message that was answered with SEND_OK."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        behind = pair.slave
        await behind.stop()
        await pair.client.send(properties=WITHOUT_WAITING)
        ahead, _ = await pair.start("other", brokerRole="SLAVE", brokerId="2")
        await until(lambda: ahead.store.max_commit_log_offset == pair.master.broker.store.max_commit_log_offset)
        await pair.master.broker.stop()
        await pair.begin_slave()
        more = ahead.store.max_commit_log_offset - pair.slave.store.max_commit_log_offset
        (obstacle,) = (await candidate(pair, pair.slave)).obstacles
        assert obstacle == f"slave 2 at {ahead.address} has {more} bytes more: promote that one"
        assert (await candidate(pair, ahead)).obstacles == []
        await ahead.stop()

    with_pair(tmp_path, scene)


def test_settings_file_changes_only_if_no_message_can_be_lost(tmp_path: Path) -> None:
    """Or with --force: comments and other settings stay."""
    conf = tmp_path / "broker.conf"
    name_server, broker = free_ports()
    text = (
        f"# the slave\nbrokerName=broker-a\nbrokerRole=SLAVE\nbrokerId=1\nlistenPort={broker}\n"
        f"brokerIP1=127.0.0.1\nnamesrvAddr=127.0.0.1:{name_server}\n"
    )
    conf.write_text(text)
    refused = CliRunner().invoke(promote, [str(conf)])
    assert refused.exit_code == 1
    assert f"Refused: this slave does not answer at 127.0.0.1:{broker}" in refused.output
    assert f"Refused: name server 127.0.0.1:{name_server} does not answer" in refused.output
    assert conf.read_text() == text
    forced = CliRunner().invoke(promote, [str(conf), "--force", "--role", "ASYNC_MASTER"])
    assert forced.exit_code == 0
    expected = text.replace("brokerRole=SLAVE", "brokerRole=ASYNC_MASTER").replace("brokerId=1", "brokerId=0")
    assert conf.read_text() == expected
    again = CliRunner().invoke(promote, [str(conf)])
    assert "is not the settings file of a slave" in again.output
