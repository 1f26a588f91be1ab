"""Our broker registers the topics that have changed with Apache's name servers, which keep all others."""

import asyncio

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.peer.conftest import Peers, of_version
from tests.peer.stage import ANSWER_TIMEOUT

NAME = "registers-changes"


@pytest.mark.parametrize("version", [of_version("4.9.7"), of_version("5.3.3")])
def test_changed_topics_join_those_that_the_name_server_has(peers: Peers, version: str) -> None:
    """New and changed ones, one by one and after a removal; the broker's other topics keep their routes."""
    name_server = peers.broker(version).name_server
    topics = [f"{NAME}-{number}" for number in range(20)]

    async def scene() -> None:
        settings = ClientSettings(name_servers=name_server, request_timeout=ANSWER_TIMEOUT)
        async with Admin(settings) as admin:

            async def queues() -> list[int]:
                routes = [await admin.topic_route(topic) for topic in topics]
                return [data.write_queue_nums for route in routes for data in route.data.queue_datas]

            for topic in topics:
                await admin.create_topic(topic, 2, brokers=[NAME])
            assert await queues() == [2] * 20
            await admin.create_topic(topics[7], 5, brokers=[NAME])
            assert await queues() == [2] * 7 + [5] + [2] * 12
            await admin.delete_topic(topics.pop())
            await admin.create_topic(topics[0], 3, brokers=[NAME])
            assert await queues() == [3] + [2] * 6 + [5] + [2] * 11

    with ThreadedBroker(settings={"brokerName": NAME, "namesrvAddr": name_server}):
        asyncio.run(scene())
