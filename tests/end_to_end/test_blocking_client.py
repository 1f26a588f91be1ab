"""The blocking client against the bundled broker."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientMetrics
from rocket_client.blocking import BlockingClient, EncodedBatch, PullRequest, QueueRange, Request
from rocket_client.core.outgoing import OutgoingMessages
from rocket_client.core.pull_answer import PullStatus
from rocket_client.core.selectors import select_by_hash
from rocket_client.core.send_result import SendStatus
from rocket_client.errors import (
    BrokerNotFoundError,
    IllegalMessageError,
    NameServersUnreachableError,
    SendError,
    SendTimeoutError,
    TopicNotFoundError,
)
from rocket_client.settings import ClientSettings, ProducerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import ConnectError, ResponseError
from rocket_remoting.wire.message import Message, MessageQueue
from rocket_remoting.wire.message_id import UniqueIdGenerator
from rocket_remoting.wire.record import decode_records
from tests.ports import free_ports


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """One broker for all tests of this module: each has its own topic."""
    with ThreadedBroker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadedBroker) -> Iterator[BlockingClient]:
    """A client of that broker."""
    with BlockingClient("blocking-group", ProducerSettings(name_servers=broker.name_server)) as made:
        yield made


@pytest.fixture
def queue(client: BlockingClient, request: pytest.FixtureRequest) -> MessageQueue:
    """A queue of the test's own topic with 100 messages: bodies 0 … 99, tags even and odd."""
    topic = str(request.node.name).replace("[", "-").replace("]", "")
    queue = client.publish_queues(topic)[1]
    for start in range(0, 100, 25):
        numbers = range(start, start + 25)
        messages = [Message(topic, b"%d" % n, tags="odd" if n % 2 else "even") for n in numbers]
        client.send_batch(messages, queue=queue)
    return queue


def test_message_can_be_sent_and_pulled(client: BlockingClient) -> None:
    """At the offset of the send result, with its properties."""
    sent = Message("goes-and-comes", b"a body" * 1000, tags="new", keys="k1", properties={"colour": "red"})
    result = client.send(sent)
    assert (result.status, result.msg_id) == (SendStatus.SEND_OK, sent.unique_key)
    pulled = client.pull(result.message_queue, result.queue_offset)
    (message,) = pulled.messages()
    assert (message.body, message.tags, message.keys) == (sent.body, "new", "k1")
    assert (message.properties["colour"], message.msg_id) == ("red", result.msg_id)
    assert message.queue == result.message_queue
    assert pulled.next_offset == result.queue_offset + 1


def test_queues_of_a_topic_are_listed(client: BlockingClient, queue: MessageQueue) -> None:
    """Readable and writable ones; an unknown topic is an error."""
    assert client.queues(queue.topic) == client.publish_queues(queue.topic)
    assert queue in client.queues(queue.topic)
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        client.queues("no-such-topic")


def test_offsets_are_queried_searched_and_committed(client: BlockingClient, queue: MessageQueue) -> None:
    """Ends of a queue, offsets by time, and a group's committed offset."""
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 100)
    first = next(client.pull(queue, 0, max_messages=1).messages())
    found = client.search_offset(queue, first.store_timestamp)
    assert next(client.pull(queue, found).messages()).store_timestamp == first.store_timestamp
    assert client.committed_offset(queue) is None
    client.commit_offset(queue, 42)
    assert client.committed_offset(queue) == 42


def test_queue_is_read_to_its_end(client: BlockingClient, queue: MessageQueue) -> None:
    """Pull by pull, until there is no new message."""
    offset, bodies = 0, []
    while (result := client.pull(queue, offset)).status is PullStatus.FOUND:
        bodies += [message.body for message in result.messages()]
        offset = result.next_offset
    assert bodies == [b"%d" % number for number in range(100)]
    assert (result.status, result.max_offset) == (PullStatus.NO_NEW_MSG, 100)
    assert client.pull(queue, 1000).status is PullStatus.OFFSET_ILLEGAL


