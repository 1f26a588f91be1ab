"""What must be true of a broker after the requests that it has answered, as simply as it can be said."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import GetStatus
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.record import decode_record
from tests.state_campaign.broken import Broken

__all__ = ["Expected", "Half", "Model", "Sent"]

QueueName = tuple[str, int]
OffsetName = tuple[str, str, int]

LATE_SECONDS = 5.0
"""How much later than asked for a delayed message may come."""
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Sent:
    """A message with its answer.

    Attributes:
        body: No other message has this body.
        at: The virtual time in seconds.
        message_id: The offset id in the answer.
        unique_key: The id that its producer gave it; empty: none.
    """

    body: bytes
    tag: str
    at: float
    message_id: str
    unique_key: str


@dataclass
class Expected:
    """A message that the broker is to store in a queue later.

    Attributes:
        body: No other message has this body.
        queue: Where it is to come.
        due: Virtual seconds, before which it may not be there.
        kills: How often the broker had been killed when the message was sent: after a kill it may come twice.
        handle: What a timed message can be recalled by.
        is_cancelled: Whether it may not come any more.
    """

    body: bytes
    queue: QueueName
    due: float
    kills: int
    handle: str | None = None
    is_cancelled: bool = False


@dataclass
class Half:
    """A half message.

    Attributes:
        body: No other message has this body.
        queue: Where a commit puts it.
        queue_offset: Its place among the half messages.
        message_id: Its offset id.
        unique_key: What its transaction is known by.
        at: When it was sent, in virtual seconds.
        outcome: None while its transaction is open.
    """

    body: bytes
    queue: QueueName
    queue_offset: int
    message_id: str
    unique_key: str
    at: float
    outcome: str | None = None


@dataclass
class Model:
    """What was told to the broker, and what the broker answered.

    Attributes:
        topics: The topics that exist for certain, as they are.
        sent: All bodies ever sent.
        acknowledged: Queue -> offset -> message.
        expected: Messages that come later.
        halves: Half messages, by body.
        committed: (group, topic, queue id) -> offset.
        doubtful: Keys of `committed` that a kill or a reset may have changed.
        locks: (group, queue) -> client and when its lock ends.
        values: The name server's key-value configuration.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    sent: set[bytes] = field(default_factory=set)
    acknowledged: defaultdict[QueueName, dict[int, Sent]] = field(default_factory=lambda: defaultdict(dict))
    expected: list[Expected] = field(default_factory=list)
    halves: dict[bytes, Half] = field(default_factory=dict)
    committed: dict[OffsetName, int] = field(default_factory=dict)
    doubtful: set[OffsetName] = field(default_factory=set)
    locks: dict[tuple[str, QueueName], tuple[str, float]] = field(default_factory=dict)
    values: dict[tuple[str, str], str] = field(default_factory=dict)

    def note_sent(self, queue: QueueName, offset: int, sent: Sent) -> None:
        """Note a message that was acknowledged at an offset.

        Raises:
            Broken: Another one was.
        """
        known = self.acknowledged[queue].setdefault(offset, sent)
        if known is not sent:
            raise Broken("offset given twice", f"{sent} and {known} were both told offset {offset} of {queue}")

    def forget_topic(self, topic: str) -> None:
        """Forget what a deleted topic had."""
        self.topics.pop(topic, None)
        for queue in [queue for queue in self.acknowledged if queue[0] == topic]:
            del self.acknowledged[queue]
        self.expected = [expected for expected in self.expected if expected.queue[0] != topic]
        for half in [half for half in self.halves.values() if half.queue[0] == topic]:
            del self.halves[half.body]
        self.forget_offsets(lambda key: key[1] == topic)

    def forget_offsets(self, is_gone: Callable[[OffsetName], bool]) -> None:
        """Forget the committed offsets that a predicate names."""
        for key in [key for key in self.committed if is_gone(key)]:
            del self.committed[key]
        self.doubtful = {key for key in self.doubtful if not is_gone(key)}

    def broker_killed(self) -> None:
        """Take note of what a killed broker may forget: the newest offsets, and all locks."""
        self.doubtful |= self.committed.keys()
        self.locks.clear()

    def readable(self, topic: str) -> int:
        """Return how many queues of a topic can be read for certain."""
        config = self.topics.get(topic)
        return config.read_queue_nums if config is not None and config.perm & 4 else 0

    def writable(self, topic: str) -> int:
        """Return how many queues of a topic can be written for certain."""
        config = self.topics.get(topic)
        return config.write_queue_nums if config is not None and config.perm & 2 else 0

    def audit(self, store: MessageStore, now: float, reserved: float, kills: int) -> None:
        """Compare all queues with what was acknowledged, and look for what should have come.

        Args:
            store: The broker's store.
            now: Virtual seconds.
            reserved: Seconds for which messages are kept.
            kills: How often the broker was killed.

        Raises:
            Broken: A message is lost, or is not where it belongs, or should not be there.
        """
        queues = {queue for queue, messages in self.acknowledged.items() if messages}
        for queue in sorted(queues | {expected.queue for expected in self.expected}):
            first, found = read_queue(store, queue)
            self._audit_acknowledged(queue, first, found, now - reserved)
            self._audit_others(queue, found)
            for expected in [expected for expected in self.expected if expected.queue == queue]:
                self._audit_expected(expected, first, found, now, kills)

    def _audit_acknowledged(self, queue: QueueName, first: int, found: dict[int, MessageExt], oldest: float) -> None:
        for offset, sent in list(self.acknowledged[queue].items()):
            if offset < first and sent.at < oldest:
                del self.acknowledged[queue][offset]
            elif offset not in found:
                raise Broken("acknowledged message lost", f"{sent} was at {offset} of {queue}, which begins at {first}")
            elif bytes(found[offset].body) != sent.body:
                raise Broken("other message in place", f"{found[offset]!r} is where {sent} was, {offset} of {queue}")

    def _audit_others(self, queue: QueueName, found: dict[int, MessageExt]) -> None:
        for offset, message in found.items():
            body = bytes(message.body)
            if body not in self.sent:
                raise Broken("message that nobody sent", f"{message!r} at {offset} of {queue}")
            half = self.halves.get(body)
            if half is not None and half.queue == queue and half.outcome != "commit":
                raise Broken("half message delivered", f"{half} is at {offset} of {queue}")

    def _audit_expected(
        self, expected: Expected, first: int, found: dict[int, MessageExt], now: float, kills: int
    ) -> None:
        times = [message.store_timestamp for message in found.values() if bytes(message.body) == expected.body]
        if times and expected.is_cancelled:
            raise Broken("cancelled message delivered", f"{expected} at {times}")
        if times and now < expected.due:
            raise Broken("message delivered early", f"{expected} at {times}, it is {now}")
        if len(times) > 1 and expected.kills == kills:
            raise Broken("message delivered twice", f"{expected} at {times}")
        if not times and not expected.is_cancelled and first == 0 and now > expected.due + LATE_SECONDS:
            raise Broken("delayed message lost", f"{expected}, it is {now}")
        if first > 0 or now > expected.due + LATE_SECONDS:
            self.expected.remove(expected)


def read_queue(store: MessageStore, queue: QueueName) -> tuple[int, dict[int, MessageExt]]:
    """Return a queue's first offset, and its messages by their offsets.

    Raises:
        Broken: The queue has a gap.
    """
    first, end = store.min_offset(*queue), store.max_offset(*queue)
    offset, found = first, dict[int, MessageExt]()
    while offset < end:
        result = store.get(*queue, offset, 1000, 1 << 24)
        if result.status is not GetStatus.FOUND or result.next_begin_offset <= offset:
            raise Broken("gap in a queue", f"{queue} from {first} to {end}: {result.status} at {offset}")
        for message in map(decode_record, result.records):
            if message.queue_offset != offset:
                raise Broken("gap in a queue", f"{message!r} follows {offset - 1} of {queue}")
            found[offset] = message
            offset += 1
    return first, found
