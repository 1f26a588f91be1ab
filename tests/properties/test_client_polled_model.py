"""Messages that wait for polls, compared with a model: the next queue, consumed offsets, and when pulls stop."""

import asyncio
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocket_client import LitePullConsumerSettings, UnreadableBodyError
from rocket_client.consuming.consume_polled import PolledConsumption
from rocket_client.consuming.offsets import LocalOffsets
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_remoting.wire.message import MessageExt, MessageQueue

THRESHOLD, BATCH = 6, 2
NUMBERS = st.integers(0, 2)


class PolledMachine(RuleBasedStateMachine):
    """Pulls, polls, pauses, and queues that are revoked, kept or reset."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gate, self.offsets = PullGate(), LocalOffsets(Path("/nowhere/offsets.json"))
        asked = LitePullConsumerSettings(name_servers="a:1", pull_threshold_for_all=THRESHOLD, pull_batch_size=BATCH)
        self.consumption = PolledConsumption(asked, self.offsets, self.gate, UnpackedBodies(asked), self.reject)
        self.queues = [ProcessQueue(MessageQueue("orders", "broker-a", number)) for number in range(3)]
        self.pulled = [0, 0, 0]
        self.polled = [0, 0, 0]
        self.under_way: tuple[int, int] | None = None

    async def reject(self, message: MessageExt, error: UnreadableBodyError) -> None:
        """Fail: no body is compressed."""
        raise AssertionError(message) from error

    def teardown(self) -> None:
        """Leave nothing open."""
        self.loop.close()

    def poll(self) -> list[MessageExt]:
        """Return the result of a poll without waiting; the previous poll's messages count as consumed."""
        self.consumption.settle()
        return self.loop.run_until_complete(self.consumption.poll(0))

    @rule(number=NUMBERS, count=st.integers(0, 5))
    def pull(self, number: int, count: int) -> None:
        """Add further messages of a queue, or none because all are present."""
        begin = self.pulled[number]
        messages = [MessageExt("orders", b"x", queue_id=number, queue_offset=begin + step) for step in range(count)]
        queue = self.queues[number]
        self.consumption.submit(queue, queue.put(messages))
        self.pulled[number] += count

    @rule()
    def take(self) -> None:
        """Poll: it returns the next messages of a queue that is not paused, or none only if none wait."""
        self.under_way = None
        messages = self.poll()
        ready = {
            number
            for number, queue in enumerate(self.queues)
            if self.polled[number] < self.pulled[number] and not self.gate.is_paused(queue.message_queue)
        }
        assert bool(messages) == bool(ready)
        if messages:
            number, begin = messages[0].queue_id, messages[0].queue_offset
            assert number in ready
            assert begin == self.polled[number]
            end = min(begin + BATCH, self.pulled[number])
            assert [message.queue_offset for message in messages] == list(range(begin, end))
            self.polled[number] = end
            self.under_way = number, begin

    @rule(number=NUMBERS, paused=st.booleans())
    def pause(self, number: int, paused: bool) -> None:
        """Pause or resume."""
        change = self.gate.pause if paused else self.gate.resume
        change([self.queues[number].message_queue])

    @rule(number=NUMBERS, reset=st.booleans())
    def give_back(self, number: int, reset: bool) -> None:
        """Revoke the queue and assign it again, at the group's offset or at its beginning."""
        queue, fresh = self.queues[number], ProcessQueue(self.queues[number].message_queue)
        queue.dropped = True
        if reset:
            queue.clear()
        self.consumption.detach(queue)
        at = 0 if reset else self.consumed(number)
        if not reset and self.pulled[number]:
            assert self.offsets.get(queue.message_queue) == at
        self.queues[number] = fresh
        fresh.skip_to(at)
        self.pulled[number] = self.polled[number] = at
        if self.under_way and self.under_way[0] == number:
            self.under_way = None

    def consumed(self, number: int) -> int:
        """Check the consumed offset: the last poll's messages do not count."""
        if self.under_way and self.under_way[0] == number:
            return self.under_way[1]
        return self.polled[number]

    @invariant()
    def pulls_are_held_back_while_too_many_wait(self) -> None:
        """Check that pulls stop exactly while too many messages wait."""
        waiting = sum(self.pulled) - sum(self.polled)
        assert self.gate.is_open == (waiting <= THRESHOLD)


TestPolledModel = PolledMachine.TestCase
TestPolledModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