def test_tags_are_filtered(client: BlockingClient, queue: MessageQueue) -> None:
    """By a tag expression."""
    messages = client.pull(queue, 0, expression="odd || other", max_messages=10).messages()
    assert [message.body for message in messages] == [b"%d" % number for number in range(1, 20, 2)]


def test_pull_waits_for_a_message(client: BlockingClient, queue: MessageQueue) -> None:
    """It is answered when one is stored."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.pull, queue, 100, wait=10.0)
        client.send(Message(queue.topic, b"new"), queue=queue)
        assert [message.body for message in waiting.result(5).messages()] == [b"new"]


def test_many_concurrent_pulls_share_a_connection(client: BlockingClient, queue: MessageQueue) -> None:
    """Each result knows its request."""
    requests = (PullRequest(queue, offset, 5) for offset in range(0, 100, 5))
    results = {result.request.offset: result for result in client.pull_many(requests, depth=8)}
    bodies = [message.body for offset in sorted(results) for message in results[offset].messages()]
    assert bodies == [b"%d" % number for number in range(100)]


def test_ranges_are_read_to_their_end(client: BlockingClient, queue: MessageQueue) -> None:
    """Several ranges with pulls of any size: all messages in order, none beyond the end."""
    other = client.publish_queues(queue.topic)[2]
    client.send(Message(queue.topic, b"other"), queue=other)
    ranges = [QueueRange(queue, 10, 95), QueueRange(other, 0, 1)]
    for size in (1, 7, 4096):
        parts = client.read_ranges(ranges, max_messages=size)
        bodies = [message.body for part in parts for message in decode_records(part.records)]
        assert bodies == [b"%d" % number for number in range(10, 95)] + [b"other"]


def test_filtered_range_ends(client: BlockingClient, queue: MessageQueue) -> None:
    """Even if the filter drops every message."""
    parts = list(client.read_ranges([QueueRange(queue, 0, 100)], expression="none"))
    assert (parts[-1].end, any(part.is_lost for part in parts)) == (100, False)


def test_offsets_of_many_queues(client: BlockingClient, queue: MessageQueue) -> None:
    """All queues are queried and committed concurrently."""
    queues = client.queues(queue.topic)
    assert client.max_offsets(queues) == {each: 100 if each == queue else 0 for each in queues}
    assert set(client.min_offsets(queues).values()) == {0}
    client.commit_offsets({queue: 17})
    assert client.committed_offset(queue) == 17
    assert queue.topic in client.topics()


def encoded(client: BlockingClient, queue: MessageQueue, number: int) -> EncodedBatch:
    """Return a batch of two messages."""
    outgoing = OutgoingMessages("g", ProducerSettings(name_servers="x:1"), SystemClock(), UniqueIdGenerator(None))
    batch = outgoing.batch([Message(queue.topic, b"%d-%d" % (number, each)) for each in range(2)])
    header = outgoing.header(batch, queue.broker_name, queue.queue_id)
    return EncodedBatch(queue, Request(batch.code, header, batch.body), 2)


def test_concurrent_batches_are_stored_in_order(client: BlockingClient, queue: MessageQueue) -> None:
    """Encoded batches, many pending at a time."""
    with client.batch_sender(depth=4) as sender:
        for number in range(20):
            sender.put(encoded(client, queue, number))
        sender.flush()
        assert sender.stored == 40
    (part,) = client.read_ranges([QueueRange(queue, 100, 140)])
    bodies = [message.body for message in decode_records(part.records)]
    assert bodies == [b"%d-%d" % (number, each) for number in range(20) for each in range(2)]


def test_refused_batch_is_an_error(client: BlockingClient, queue: MessageQueue) -> None:
    """A final refusal is not retried."""
    with client.batch_sender() as sender:
        sender.put(encoded(client, MessageQueue(queue.topic, queue.broker_name, 99), 0))
        with pytest.raises(ResponseError, match="queueId"):
            sender.flush()


def test_unavailable_broker_is_an_error_after_the_timeout() -> None:
    """Reading and sending wait that long, then name the broker."""
    with ThreadedBroker() as running:
        settings = ProducerSettings(name_servers=running.name_server, connect_timeout=timedelta(seconds=1))
        client = BlockingClient("blocking-group", settings)
        queue = client.send(Message("away", b"x")).message_queue
    with client:
        with pytest.raises(ConnectError):
            list(client.read_ranges([QueueRange(queue, 0, 1)], patience=0.1))
        with client.batch_sender(patience=0.1) as sender:
            sender.put(encoded(client, queue, 0))
            with pytest.raises(ConnectError):
                sender.flush()


def test_reading_and_sending_continue_when_the_broker_returns(tmp_path: Path) -> None:
    """A sender and a reader go on where they were when their broker is there again."""
    name_server_port, broker_port = free_ports()
    ports = {"name_server_port": name_server_port, "broker_port": broker_port}
    with ThreadedBroker(tmp_path, **ports) as first:
        client = BlockingClient("g", ProducerSettings(name_servers=first.name_server))
        queue = client.send(Message("back", b"x")).message_queue
        sender = client.batch_sender()
        sender.put(encoded(client, queue, 0))
        sender.flush()
        reading = client.read_ranges([QueueRange(queue, 0, 5)], max_messages=1)
        parts = [next(reading)]
    with ThreadedBroker(tmp_path, **ports), client, sender:
        sender.put(encoded(client, queue, 1))
        sender.flush()
        parts += reading
    bodies = [message.body for part in parts for message in decode_records(part.records)]
    assert bodies == [b"x", b"0-0", b"0-1", b"1-0", b"1-1"]


def test_draining_broker_is_only_read() -> None:
    """It gets no more messages, and its queues can be read to their ends."""

    async def drain(name_server: str, broker_name: str) -> None:
        async with Admin(ClientSettings(name_servers=name_server)) as admin:
            await admin.wipe_write_perm(broker_name)

    with ThreadedBroker() as running:
        settings = ProducerSettings(name_servers=running.name_server)
        with BlockingClient("g", settings) as client:
            queue = client.send(Message("drained", b"x")).message_queue
        asyncio.run(drain(running.name_server, queue.broker_name))
        with BlockingClient("g", settings) as client:
            assert client.max_offsets(client.queues("drained"))[queue] == 1
            (part,) = client.read_ranges([QueueRange(queue, 0, 1)], patience=0.0)
            assert [message.body for message in decode_records(part.records)] == [b"x"]
            for create in (True, False):
                with pytest.raises(TopicNotFoundError, match="none of its queues can be written to"):
                    client.publish_queues("drained", create=create)


def test_offset_reset_does_not_affect_running_reads() -> None:
    """The reset redirects the group's next pull; these reads keep their own offsets and lose nothing."""

    async def reset(name_server: str, topic: str) -> None:
        async with Admin(ClientSettings(name_servers=name_server)) as admin:
            await admin.reset_offsets("g", topic, 0)

    with ThreadedBroker(settings={"useServerSideResetOffset": "true"}) as running:
        settings = ProducerSettings(name_servers=running.name_server)
        with BlockingClient("g", settings) as client:
            queue = client.publish_queues("reset")[0]
            client.send_batch([Message("reset", b"%d" % n) for n in range(20)], queue=queue)
            client.commit_offset(queue, 20)
            for expression in ("*", "none"):
                asyncio.run(reset(running.name_server, "reset"))
                asked = [QueueRange(queue, 5, 20)]
                parts = list(client.read_ranges(asked, expression=expression, max_messages=5))
                assert (parts[0].start, parts[-1].end, any(part.is_lost for part in parts)) == (5, 20, False)
                read = [message.queue_offset for part in parts for message in decode_records(part.records)]
                assert read == (list(range(5, 20)) if expression == "*" else [])


