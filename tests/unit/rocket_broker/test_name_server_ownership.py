"""Route ownership: nobody takes over the name, id or address of a live broker."""

import asyncio
import logging

import pytest

from rocket_broker.namesrv.server import NameServer
from rocket_remoting.wire.bodies import DataVersion, TopicRouteData, encode_body
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import QueryDataVersionRequestHeader
from tests.unit.rocket_broker.test_name_server import Peer, Run, orders, with_name_server

__all__ = ["with_name_server"]

ERROR, OK = ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS
STRANGER, OTHER = "127.0.0.2", "127.0.0.3"
THEIRS = "10.6.6.6:1"


def addresses(route: TopicRouteData | None) -> dict[int, str]:
    """Return the addresses of the route's only broker by id."""
    assert route is not None
    (broker,) = route.broker_datas
    return broker.broker_addrs


async def ask_version(peer: Peer) -> RemotingCommand:
    """Return the answer to QUERY_DATA_VERSION with the broker's present version."""
    header = QueryDataVersionRequestHeader(
        broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="C", broker_id=0
    )
    version = encode_body(DataVersion(timestamp=1, counter=1))
    return await peer.ask(Code.QUERY_DATA_VERSION, header, version)


def test_live_brokers_name_cannot_be_taken(with_name_server: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt is refused with the reason; the log has one line."""

    async def scene(server: NameServer, peer: Peer) -> None:
        broker, stranger = await peer.another(OTHER), await peer.another(STRANGER)
        await broker.register(orders())
        for _ in range(5):
            answer = await stranger.register(orders(perm=2), address=THEIRS, version=9)
            assert answer.code == ERROR
            assert f"broker broker-a at 10.0.0.1:10911 is registered by {OTHER}" in (answer.remark or "")
        assert addresses(await peer.route("orders")) == {0: "10.0.0.1:10911"}
        await stranger.connection.close()
        assert (await broker.register(orders(), version=2)).code == OK
        assert addresses(await peer.route("orders")) == {0: "10.0.0.1:10911"}

    with caplog.at_level(logging.WARNING):
        with_name_server(scene)
    reported = [record.getMessage() for record in caplog.records if STRANGER in record.getMessage()]
    assert len(reported) == 1
    assert "is not registered as broker broker-a, id 0, at 10.6.6.6:1" in reported[0]


def test_live_brokers_address_cannot_be_taken(with_name_server: Run) -> None:
    """A registration under another name would end the route with its own connection."""

    async def scene(server: NameServer, peer: Peer) -> None:
        broker, stranger = await peer.another(OTHER), await peer.another(STRANGER)
        await broker.register(orders())
        assert (await stranger.register(name="evil", broker_id=7)).code == ERROR
        await stranger.connection.close()
        assert addresses(await peer.route("orders")) == {0: "10.0.0.1:10911"}

    with_name_server(scene)


def test_live_broker_cannot_be_unregistered_by_another_host(with_name_server: Run) -> None:
    """Its own host can, over any connection."""

    async def scene(server: NameServer, peer: Peer) -> None:
        broker, stranger = await peer.another(OTHER), await peer.another(STRANGER)
        await broker.register(orders())
        answer = await stranger.unregister()
        assert (answer.code, "registered by" in (answer.remark or "")) == (ERROR, True)
        assert await peer.route("orders") is not None
        assert (await (await peer.another(OTHER)).unregister()).code == OK
        assert await peer.route("orders") is None

    with_name_server(scene)


def test_query_from_another_host_is_no_sign_of_life(with_name_server: Run) -> None:
    """QUERY_DATA_VERSION is answered but does not renew the broker."""

    async def scene(server: NameServer, peer: Peer) -> None:
        broker = await peer.another(OTHER)
        await broker.register(orders())
        for _ in range(14):
            stranger = await peer.another(STRANGER)
            assert (await ask_version(stranger)).code == OK
            await stranger.connection.close()
            await asyncio.sleep(10)
        assert await (await peer.another()).route("orders") is None

    with_name_server(scene, serverChannelMaxIdleTimeSeconds="0")


def test_broker_may_register_again_from_its_host(with_name_server: Run) -> None:
    """At another port too, and while its former connection is still open."""

    async def scene(server: NameServer, peer: Peer) -> None:
        old, new = await peer.another(OTHER), await peer.another(OTHER)
        await old.register(orders())
        assert (await new.register(orders(), address="10.0.0.1:20911", version=2)).code == OK
        await old.connection.close()
        assert addresses(await peer.route("orders")) == {0: "10.0.0.1:20911"}

    with_name_server(scene)


def test_another_host_may_take_the_name_after_the_connection_closed(with_name_server: Run) -> None:
    """At once."""

    async def scene(server: NameServer, peer: Peer) -> None:
        master, heir = await peer.another(OTHER), await peer.another(STRANGER)
        await master.register(orders())
        assert (await heir.register(orders(), address=THEIRS)).code == ERROR
        await master.connection.close()
        await asyncio.sleep(0.01)
        assert (await heir.register(orders(), address=THEIRS)).code == OK
        assert addresses(await peer.route("orders")) == {0: THEIRS}
        back = await peer.another(OTHER)
        assert (await back.register(orders())).code == ERROR

    with_name_server(scene)


def test_another_host_may_take_the_name_of_a_silent_broker(with_name_server: Run) -> None:
    """After two minutes, also while its connection is open."""

    async def scene(server: NameServer, peer: Peer) -> None:
        master = await peer.another(OTHER)
        await master.register(orders())
        await asyncio.sleep(119)
        heir = await peer.another(STRANGER)
        assert (await heir.register(orders(), address=THEIRS)).code == ERROR
        await asyncio.sleep(1)
        assert (await heir.register(orders(), address=THEIRS)).code == OK
        assert addresses(await heir.route("orders")) == {0: THEIRS}

    with_name_server(scene, scanNotActiveBrokerInterval="1000000")


def test_replicas_on_other_hosts_share_the_broker_name(with_name_server: Run) -> None:
    """Each has its own id; a replica may become master when the master is gone."""

    async def scene(server: NameServer, peer: Peer) -> None:
        master, replica = await peer.another(OTHER), await peer.another(STRANGER)
        await master.register(orders())
        assert (await replica.register(broker_id=1, address=THEIRS)).code == OK
        assert addresses(await peer.route("orders")) == {0: "10.0.0.1:10911", 1: THEIRS}
        assert (await replica.register(orders(), address=THEIRS)).code == ERROR
        await master.connection.close()
        await asyncio.sleep(0.01)
        assert (await replica.register(orders(), address=THEIRS, version=2)).code == OK
        assert addresses(await peer.route("orders")) == {0: THEIRS}

    with_name_server(scene)
