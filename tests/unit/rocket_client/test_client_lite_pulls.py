"""Requests of a lite pull consumer to a scripted broker."""

import asyncio

import pytest

from rocket_client import LitePullConsumer, LitePullConsumerSettings
from rocket_remoting import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rocket_remoting.wire.headers import PullMessageRequestHeader, QueryConsumerOffsetResponseHeader
from rocket_remoting.wire.sys_flag import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster

QUEUE = MessageQueue("orders", "a", 0)
PULLS = (RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE)


@pytest.mark.parametrize(
    ("knows", "asked"),
    [
        (True, [RequestCode.LITE_PULL_MESSAGE] * 2),
        (False, [RequestCode.LITE_PULL_MESSAGE, *[RequestCode.PULL_MESSAGE] * 2]),
    ],
)
def test_lite_pull_uses_its_own_request_code(virtual: VirtualTime, knows: bool, asked: list[RequestCode]) -> None:
    """Code 361; a broker that does not know it (4.9) is asked once and gets code 11 from then on."""

    def pull(command: RemotingCommand) -> RemotingCommand | None:
        """Return an empty answer to the first pull and hold the second."""
        if command.code == RequestCode.LITE_PULL_MESSAGE and not knows:
            return RemotingCommand.response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        headers.append(command.header(PullMessageRequestHeader))
        return RemotingCommand.response(command, ResponseCode.SYSTEM_BUSY) if len(headers) == 1 else None

    def committed(command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, header=QueryConsumerOffsetResponseHeader(offset=7))

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            cluster.routes["orders"] = cluster.route(queues=1)
            broker = cluster.brokers[0]
            broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = committed
            broker.answers.update((code, pull) for code in PULLS)
            servers = [server.address for server in cluster.name_servers]
            consumer = LitePullConsumer(
                "kitchen",
                LitePullConsumerSettings(name_servers=servers),
                transport=cluster.transport,
                clock=virtual.clock,
            )
            consumer.assign([QUEUE], "A || B")
            async with consumer:
                await asyncio.sleep(3)
            assert [command.code for command in broker.asked if command.code in PULLS] == asked

    headers: list[PullMessageRequestHeader] = []
    virtual.run(main())
    for header in headers:
        assert header.sys_flag == PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE
        assert (header.subscription, header.queue_offset, header.max_msg_nums) == ("A || B", 7, 10)
        assert (header.suspend_timeout_millis, header.commit_offset) == (20_000, 0)