def test_deleted_messages_are_not_read_twice(tmp_path: Path) -> None:
    """When the first messages are deleted before the queue's minimum offset moved."""
    settings = {"mappedFileSizeCommitLog": "65536", "deleteCommitLogFilesInterval": "600000"}
    with ThreadedBroker(tmp_path, settings=settings) as running:
        client = BlockingClient("g", ProducerSettings(name_servers=running.name_server))
        with client:
            queue = client.publish_queues("deleted")[0]
            for start in range(0, 400, 50):
                messages = [Message("deleted", b"%d" % (start + n) + bytes(500)) for n in range(50)]
                client.send_batch(messages, queue=queue)
            *old, _ = sorted((tmp_path / "commitlog").iterdir())
            for file in old:
                os.utime(file, (0, 0))
            client.ask(queue, Request(RequestCode.DELETE_EXPIRED_COMMITLOG))
            while old[0].exists():
                client.pull(queue, 400, wait=0.05)
            assert client.min_offset(queue) == 0
            for size in (7, 50, 4096):
                parts = client.read_ranges([QueueRange(queue, 0, 390)], max_messages=size)
                offsets = [message.queue_offset for part in parts for message in decode_records(part.records)]
                assert offsets == list(range(offsets[0], 390))
                assert offsets[0] > 0


