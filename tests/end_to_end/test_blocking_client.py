"""The blocking client against the bundled broker."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client.blocking import BlockingClient, PullRequest
from rocket_client.errors import (
    BrokerNotFoundError,
    IllegalMessageError,
    NameServersUnreachableError,
    SendError,
    SendTimeoutError,
    TopicNotFoundError,
)
from rocket_client.pull_answer import PullStatus
from rocket_client.selectors import select_by_hash
from rocket_client.send_result import SendStatus
from rocket_client.settings import ProducerSettings
from rocket_remoting.errors import ConnectError, ResponseError
from rocket_remoting.message import Message, MessageQueue


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """One broker for all tests here: each has its own topic."""
    with ThreadedBroker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadedBroker) -> Iterator[BlockingClient]:
    """A client of that broker."""
    with BlockingClient("blocking-group", ProducerSettings(name_servers=broker.name_server)) as made:
        yield made


@pytest.fixture
def queue(client: BlockingClient, request: pytest.FixtureRequest) -> MessageQueue:
    """A queue of a topic of the test's own, with 100 messages: bodies 0 … 99, tags even and odd."""
    topic = str(request.node.name).replace("[", "-").replace("]", "")
    queue = client.publish_queues(topic)[1]
    for start in range(0, 100, 25):
        numbers = range(start, start + 25)
        messages = [Message(topic, b"%d" % n, tags="odd" if n % 2 else "even") for n in numbers]
        client.send_batch(messages, queue=queue)
    return queue


def test_a_message_goes_and_comes(client: BlockingClient) -> None:
    """What is sent can be pulled where the result says it is, properties included."""
    sent = Message("goes-and-comes", b"a body" * 1000, tags="new", keys="k1", properties={"colour": "red"})
    result = client.send(sent)
    assert (result.status, result.msg_id) == (SendStatus.SEND_OK, sent.unique_key)
    pulled = client.pull(result.message_queue, result.queue_offset)
    (message,) = pulled.messages()
    assert (message.body, message.tags, message.keys) == (sent.body, "new", "k1")
    assert (message.properties["colour"], message.msg_id) == ("red", result.msg_id)
    assert message.queue == result.message_queue
    assert pulled.next_offset == result.queue_offset + 1


def test_queues_of_a_topic(client: BlockingClient, queue: MessageQueue) -> None:
    """A topic's queues are listed, those to read as well as those to write; an unknown topic is an error."""
    assert client.queues(queue.topic) == client.publish_queues(queue.topic)
    assert queue in client.queues(queue.topic)
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        client.queues("no-such-topic")


def test_offsets(client: BlockingClient, queue: MessageQueue) -> None:
    """Ends of a queue are known, a moment leads to a message, and a group's place is kept."""
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 100)
    first = client.pull(queue, 0, max_messages=1).messages()[0]
    found = client.search_offset(queue, first.store_timestamp)
    assert client.pull(queue, found).messages()[0].store_timestamp == first.store_timestamp
    assert client.committed_offset(queue) in (None, 0)
    client.commit_offset(queue, 42)
    assert client.committed_offset(queue) == 42


def test_a_queue_read_to_its_end(client: BlockingClient, queue: MessageQueue) -> None:
    """Pull after pull leads to the end, where there is nothing new."""
    offset, bodies = 0, []
    while (result := client.pull(queue, offset)).status is PullStatus.FOUND:
        bodies += [message.body for message in result.messages()]
        offset = result.next_offset
    assert bodies == [b"%d" % number for number in range(100)]
    assert (result.status, result.max_offset) == (PullStatus.NO_NEW_MSG, 100)
    assert client.pull(queue, 1000).status is PullStatus.OFFSET_ILLEGAL


def test_tags_are_filtered(client: BlockingClient, queue: MessageQueue) -> None:
    """A tag expression leaves the other messages out."""
    messages = client.pull(queue, 0, expression="odd || other", max_messages=10).messages()
    assert [message.body for message in messages] == [b"%d" % number for number in range(1, 20, 2)]


