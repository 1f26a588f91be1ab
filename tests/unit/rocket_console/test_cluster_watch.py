"""The sampler: for all viewers together, only while somebody watches, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Admin, ClientSettings
from rocket_console.live.cluster_watch import EVERY, GROUPS_IN_TURN, LEASE, ClusterWatch
from rocket_remoting import MemoryTransport
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from streamkit.testing.virtual_time import VirtualTime


def watching(scene: Callable[[Admin, ClusterWatch], Awaitable[None]], *, groups: int = 1) -> None:
    """Run a scene with the watch of a broker that has some groups."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(transport=transport, clock=time.clock) as broker:
            settings = ClientSettings(name_servers=broker.name_server_address)
            async with Admin(settings, transport=transport, clock=time.clock) as admin:
                await admin.create_topic("orders", 1)
                for number in range(groups):
                    group = f"group-{number:03}"
                    await admin.create_group(SubscriptionGroupConfig(group_name=group))
                    (queue,) = (await admin.topic_route("orders")).subscribe_queues
                    await admin.commit_offset(queue, group, 0)
                watch = ClusterWatch(admin)
                await scene(admin, watch)
                await watch.stop()

    with VirtualTime() as time:
        time.run(main(time))


def test_figures_are_sampled_while_somebody_watches() -> None:
    """And no longer."""

    async def scene(admin: Admin, watch: ClusterWatch) -> None:
        await watch.first_sample()
        assert watch.brokers is not None
        assert [broker.broker for broker in watch.brokers.brokers] == ["broker-a"]
        assert (watch.lag.newest, watch.sends.newest, watch.problem) == (0, 0, "")
        for _ in range(6):
            watch.keep_fresh()
            await asyncio.sleep(EVERY)
        seen = len(watch.sends.points)
        assert seen in (6, 7)
        await asyncio.sleep(LEASE + 2 * EVERY)
        ended = len(watch.sends.points)
        await asyncio.sleep(600)
        assert len(watch.sends.points) == ended <= seen + LEASE / EVERY + 1
        await watch.first_sample()
        assert len(watch.sends.points) == 1  # those of before are too old

    watching(scene)


def test_groups_take_turns_and_the_sum_waits_for_all() -> None:
    """A sum of some of them would seem to grow."""
    number = GROUPS_IN_TURN + 10

    async def scene(admin: Admin, watch: ClusterWatch) -> None:
        await watch.first_sample()
        assert (watch.looked_at, watch.groups, watch.lag.newest) == (GROUPS_IN_TURN, number, None)
        await asyncio.sleep(EVERY + 1)
        assert (watch.looked_at, watch.groups, watch.lag.newest) == (number, number, 0)

    watching(scene, groups=number)


def test_the_group_of_an_open_page_has_its_lag_over_time() -> None:
    """Until some time after the page is closed."""

    async def scene(admin: Admin, watch: ClusterWatch) -> None:
        lag = watch.keep_group_fresh("group-000")
        await asyncio.sleep(2 * EVERY + 1)
        assert len(lag.points) == 3
        assert watch.keep_group_fresh("group-000") is lag
        await asyncio.sleep(600)
        assert watch.keep_group_fresh("group-000") is not lag

    watching(scene)


def test_a_cluster_that_is_away_is_a_problem_with_a_reason() -> None:
    """The figures of before stay."""

    async def scene(admin: Admin, watch: ClusterWatch) -> None:
        await watch.first_sample()
        settings = ClientSettings(name_servers="127.0.0.1:9")
        async with Admin(settings, transport=MemoryTransport(), clock=admin.clock) as nowhere:
            away = ClusterWatch(nowhere)
            await away.first_sample()
            assert "127.0.0.1:9" in away.problem
            assert away.brokers is None
            await away.stop()

    watching(scene)
