"""Idempotent batches, stored once however often they are sent: request 70001."""

import asyncio
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client.blocking import BlockingClient, MessageQueue, ProducerSettings, Request
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED, sequence_key, writer_id
from rocket_remoting.wire.headers import SendDeduplicatedRequestHeader, SendMessageResponseHeader
from rocket_remoting.wire.message import Message
from tests.end_to_end.raw_client import RawClient, with_broker

WRITER = writer_id("query", 3)


def batch(
    queue: MessageQueue,
    epoch: int,
    numbers: range,
    writer: str = WRITER,
    *,
    last: bytes | None = None,
) -> Request:
    """Return messages of an epoch with numbers as bodies, up to ``last``."""
    messages = [
        Message(
            queue.topic,
            b"%d/%d" % (epoch, number),
            properties={"UNIQ_KEY": sequence_key(writer, epoch, number)},
        )
        for number in numbers
    ]
    if last is not None:
        messages[-1].body = last
    header = SendDeduplicatedRequestHeader(
        producer_group="g", topic=queue.topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=queue.queue_id, sys_flag=0, born_timestamp=1, flag=0, batch=True,
        writer=writer, epoch=epoch, sequence=numbers.start,
    )  # fmt: skip
    return Request(SEND_DEDUPLICATED, header, encode_batch(messages))


class Scene:
    """A client and a queue of one topic."""

    def __init__(self, broker: ThreadedBroker) -> None:
        self.client = BlockingClient("g", ProducerSettings(name_servers=broker.name_server))
        self.queue = self.client.publish_queues("once")[0]

    def send(self, epoch: int, numbers: range, writer: str = WRITER) -> RemotingCommand:
        """Return the answer to a batch."""
        return self.client.ask(self.queue, batch(self.queue, epoch, numbers, writer))

    def stored(self) -> list[str]:
        """Return the bodies in the queue."""
        end = self.client.max_offset(self.queue)
        return [m.body.decode() for m in self.client.pull(self.queue, 0, max_messages=end + 1).messages()]


@pytest.mark.parametrize("settings", [{}, {"flushDiskType": "SYNC_FLUSH"}])
def test_repeated_batch_is_not_stored_again(settings: dict[str, str]) -> None:
    """The same batch, an overlapping one, and one of an earlier epoch are answered with success."""
    with ThreadedBroker(settings=settings) as broker:
        scene = Scene(broker)
        with scene.client:
            for epoch, numbers in (
                (0, range(3)), (0, range(3)), (0, range(1, 5)), (0, range(2)),
                (1, range(2)), (0, range(5)), (1, range(2)),
            ):  # fmt: skip
                assert scene.send(epoch, numbers).code == ResponseCode.SUCCESS
            assert scene.stored() == ["0/0", "0/1", "0/2", "0/3", "0/4", "1/0", "1/1"]
            other = scene.send(0, range(1), writer_id("other"))
            assert other.header(SendMessageResponseHeader).queue_offset == 7


def test_repeated_batch_is_recognised_after_a_restart(tmp_path: Path) -> None:
    """By the index: whole batches, parts of them, and earlier epochs."""
    with ThreadedBroker(tmp_path) as broker:
        scene = Scene(broker)
        with scene.client:
            for epoch, numbers in ((0, range(10)), (1, range(7))):
                assert scene.send(epoch, numbers).code == ResponseCode.SUCCESS
            before = scene.stored()
    for epoch, numbers, added in (
        (1, range(7), []),
        (1, range(5, 9), ["1/7", "1/8"]),
        (0, range(3, 8), []),
        (1, range(9, 10), ["1/9"]),
        (2, range(1), ["2/0"]),
    ):
        with ThreadedBroker(tmp_path) as broker:
            scene = Scene(broker)
            with scene.client:
                assert scene.send(epoch, numbers).code == ResponseCode.SUCCESS
                assert scene.stored() == before + added
                before += added


def test_damaged_message_does_not_block_its_writer(tmp_path: Path) -> None:
    """After a restart it is found by its key, whatever its other properties."""
    with ThreadedBroker(tmp_path) as broker:
        scene = Scene(broker)
        with scene.client:
            assert scene.send(0, range(3)).code == ResponseCode.SUCCESS
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(log.read_bytes().rindex(b"CLUSTER"))
        file.write(b"\xff")
    with ThreadedBroker(tmp_path) as broker:
        scene = Scene(broker)
        with scene.client:
            assert scene.send(0, range(1, 5)).code == ResponseCode.SUCCESS
            assert scene.stored() == [f"0/{number}" for number in range(5)]