def test_waiting_for_a_message(client: BlockingClient, queue: MessageQueue) -> None:
    """A pull at the end may wait; it is answered when a message comes."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.pull, queue, 100, wait=10.0)
        client.send(Message(queue.topic, b"new"), queue=queue)
        assert [message.body for message in waiting.result(5).messages()] == [b"new"]


def test_many_pulls_under_way(client: BlockingClient, queue: MessageQueue) -> None:
    """Many pulls share a connection, and each result knows what was asked."""
    requests = (PullRequest(queue, offset, 5) for offset in range(0, 100, 5))
    results = {result.request.offset: result for result in client.pull_many(requests, depth=8)}
    bodies = [message.body for offset in sorted(results) for message in results[offset].messages()]
    assert bodies == [b"%d" % number for number in range(100)]


def test_a_selector_chooses_the_queue(client: BlockingClient) -> None:
    """Messages with one key go to one queue, in order."""
    results = [
        client.send(Message("chosen", b"%d" % n), selector=select_by_hash, argument="key") for n in range(5)
    ]
    assert len({result.message_queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(5))


def test_sends_go_round_the_queues(client: BlockingClient) -> None:
    """Without a choice, messages are spread over the topic's queues."""
    results = [client.send(Message("spread", b"x")) for _ in range(8)]
    assert {result.message_queue.queue_id for result in results} == set(range(4))


def test_refusals(client: BlockingClient, queue: MessageQueue) -> None:
    """What cannot be sent, or asked, is told with its reason."""
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


def test_no_name_server() -> None:
    """Without a name server there is no route, and the error tells all that were tried."""
    settings = ProducerSettings(
        name_servers="127.0.0.1:1;127.0.0.1:2", connect_timeout=timedelta(milliseconds=200)
    )
    with BlockingClient("g", settings) as client, pytest.raises(NameServersUnreachableError) as raised:
        client.queues("any")
    assert len(raised.value.causes) == 2


def test_the_next_name_server_is_asked(broker: ThreadedBroker) -> None:
    """One dead name server does not matter."""
    settings = ProducerSettings(name_servers=f"127.0.0.1:1;{broker.name_server};127.0.0.1:2")
    with BlockingClient("g", settings) as client:
        assert client.send(Message("next-name-server", b"x")).status is SendStatus.SEND_OK


def test_a_broker_that_was_started_anew(client: BlockingClient) -> None:
    """A client outlives its broker: reads go on at the same address, and known routes serve meanwhile."""
    with ThreadedBroker() as first:
        ports = [int(address.rpartition(":")[2]) for address in (first.name_server, first.address)]
        settings = ProducerSettings(name_servers=first.name_server)
        other = BlockingClient("g", settings)
        queue = other.send(Message("anew", b"x")).message_queue
    with ThreadedBroker(name_server_port=ports[0], broker_port=ports[1]):
        assert other.max_offset(queue) == 0
        assert other.send(Message("anew", b"y")).status is SendStatus.SEND_OK
    other.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_lost_broker_costs_no_route() -> None:
    """With all name servers away as well, the route stays for when the broker comes back (B8)."""
    with ThreadedBroker() as running:
        settings = ProducerSettings(name_servers=running.name_server, request_timeout=timedelta(seconds=1))
        client = BlockingClient("blocking-group", settings)
        queue = client.send(Message("lost", b"x")).message_queue
    with client:
        for _ in range(2):
            with pytest.raises(ConnectError):
                client.max_offset(queue)


def test_a_forked_child_goes_on(client: BlockingClient) -> None:
    """A client made before a fork serves parent and child: the way Spark's workers are made."""
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
    """Threads send and pull at once over one client."""
    queue = client.publish_queues("threads")[0]
    with ThreadPoolExecutor(8) as threads:
        results = list(
            threads.map(lambda n: client.send(Message("threads", b"%d" % n), queue=queue), range(100))
        )
    assert sorted(result.queue_offset for result in results) == list(range(100))
