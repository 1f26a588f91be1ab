"""Two brokers that get the same requests: one stores parts of batches in one call, the other message by message."""

import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.store import MessageStore
from rocket_remoting import MemoryTransport, MessageExt
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import QueryMessageRequestHeader
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.topics import TOOLS_CONSUMER_GROUP
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient, send_header

LOG_FILE = 512 * 1024
QUEUE_ENTRIES = 5000
INDEX_ENTRIES = 20_000
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(LOG_FILE),
    "mappedFileSizeConsumeQueue": str(20 * QUEUE_ENTRIES),
    "maxHashSlotNum": "500",
    "maxIndexNum": str(INDEX_ENTRIES),
    "serverChannelMaxIdleTimeSeconds": "0",
}


@dataclass(frozen=True)
class Entry:
    """A message of a batch.

    Attributes:
        body: The message's body.
        properties: The message's properties in wire form.
        flag: The application's number.
    """

    body: bytes
    properties: bytes = b""
    flag: int = 0


def wire(properties: Mapping[str, str], *, closed: bool = True) -> bytes:
    """Return properties in wire form, without the last separator as Java's clients before 5.0 write them."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return text if closed else text.removesuffix(b"\2")


def batch_body(entries: Sequence[Entry]) -> bytes:
    """Return the body of a batch request."""
    pieces = []
    for entry in entries:
        size = 22 + len(entry.body) + len(entry.properties)
        pieces += [
            struct.pack(">iiiii", size, 0, 0, entry.flag, len(entry.body)),
            entry.body,
            struct.pack(">H", len(entry.properties)),
            entry.properties,
        ]
    return b"".join(pieces)


@dataclass
class Side:
    """One of the brokers.

    Attributes:
        client: A connection to the broker.
        embedded: The broker.
        runs: How many messages of each queue the broker made known at once since `sent`, in order.
    """

    client: RawClient
    embedded: EmbeddedBroker
    runs: list[int] = field(default_factory=list)

    def note(self, topic: str, queue_id: int, offset: int, tags_codes: Sequence[int], stored_at: int) -> None:
        """Count the messages that the store announces together."""
        self.runs.append(len(tags_codes))

    @property
    def files(self) -> dict[Path, bytes]:
        """Return the contents of log, queues and index."""
        root = self.embedded.store_path
        return {
            path.relative_to(root): path.read_bytes()
            for name in ("commitlog", "consumequeue", "index")
            for path in sorted((root / name).rglob("*"))
            if path.is_file()
        }


class TwoPaths:
    """The two brokers, and checks that both answer alike.

    Attributes:
        at_once: Stores parts of batches at once where that is possible.
        one_by_one: Stores message by message.
    """

    def __init__(self, at_once: Side, one_by_one: Side) -> None:
        self.at_once = at_once
        self.one_by_one = one_by_one
        for side in self._sides:
            side.embedded.broker.store.arrival_listeners.append(side.note)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.at_once, self.one_by_one

    async def ask(self, code: int, header: Header | None, body: bytes = b"") -> RemotingCommand:
        """Send a request to both brokers; return the answer, which must be equal."""
        answers = []
        for side in self._sides:
            side.runs.clear()
            answers.append(await side.client.ask(code, header, body))
            side.embedded.broker.store.commit()
        first, second = answers
        assert (first.code, first.remark, first.ext_fields) == (second.code, second.remark, second.ext_fields)
        assert first.body == second.body
        return first

    async def send(self, entries: Sequence[Entry], topic: str = "orders", **fields: Any) -> RemotingCommand:
        """Send a batch to both brokers."""
        header = send_header(topic, fields.pop("properties", None), batch=True, **fields)
        return await self.ask(RequestCode.SEND_BATCH_MESSAGE, header, batch_body(entries))

    @property
    def runs(self) -> list[int]:
        """Return how many messages of the last request the first broker stored per call;

        the second always stores one.
        """
        assert set(self.one_by_one.runs) <= {1}
        assert sum(self.at_once.runs) == len(self.one_by_one.runs)
        return self.at_once.runs

    def assert_same_stores(self) -> None:
        """Compare files, byte for byte, and statistics."""
        first, second = (side.files for side in self._sides)
        assert first.keys() == second.keys()
        assert [path for path in first if first[path] != second[path]] == []
        counts = [side.embedded.broker.statistics for side in self._sides]
        assert (counts[0].put_messages, counts[0].put_bytes) == (counts[1].put_messages, counts[1].put_bytes)

    async def pulled(
        self,
        topic: str = "orders",
        queue_id: int = 0,
        expression: str = "*",
        type_: str = "TAG",
    ) -> list[bytes]:
        """Return the bodies that consumers with a filter get, equal for both brokers."""
        fields = {"queue_id": queue_id, "subscription": expression, "expression_type": type_}
        first, second = [await _consumed(side.client, topic, **fields) for side in self._sides]
        assert first == second
        return [message.body for message in first]

    async def found(self, key: str, topic: str = "orders") -> list[bytes]:
        """Return the bodies of messages with a key, equal for both brokers."""
        header = QueryMessageRequestHeader(topic=topic, key=key, max_num=64, begin_timestamp=0, end_timestamp=2**62)
        answer = await self.ask(RequestCode.QUERY_MESSAGE, header)
        return [message.body for message in decode_records(answer.body)]


async def _consumed(client: RawClient, topic: str, **fields: Any) -> list[MessageExt]:
    """Return what a consumer gets; the number of messages per answer depends on the time that a filter takes."""
    messages: list[MessageExt] = []
    offset, codes = 0, (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
    while True:
        pulled = await client.pull(topic, offset, max_msg_nums=4096, consumer_group=TOOLS_CONSUMER_GROUP, **fields)
        messages += pulled.messages
        if pulled.code not in codes or pulled.header.next_begin_offset <= offset:
            return messages
        offset = pulled.header.next_begin_offset


class _OneByOne(MessageStore):
    takes_runs = False

    def put_alone(self, *arguments: Any) -> None:
        return None


Scene = Callable[[TwoPaths], Coroutine[Any, Any, None]]


def with_both(scene: Scene, *, pool: bool = True, keys: Credentials | None = None, **settings: str) -> None:
    """Run the scene with two brokers whose stores hold one message in each queue, under virtual time.

    Args:
        scene: What the brokers are asked.
        pool: Whether the second broker has a transient store pool. Otherwise its store says that it takes no runs.
        keys: What the clients sign their requests with, if the brokers have access control.
        settings: Further settings of both.
    """

    async def side(undo: AsyncExitStack, clock: Any, settings: dict[str, str]) -> Side:
        transport = MemoryTransport()
        broker = EmbeddedBroker(
            transport=transport, clock=clock, settings=settings, name_server_port=9876, broker_port=10911
        )
        embedded = await undo.enter_async_context(broker)
        client = await RawClient.connect(transport, embedded.broker_address)
        undo.push_async_callback(client.connection.close)
        if keys is not None:
            client.connection.sign_with(keys)
        return Side(client, embedded)

    async def main(clock: Any) -> None:
        used = SMALL_FILES | settings
        async with AsyncExitStack() as undo:
            at_once = await side(undo, clock, used)
            one_by_one = await side(undo, clock, used | ({"transientStorePoolEnable": "true"} if pool else {}))
            if not pool:
                one_by_one.embedded.broker.store.__class__ = _OneByOne
            for each in (at_once, one_by_one):
                await each.client.create_topic("orders", queues=4)
                for queue_id in range(4):
                    properties = {"KEYS": "first", "TAGS": "first"} if queue_id == 0 else {}
                    await each.client.send(body=b"first", properties=properties, queue_id=queue_id)
                each.embedded.broker.store.commit()
            both = TwoPaths(at_once, one_by_one)
            both.assert_same_stores()
            await scene(both)
            both.assert_same_stores()

    with VirtualTime() as time:
        time.run(main(time.clock))
