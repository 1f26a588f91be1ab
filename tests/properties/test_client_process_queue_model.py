"""The process queue compared with a model: a set of unsettled offsets."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_remoting.wire.message import MessageExt, MessageQueue


class ProcessQueueMachine(RuleBasedStateMachine):
    """Pulls, settlements in any order, messages pulled twice, offset resets."""

    pulled = Bundle("pulled")

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(MessageQueue("orders", "broker-a", 0))
        self.next = 100
        self.unsettled: dict[int, int] = {}
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

    @invariant()
    def agrees_with_the_model(self) -> None:
        """Check count, size, span and smallest offset."""
        assert len(self.queue) == len(self.unsettled)
        assert self.queue.size == sum(self.unsettled.values())
        assert self.queue.smallest_unsettled() == min(self.unsettled, default=self.after_last)
        span = max(self.unsettled) - min(self.unsettled) if self.unsettled else 0
        assert self.queue.max_span == span


TestProcessQueueModel = ProcessQueueMachine.TestCase
TestProcessQueueModel.settings = settings(max_examples=40, stateful_step_count=30)
