"""A push consumer of one queue, before a broker whose pull answers are scripted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rocket_client import ConsumeContext, PushConsumer, PushConsumerSettings
from rocket_remoting import MessageExt, RemotingCommand, RequestCode, ResponseCode
from rocket_remoting.wire.bodies import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import encode_record
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedBroker, ScriptedCluster

Reply = Callable[[RemotingCommand], RemotingCommand | None]


def record(
    offset: int, tags: str = "", topic: str = "orders", sys_flag: int = 0, size: int = 0, *, stored: int = 2
) -> bytes:
    properties = {"TAGS": tags} if tags else {}
    return encode_record(
        topic,
        b"%d" % offset + bytes(size),
        encode_properties(properties),
        queue_id=0,
        queue_offset=offset,
        commit_log_offset=1000 + offset,
        sys_flag=sys_flag,
        flag=0,
        born_timestamp=1,
        born_host=("127.0.0.1", 1),
        store_timestamp=stored,
        store_host=("127.0.0.1", 2),
    )


def pulled(code: int, next_offset: int, body: bytes = b"", suggested: int = 0, *, end: int = 99) -> Reply:
    """Return an answer to a pull of a queue that ends at ``end``."""

    def reply(command: RemotingCommand) -> RemotingCommand:
        header = PullMessageResponseHeader(
            suggest_which_broker_id=suggested, next_begin_offset=next_offset, min_offset=5, max_offset=end
        )
        return RemotingCommand.response(command, code, header, body, remark="as the script says")

    return reply


class ConsumerScript:
    """One broker, one queue and one consumer.

    Pulls get the scripted answers in turn, then are held. The listener returns `says`, or the awaited result of `says`
    if it is a function.
    """

    def __init__(
        self, cluster: ScriptedCluster, *, committed: int | None = 0, orderly: bool = False, **settings: Any
    ) -> None:
        self.cluster = cluster
        self.broker: ScriptedBroker = cluster.brokers[0]
        self.replies: list[Reply] = []
        self.pulls: list[tuple[float, PullMessageRequestHeader]] = []
        self.heard: list[MessageExt] = []
        self.says: Any = None
        self._committed = committed
        cluster.routes["orders"] = cluster.route(queues=1)
        answers = self.broker.answers
        answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = self._members
        answers[RequestCode.QUERY_CONSUMER_OFFSET] = self._query_offset
        answers[RequestCode.PULL_MESSAGE] = self._pull
        answers[RequestCode.LOCK_BATCH_MQ] = give_locks
        made = PushConsumerSettings(name_servers=[server.address for server in cluster.name_servers], **settings)
        self.consumer = PushConsumer("kitchen", made, transport=cluster.transport, clock=cluster.time.clock)
        self.consumer.subscribe("orders", "A || B" if settings.get("post_subscription_when_pull") else "*")
        if orderly:
            self.consumer.listen_orderly(self._listen)
        else:
            self.consumer.listen_concurrently(self._listen)

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> Any:
        self.heard.extend(messages)
        return await self.says() if callable(self.says) else self.says

    def _members(self, command: RemotingCommand) -> RemotingCommand:
        heartbeats = [asked for asked in self.broker.asked if asked.code == RequestCode.HEART_BEAT]
        ids = [decode_body(heartbeat.body, HeartbeatData).client_id for heartbeat in heartbeats[-1:]]
        body = encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=ids))
        return RemotingCommand.response(command, body=body)

    def _query_offset(self, command: RemotingCommand) -> RemotingCommand:
        command.header(QueryConsumerOffsetRequestHeader)
        if self._committed is None:
            return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark="none yet")
        return RemotingCommand.response(command, header=QueryConsumerOffsetResponseHeader(offset=self._committed))

    def _pull(self, command: RemotingCommand) -> RemotingCommand | None:
        now = asyncio.get_running_loop().time()
        self.pulls.append((now, command.header(PullMessageRequestHeader)))
        return self.replies.pop(0)(command) if self.replies else None

    @property
    def pulled_offsets(self) -> list[int]:
        return [header.queue_offset for _, header in self.pulls]

    @property
    def commits(self) -> list[int]:
        return [
            command.header(UpdateConsumerOffsetRequestHeader).commit_offset
            for command in self.broker.asked
            if command.code == RequestCode.UPDATE_CONSUMER_OFFSET
        ]


def give_locks(command: RemotingCommand) -> RemotingCommand:
    """Grant every lock that is asked for."""
    wanted = decode_body(command.body, LockBatchRequestBody).mq_set
    return RemotingCommand.response(command, body=encode_body(LockBatchResponseBody(lock_ok_mq_set=wanted)))


def play(
    virtual: VirtualTime, scene: Callable[[ConsumerScript], Awaitable[None]], *replies: Reply, **settings: Any
) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            script = ConsumerScript(cluster, **settings)
            script.replies = list(replies)
            async with script.consumer:
                await scene(script)

    virtual.run(main())
