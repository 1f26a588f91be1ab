"""`streamkit broker`'s subcommands and `streamkit cluster` on the bundled broker."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from rocket_admin.commands import broker as commands
from rocket_admin.commands.cluster import cluster
from rocket_admin.commands.group import group
from rocket_admin.commands.offset import offset
from rocket_admin.commands.topic import topic
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from rocket_client.blocking.connection import BlockingConnection
from rocket_remoting.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_register_broker_body,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rocket_remoting.wire.record import body_crc32
from rocket_remoting.wire.sys_flag import PERM_WRITE
from tests.unit.rocket_admin.cluster import commit, send
from tests.unit.rocket_admin.terminal import Terminal


@pytest.fixture(scope="module", autouse=True)
def names(broker: ThreadedBroker) -> None:
    """Make a topic with two messages, of which a group has consumed one."""
    terminal = Terminal(broker.name_server)
    terminal.lines(topic, "create", "orders", "--queues", "1")
    terminal.lines(group, "create", "kitchen")
    asyncio.run(send(broker.name_server, "orders", 2))
    asyncio.run(commit(broker.name_server, "orders", "kitchen", 1))


@contextmanager
def register(name_server: str, name: str, address: str) -> Iterator[None]:
    """Register a broker that does not run, with a topic of its own."""
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={"bills": TopicConfig(topic_name="bills")}, data_version=DataVersion(timestamp=1, counter=1)
    )
    body = encode_register_broker_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
    its = {"broker_name": name, "broker_addr": address, "cluster_name": "DefaultCluster", "broker_id": 0}
    header = RegisterBrokerRequestHeader(**its, ha_server_addr=address, body_crc32=body_crc32(body))
    with closing(BlockingConnection(name_server)) as connection:
        connection.invoke(RequestCode.REGISTER_BROKER, header, body, timeout=30)
        yield
        connection.invoke(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(**its), timeout=30)


def writable(name_server: str) -> bool:
    """Return whether routes say that the topic can be written to."""

    async def ask() -> bool:
        async with Admin(ClientSettings(name_servers=name_server)) as admin:
            return bool((await admin.topic_route("orders")).data.queue_datas[0].perm & PERM_WRITE)

    return asyncio.run(ask())


def test_broker_is_listed_with_its_figures(terminal: Terminal, broker: ThreadedBroker) -> None:
    """One object for each broker; `show` has all figures by Apache's names."""
    (listed,) = terminal.json(commands.list_)
    assert (listed["cluster"], listed["broker"], listed["broker_id"]) == ("DefaultCluster", "broker-a", 0)
    assert (listed["address"], listed["version"]) == (broker.address, "4.9.7")
    assert 0 < listed["disk_used"] < 1
    (figures,) = terminal.json(commands.show, "broker-a", "*Desc")
    assert figures == {"brokerVersionDesc": "V4_9_7"}


def test_cluster_is_shown_at_a_glance(terminal: Terminal) -> None:
    """Numbers of topics and groups of applications, and the brokers."""
    (shown,) = terminal.json(cluster)
    assert (shown["topics"], shown["groups"], shown["clusters"]) == (1, 1, ["DefaultCluster"])
    assert shown["brokers"][0]["broker"] == "broker-a"


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit_into_the_terminal(terminal: Terminal, columns: int) -> None:
    """Those of brokers and of the cluster."""
    for command in (commands.list_, cluster):
        assert max(map(len, terminal.lines(command, columns=columns))) <= columns
    assert max(map(len, terminal.lines(commands.show, "broker-a", columns=columns))) <= columns


def test_settings_are_shown_and_changed(terminal: Terminal) -> None:
    """An unknown one is refused, and so is a broker that the cluster has not."""
    (before,) = terminal.json(commands.config, "broker-a", "defaultTopic*")
    assert before == {"defaultTopicQueueNums": "8"}
    assert "defaultTopicQueueNums: 8 → 6" in terminal.lines(
        commands.config, "broker-a", "--set", "defaultTopicQueueNums=6", "--yes"
    )
    (after,) = terminal.json(commands.config, "broker-a", "defaultTopic*")
    assert after == {"defaultTopicQueueNums": "6"}
    assert "has no setting tea" in terminal.run(commands.config, "broker-a", "--set", "tea=1", "--yes").stderr
    assert "no master of broker-b is known; there are broker-a" in terminal.run(commands.config, "broker-b").stderr


def test_write_permission_is_taken_away_and_given_back(terminal: Terminal) -> None:
    """It asks, because it is the only broker."""
    done = terminal.run(commands.wipe_perm, "broker-a", answer="y\n")
    assert "It is the only one: nothing could be sent any more. [y/N]:" in done.stderr
    assert not writable(terminal.name_server)
    assert "can be written to" in terminal.lines(commands.add_perm, "broker-a")[0]
    assert writable(terminal.name_server)
    (wiped,) = terminal.json(commands.wipe_perm, "broker-a", "--yes")
    assert (wiped["broker"], wiped["topics"]) == ("broker-a", terminal.json(commands.add_perm, "broker-a")[0]["topics"])


def test_broker_is_drained_when_every_group_has_consumed_everything(terminal: Terminal) -> None:
    """Until then the group is named that is behind; nobody consumes as it, which is said, too."""
    drain = ("broker-a", "--yes", "--every", "0.05")
    done = terminal.run(commands.drain, *drain, "--timeout", "0.2")
    assert done.exit_code == 1
    assert "kitchen    1        0" in done.stdout
    assert "Nobody consumes as kitchen" in done.stderr
    assert "undo it with `streamkit broker add-perm broker-a`" in done.stderr
    assert terminal.json(commands.drain, *drain, "--without", "kitchen")[-1]["is_drained"]
    terminal.lines(offset, "set", "kitchen", "orders", "latest", "--yes")
    assert terminal.lines(commands.drain, *drain)[-1] == "Broker broker-a is empty: it can be stopped."
    assert not writable(terminal.name_server)
    terminal.lines(commands.add_perm, "broker-a")


def test_broker_that_is_away_is_named_and_the_rest_is_shown(terminal: Terminal) -> None:
    """The exit status says that something is missing."""
    with register(terminal.name_server, "broker-b", "127.0.0.1:1"):
        for command, arguments in ((commands.list_, ()), (topic, ("list",)), (group, ("list",)), (cluster, ())):
            done = terminal.run(command, *arguments)
            assert done.exit_code == 1
            assert "broker-b at 127.0.0.1:1" in done.stderr
            assert "cannot connect to 127.0.0.1:1" in done.stderr
        done = terminal.run(offset, "set", "kitchen", "orders", "0", "--yes")
        assert "offsets of group kitchen were not moved: broker broker-b" in done.stderr
