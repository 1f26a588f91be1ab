"""The process queue compared with a model: a set of unsettled offsets."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_remoting.wire.message import MessageExt, MessageQueue

QUESTIONS: dict[str, Callable[[ProcessQueue], object]] = {
    "count": len,
    "size": lambda queue: queue.size,
    "smallest": ProcessQueue.smallest_unsettled,
    "span": lambda queue: queue.max_span,
    "ends": ProcessQueue.cached_offsets,
}


class ProcessQueueMachine(RuleBasedStateMachine):
    """Pulls, settlements in any order, at once or together, and messages pulled twice."""

    pulled = Bundle("pulled")

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(MessageQueue("orders", "broker-a", 0))
        self.next = 100
        self.unsettled: dict[int, int] = {}
        self.messages: dict[int, MessageExt] = {}
        self.after_last = NOTHING_TO_COMMIT

    @rule(target=pulled, count=st.integers(1, 8), gap=st.integers(0, 3), size=st.integers(1, 9))
    def pull(self, count: int, gap: int, size: int) -> object:
        """Add further messages; gaps are messages with other tags."""
        self.next += gap
        messages = [MessageExt("orders", b"x" * size, queue_offset=self.next + step) for step in range(count)]
        assert list(self.queue.put(messages)) == messages
        self.next += count
        self.after_last = self.next
        self.unsettled |= {message.queue_offset: size for message in messages}
        self.messages |= {message.queue_offset: message for message in messages}
        return multiple(*messages)

    @rule(message=pulled)
    def pull_again(self, message: MessageExt) -> None:
        """Pull the same offset again, which is not added while it is present."""
        copy = MessageExt("orders", message.body, queue_offset=message.queue_offset)
        if message.queue_offset in self.unsettled:
            assert list(self.queue.put([copy])) == []

    @rule(count=st.integers(1, 8))
    def pull_in_vain(self, count: int) -> None:
        """Add further messages that the consumption does not take; the offset to commit does not pass them."""
        messages = [MessageExt("orders", b"x", queue_offset=self.next + step) for step in range(count)]
        self.queue.put(messages)
        self.queue.take_back(messages)
        self.after_last = self.next

    @rule(messages=st.lists(consumes(pulled), max_size=5))
    def settle(self, messages: list[MessageExt]) -> None:
        """Settle any messages in any order."""
        had = bool(self.unsettled)
        commit = self.queue.settle(messages)
        for message in messages:
            self.unsettled.pop(message.queue_offset, None)
        if not had:
            assert commit == NOTHING_TO_COMMIT
        else:
            assert commit == min(self.unsettled, default=self.after_last)

    @rule(messages=st.lists(consumes(pulled), max_size=8), first=st.sampled_from(sorted(QUESTIONS)))
    def get_done(self, messages: list[MessageExt], first: str) -> None:
        """Note messages that are done, in any order; they are removed when the first question comes."""
        self.queue.done += messages
        for message in messages:
            self.unsettled.pop(message.queue_offset, None)
        assert QUESTIONS[first](self.queue) == self.answers()[first]

    @rule(keeps=st.integers(0, 2))
    def get_all_done(self, keeps: int) -> None:
        """Note most messages as done, in the order in which they came."""
        messages = sorted(self.present(), key=lambda message: message.queue_offset)
        for message in messages[: len(messages) - keeps]:
            self.queue.done.append(message)
            del self.unsettled[message.queue_offset]

    def present(self) -> list[MessageExt]:
        """Return the messages that are not settled."""
        return [self.messages[offset] for offset in self.unsettled]

    def answers(self) -> dict[str, object]:
        """Return what the queue should answer."""
        offsets = self.unsettled
        smallest = min(offsets, default=self.after_last)
        return {
            "count": len(offsets),
            "size": sum(offsets.values()),
            "smallest": smallest,
            "span": max(offsets) - smallest if offsets else 0,
            "ends": (smallest, max(offsets)) if offsets else (0, 0),
        }

    @invariant()
    def agrees_with_the_model(self) -> None:
        """Check count, size, span and smallest offset."""
        assert {name: question(self.queue) for name, question in QUESTIONS.items()} == self.answers()


TestProcessQueueModel = ProcessQueueMachine.TestCase
TestProcessQueueModel.settings = settings(max_examples=40, stateful_step_count=30)