def test_selector_chooses_the_queue(client: BlockingClient) -> None:
    """Messages with one key go to one queue, in order."""
    results = [client.send(Message("chosen", b"%d" % n), selector=select_by_hash, argument="key") for n in range(5)]
    assert len({result.message_queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(5))


def test_sends_use_the_queues_in_turn(client: BlockingClient) -> None:
    """Without a choice, messages are spread over the topic's queues."""
    results = [client.send(Message("spread", b"x")) for _ in range(8)]
    assert {result.message_queue.queue_id for result in results} == set(range(4))


def test_refusals_have_a_reason(client: BlockingClient, queue: MessageQueue) -> None:
    """Of sends and queries."""
    with pytest.raises(IllegalMessageError, match="character"):
        client.send(Message("bad topic", b"x"))
    with pytest.raises(IllegalMessageError, match="empty"):
        client.send(Message("refusals", b""))
    with pytest.raises(SendError, match=r"1 attempt .*queueId.*99"):
        client.send(Message(queue.topic, b"x"), queue=MessageQueue(queue.topic, queue.broker_name, 99))
    with pytest.raises(SendError) as unknown:
        client.send(Message(queue.topic, b"x"), queue=MessageQueue(queue.topic, "no-such-broker", 0))
    assert isinstance(unknown.value.causes[0], BrokerNotFoundError)
    with pytest.raises(SendTimeoutError):
        client.send(Message(queue.topic, b"x"), timeout=0)
    with pytest.raises(ResponseError):
        client.pull(MessageQueue(queue.topic, queue.broker_name, 99), 0)


def test_missing_name_servers_are_an_error() -> None:
    """It lists all that were tried."""
    settings = ProducerSettings(name_servers="127.0.0.1:1;127.0.0.1:2", connect_timeout=timedelta(milliseconds=200))
    with BlockingClient("g", settings) as client, pytest.raises(NameServersUnreachableError) as raised:
        client.queues("any")
    assert len(raised.value.causes) == 2


def test_next_name_server_is_asked(broker: ThreadedBroker) -> None:
    """If one is unavailable."""
    settings = ProducerSettings(name_servers=f"127.0.0.1:1;{broker.name_server};127.0.0.1:2")
    with BlockingClient("g", settings) as client:
        assert client.send(Message("next-name-server", b"x")).status is SendStatus.SEND_OK


def test_client_survives_a_broker_restart(client: BlockingClient) -> None:
    """Reads continue at the same address, with the known routes."""
    name_server_port, broker_port = free_ports()
    ports = {"name_server_port": name_server_port, "broker_port": broker_port}
    with ThreadedBroker(**ports) as first:
        settings = ProducerSettings(name_servers=first.name_server)
        other = BlockingClient("g", settings)
        queue = other.send(Message("anew", b"x")).message_queue
    with ThreadedBroker(**ports):
        assert other.max_offset(queue) == 0
        assert other.send(Message("anew", b"y")).status is SendStatus.SEND_OK
    other.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_lost_broker_keeps_its_route() -> None:
    """Without name servers too, until the broker returns."""
    with ThreadedBroker() as running:
        settings = ProducerSettings(name_servers=running.name_server, request_timeout=timedelta(seconds=60))
        client = BlockingClient("blocking-group", settings)
        queue = client.send(Message("lost", b"x")).message_queue
    with client:
        for _ in range(2):
            with pytest.raises(ConnectError):
                client.max_offset(queue)


def test_forked_child_can_use_the_client(client: BlockingClient) -> None:
    """Parent and child, as Spark's workers do."""
    client.send(Message("forked", b"parent before"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.send(Message("forked", b"child"))
            status = 0
        finally:
            os._exit(status)
    client.send(Message("forked", b"parent after"))
    assert os.waitpid(child, 0)[1] == 0
    bodies = {
        message.body
        for queue in client.queues("forked")
        for message in client.pull(queue, client.min_offset(queue)).messages()
    }
    assert bodies == {b"parent before", b"child", b"parent after"}


def test_threads_share_a_client(client: BlockingClient) -> None:
    """Sending and pulling concurrently."""
    queue = client.publish_queues("threads")[0]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: client.send(Message("threads", b"%d" % n), queue=queue), range(100)))
    assert sorted(result.queue_offset for result in results) == list(range(100))


def counted(metrics: ClientMetrics) -> dict[str, float]:
    """Return the values that Prometheus' parser reads, by name and outcome, without buckets."""
    return {
        " ".join(filter(None, (sample.name, sample.labels.get("invocation_status")))): sample.value
        for family in text_string_to_metric_families(metrics.prometheus_text())
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_sends_and_pulls_are_counted(broker: ThreadedBroker) -> None:
    """From 0 on, by any thread; each batch of the batch sender as a send. Without the lag when the client is closed."""
    metrics = ClientMetrics()
    with BlockingClient("counted", ProducerSettings(name_servers=broker.name_server, metrics=metrics)) as client:
        queue = client.publish_queues("counted")[0]
        found = counted(metrics)
        assert found["rocketmq_send_cost_time_count success"] == 0
        assert found["streamkit_client_failed_attempts_total"] == 0
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: client.send(Message("counted", b"%d" % number), queue=queue), range(8)))
        with pytest.raises(SendError):
            client.send(Message("counted", b"lost"), queue=MessageQueue("counted", "absent", 0))
        client.queues("counted")
        assert counted(metrics)["streamkit_client_received_messages_total"] == 0
        client.pull(queue, 0, max_messages=3)
        found = counted(metrics)
        assert found["streamkit_client_received_messages_total"] == 3
        assert found["streamkit_client_lag_messages"] == 5
        for _ in client.read_ranges([QueueRange(queue, 3, 8)]):
            pass
        found = counted(metrics)
        assert found["streamkit_client_received_messages_total"] == 8
        assert found["streamkit_client_lag_messages"] == 0
        with client.batch_sender() as sender:
            sender.put(encoded(client, queue, 0))
            sender.flush()
    found = counted(metrics)
    assert found["rocketmq_send_cost_time_count success"] == 9
    assert found["rocketmq_send_cost_time_count failure"] == 1
    assert found["streamkit_client_failed_attempts_total"] == 1
    assert "streamkit_client_lag_messages" not in found