@pytest.mark.parametrize("known", [True, False])
def test_gap_in_the_sequence_is_refused(known: bool) -> None:
    """The sender must first send the missing messages."""
    with ThreadedBroker() as broker:
        scene = Scene(broker)
        with scene.client:
            if known:
                scene.send(0, range(2))
            refused = scene.send(0, range(3, 5))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "out of sequence" in (refused.remark or "")
            assert scene.send(1, range(1, 2)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert scene.send(0, range(5)).code == ResponseCode.SUCCESS
            assert scene.stored() == [f"0/{number}" for number in range(5)]


@pytest.mark.parametrize("pool", ["true", "false"])
def test_rest_of_a_partly_stored_batch_is_stored(pool: str) -> None:
    """The stored part is found, even in the transient store pool."""
    settings = {
        "transientStorePoolEnable": pool,
        "commitIntervalCommitLog": "60000",
        "mappedFileSizeCommitLog": "65536",
    }
    with ThreadedBroker(settings=settings) as broker:
        scene = Scene(broker)
        with scene.client:
            longer_than_a_file = batch(scene.queue, 0, range(3), last=bytes(70_000))
            assert scene.client.ask(scene.queue, longer_than_a_file).code == ResponseCode.MESSAGE_ILLEGAL
            assert scene.send(0, range(3)).code == ResponseCode.SUCCESS
            assert scene.send(0, range(3, 4)).header(SendMessageResponseHeader).queue_offset == 3


def test_batch_with_wrong_keys_is_refused() -> None:
    """Keys other than the header's could not be found again."""
    with ThreadedBroker() as broker:
        scene = Scene(broker)
        with scene.client:
            scene.send(0, range(1), writer_id("other"))
            honest = batch(scene.queue, 0, range(2))
            assert isinstance(honest.header, SendDeduplicatedRequestHeader)
            honest.header.sequence = 1
            refused = scene.client.ask(scene.queue, honest)
            assert (refused.code, scene.stored()) == (ResponseCode.MESSAGE_ILLEGAL, ["0/0"])
            torn = scene.client.ask(scene.queue, honest._replace(body=bytes(honest.body)[:-1]))
            assert torn.code == ResponseCode.MESSAGE_ILLEGAL


def test_large_batches_are_stored_once(tmp_path: Path) -> None:
    """Repeated, overlapping, under a later epoch, and after a restart."""
    large = [f"0/{number}" for number in range(300)] + [f"1/{number}" for number in range(200)]
    with ThreadedBroker(tmp_path) as broker:
        scene = Scene(broker)
        with scene.client:
            for epoch, numbers in (
                (0, range(1)), (0, range(200)), (0, range(200)), (0, range(100, 300)), (1, range(200)),
                (0, range(300)),
            ):  # fmt: skip
                assert scene.send(epoch, numbers).code == ResponseCode.SUCCESS
            assert scene.stored() == large
    with ThreadedBroker(tmp_path) as broker:
        scene = Scene(broker)
        with scene.client:
            assert scene.send(1, range(150)).code == ResponseCode.SUCCESS
            answer = scene.send(1, range(200, 300)).header(SendMessageResponseHeader)
            assert (answer.queue_offset, len(answer.msg_id.split(","))) == (500, 100)
            assert scene.stored() == large + [f"1/{number}" for number in range(200, 300)]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b"00000003", b"00000004"),
        (b"0000000A", b"0000000a"),
        (b"00000004", b"0000000/"),
        (WRITER.encode(), WRITER.encode()[::-1]),
        (b"UNIQ_KEY", b"ELSE_KEY"),
    ],
)
def test_one_wrong_key_in_a_large_batch_is_refused(right: bytes, wrong: bytes) -> None:
    """Nothing of the batch is stored."""
    with ThreadedBroker() as broker:
        scene = Scene(broker)
        with scene.client:
            scene.send(0, range(1), writer_id("other"))
            honest = batch(scene.queue, 0, range(200))
            damaged = honest._replace(body=bytes(honest.body).replace(right, wrong, 1))
            assert scene.client.ask(scene.queue, damaged).code == ResponseCode.MESSAGE_ILLEGAL
            assert scene.stored() == ["0/0"]
            assert scene.send(0, range(200)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("settings", "code"),
    [({}, ResponseCode.SUCCESS), ({"messageIndexEnable": "false"}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)],
)
def test_support_can_be_queried(settings: dict[str, str], code: ResponseCode) -> None:
    """A request without a body stores nothing; a broker without an index does not support it."""
    with ThreadedBroker(settings=settings) as broker:
        scene = Scene(broker)
        with scene.client:
            question = batch(scene.queue, 0, range(0))._replace(body=b"")
            assert scene.client.ask(scene.queue, question).code == code


def test_concurrent_repetition_of_a_batch_is_refused() -> None:
    """Its sender asks again, and by then the batch is stored once."""
    size = 5_000

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("once")
        request = batch(MessageQueue("once", "broker-a", 0), 0, range(size))
        body = bytes(request.body)
        again = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        first, second = await asyncio.gather(
            client.ask(SEND_DEDUPLICATED, request.header, body),
            again.ask(SEND_DEDUPLICATED, request.header, body),
        )
        assert {first.code, second.code} == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert (await again.ask(SEND_DEDUPLICATED, request.header, body)).code == ResponseCode.SUCCESS
        assert await client.end("once") == size
        await again.connection.close()

    with_broker(scene)
