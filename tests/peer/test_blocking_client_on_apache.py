"""The blocking client on Apache's brokers."""

from rocket_client.blocking import BlockingClient, MessageQueue, ProducerSettings, PullRequest, QueueRange
from rocket_client.core.pull_answer import PullStatus
from rocket_client.core.send_result import SendStatus
from rocket_remoting import Message
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, eventually

COUNT = 40


def test_blocking_client_writes_and_reads_a_topic(apache_broker: ApacheBroker) -> None:
    """Created by its first message; offsets, pulls of all kinds and commits find their queue and its broker."""
    settings = ProducerSettings(name_servers=apache_broker.name_server, request_timeout=ANSWER_TIMEOUT)
    with BlockingClient("blocking-readers", settings) as client:
        queue: MessageQueue | None = None
        for number in range(COUNT):
            message = Message("blocking-orders", b"%d" % number, tags="even" if number % 2 == 0 else "odd")
            result = client.send(message, queue=queue, timeout=ANSWER_TIMEOUT.total_seconds())
            assert result.status is SendStatus.SEND_OK
            queue = result.message_queue
        assert queue is not None
        assert queue in client.queues("blocking-orders")
        assert "blocking-orders" in client.topics()
        # Apache's broker adds messages to their queue after its answers.
        assert eventually(lambda: client.max_offset(queue), lambda end: end == COUNT) == COUNT
        assert client.min_offset(queue) == 0
        assert client.min_offsets([queue]) == {queue: 0}
        assert client.max_offsets([queue]) == {queue: COUNT}
        assert 0 <= client.search_offset(queue, 0) <= COUNT

        # The group has no offset. 4.9 answers 0 nevertheless while the queue's first message is in memory.
        assert client.committed_offset(queue) == (0 if apache_broker.version == "4.9.7" else None)
        pulled = client.pull(queue, 0, expression="odd")
        assert [int(message.body) % 2 for message in pulled.messages()] == [1] * (COUNT // 2)
        client.commit_offset(queue, 7)
        assert client.committed_offset(queue) == 7
        client.commit_offsets({queue: 9})
        assert client.committed_offset(queue) == 9

        assert client.pull(queue, COUNT).status is PullStatus.NO_NEW_MSG
        assert client.pull(queue, COUNT + 100).status is PullStatus.OFFSET_ILLEGAL
        many = client.pull_many([PullRequest(queue, number, 1) for number in range(COUNT)])
        assert sorted(int(message.body) for result in many for message in result.messages()) == list(range(COUNT))
        parts = list(client.read_ranges([QueueRange(queue, 3, COUNT)]))
        assert (parts[0].start, parts[-1].end) == (3, COUNT)
        assert not any(part.is_lost for part in parts)
