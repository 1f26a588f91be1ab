"""The process queue: the offset to commit, and the limits on messages in memory."""

import asyncio
from collections.abc import Callable

import pytest

from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ListenerCalls, ProcessQueue
from rocket_remoting.wire.message import MessageExt, MessageQueue
from streamkit.testing.virtual_time import VirtualTime

QUEUE = MessageQueue("orders", "broker-a", 0)


def messages(first: int, last: int, size: int = 1) -> list[MessageExt]:
    return [MessageExt("orders", b"x" * size, queue_offset=offset) for offset in range(first, last + 1)]


def filled(first: int, last: int) -> tuple[ProcessQueue, dict[int, MessageExt]]:
    queue, pulled = ProcessQueue(QUEUE), messages(first, last)
    queue.put(pulled)
    return queue, {message.queue_offset: message for message in pulled}


def called(queue: ProcessQueue, message: MessageExt, *, began: float) -> ListenerCalls:
    calls = queue.begin_calls()
    calls.messages, calls.began = [message], began
    return calls


def test_settled_queue_commits_the_next_offset() -> None:
    """1001 … 1010 settled: 1011."""
    queue, pulled = filled(1001, 1010)
    assert queue.settle(pulled.values()) == 1011
    assert len(queue) == queue.size == 0


def test_smallest_unsettled_offset_is_committed() -> None:
    """1009 and 1010 unsettled: 1009."""
    queue, pulled = filled(1001, 1010)
    assert queue.settle([pulled[offset] for offset in range(1001, 1009)]) == 1009


def test_unsettled_message_holds_the_offset() -> None:
    """1001 unsettled: 1001, even if all later ones are settled."""
    queue, pulled = filled(1001, 1010)
    assert queue.settle([pulled[offset] for offset in range(1002, 1011)]) == 1001
    assert queue.settle([pulled[1001]]) == 1011


def test_settling_twice_has_nothing_to_commit() -> None:
    """The second call returns NOTHING_TO_COMMIT."""
    queue, pulled = filled(1, 1)
    assert queue.settle(pulled.values()) == 2
    assert queue.settle(pulled.values()) == NOTHING_TO_COMMIT


def test_message_in_the_queue_is_not_added_again() -> None:
    """Only new offsets are returned for consumption."""
    queue, _ = filled(1, 3)
    assert [message.queue_offset for message in queue.put(messages(2, 5))] == [4, 5]
    assert len(queue) == 5


def test_earlier_offsets_are_sorted_in() -> None:
    """After an offset reset, earlier messages arrive after later ones."""
    queue, _ = filled(10, 12)
    queue.put(messages(5, 6))
    assert queue.smallest_unsettled() == 5
    assert queue.cached_offsets() == (5, 12)


def test_size_counts_the_bodies() -> None:
    """In bytes, of the messages in the queue."""
    queue, pulled = ProcessQueue(QUEUE), messages(1, 4, size=100)
    queue.put(pulled)
    assert queue.size == 400
    queue.settle(pulled[:3])
    assert queue.size == 100


def test_span_is_between_unsettled_messages() -> None:
    """Settled messages at both ends do not count."""
    queue, pulled = filled(1, 100)
    assert queue.max_span == 99
    queue.settle([pulled[1], pulled[100], pulled[50]])
    assert queue.max_span == 97


@pytest.mark.parametrize(
    ("limits", "is_within"),
    [((3, 6, 2), True), ((2, 6, 2), False), ((3, 5, 2), False), ((3, 6, 1), False)],
    ids=["all", "messages", "bytes", "span"],
)
def test_queue_is_within_limits(limits: tuple[int, int, int], is_within: bool) -> None:
    queue = ProcessQueue(QUEUE)
    queue.put(messages(0, 2, size=2))
    assert queue.is_within(*limits) is is_within


def test_done_messages_are_not_within_the_limits_of_a_queue() -> None:
    queue = ProcessQueue(QUEUE)
    queue.done += queue.put(messages(0, 2, size=2))
    assert queue.is_within(0, 0, 0)


def test_free_capacity_wakes_the_puller_at_once(virtual: VirtualTime) -> None:
    """It does not wait for the end of its pause."""

    async def main() -> None:
        queue, pulled = filled(1, 10)
        loop = asyncio.get_running_loop()
        loop.call_later(1, queue.settle, [pulled[offset] for offset in range(1, 7)])
        loop.call_later(2, queue.settle, [pulled[7]])
        await queue.wait_for_capacity(3, 50)
        assert loop.time() == 2
        await queue.wait_for_capacity(1, 50)
        assert loop.time() == 52

    virtual.run(main())


def test_idle_waits_for_the_last_call(virtual: VirtualTime) -> None:
    """With two calls in progress, both must end."""

    async def main() -> None:
        queue, _ = filled(1, 2)
        loop = asyncio.get_running_loop()
        assert await queue.wait_idle(10)
        loop.call_later(1, queue.end_calls, queue.begin_calls())
        queue.begin(loop.time())
        loop.call_later(3, queue.end)
        assert not await queue.wait_idle(2)
        assert await queue.wait_idle(10)
        assert loop.time() == 3

    virtual.run(main())


def test_only_the_first_message_can_expire() -> None:
    """By the start time of the call that has it."""
    queue, pulled = filled(1, 3)
    called(queue, pulled[1], began=100)
    called(queue, pulled[2], began=50)
    assert queue.expired(before=90) is None
    assert queue.expired(before=101) is pulled[1]
    queue.settle([pulled[1]])
    assert queue.expired(before=90) is pulled[2]
    queue.settle([pulled[2]])
    assert queue.expired(before=1000) is None


def test_message_expires_only_in_its_call() -> None:
    """Not before the call begins, and not after it has ended."""
    queue, pulled = filled(1, 2)
    calls = called(queue, pulled[2], began=1)
    assert queue.expired(before=9) is None
    calls.messages, calls.began = [pulled[1], pulled[2]], 2
    assert "2 messages since 2" in repr(calls)
    assert queue.expired(before=2) is None
    assert queue.expired(before=9) is pulled[1]
    queue.end_calls(calls)
    assert queue.expired(before=9) is None
    assert queue.calls == 0


def test_orderly_messages_are_taken_and_put_back_at_the_front() -> None:
    """A failed message is the next one again."""
    queue = ProcessQueue(QUEUE)
    queue.enqueue(queue.put(messages(1, 5)))
    taken = queue.take(3)
    assert [message.queue_offset for message in taken] == [1, 2, 3]
    queue.put_back(taken)
    assert [message.queue_offset for message in queue.take(9)] == [1, 2, 3, 4, 5]
    assert not queue.has_waiting
    assert queue.smallest_unsettled() == 1


def test_returned_messages_are_a_separate_batch() -> None:
    """A batch contains either new or redelivered messages, so their attempts are equal."""
    queue, pulled = filled(1, 5)
    queue.enqueue(pulled.values())
    failed = queue.take(2)
    for message in failed:
        message.reconsume_times += 1
    queue.put_back(failed)
    assert [message.queue_offset for message in queue.take(9)] == [1, 2]
    assert [message.queue_offset for message in queue.take(9)] == [3, 4, 5]
    assert queue.take(9) == []


def test_lock_expires() -> None:
    """Without a lock, or too long after its renewal, the queue may not be consumed."""
    queue = ProcessQueue(QUEUE)
    assert queue.lock_expired(0, 30)
    queue.locked_at = 10
    assert not queue.lock_expired(40, 30)
    assert queue.lock_expired(40.1, 30)
    assert "locked" in repr(queue)


def test_clear_removes_messages_order_and_size() -> None:
    """The offset to commit is then that of the next pull."""
    queue, _ = filled(1, 3)
    queue.clear()
    assert (len(queue), queue.size, queue.max_span, queue.cached_offsets()) == (0, 0, 0, (0, 0))


def test_settling_a_message_from_before_a_reset_has_no_effect() -> None:
    """After the reset another message with that offset is in the queue."""
    queue, first = filled(7, 7)
    called(queue, first[7], began=1.0)
    queue.settle(first.values())
    again = messages(7, 7)
    queue.put(again)
    assert (first[7] in queue, again[0] in queue) == (False, True)
    assert queue.expired(before=100.0) is None
    assert queue.settle(first.values()) == 7
    assert again[0] in queue


def test_cleared_queue_has_nothing_to_commit() -> None:
    """The next offset to pull may be the one that the broker called illegal."""
    queue, _ = filled(100, 110)
    queue.clear()
    assert queue.smallest_unsettled() == NOTHING_TO_COMMIT
    assert len(queue) == queue.size == queue.max_span == 0


def test_skip_does_not_pass_unsettled_messages() -> None:
    """A queue with messages keeps its smallest unsettled offset."""
    queue, pulled = filled(1, 3)
    assert not queue.skip_to(100)
    assert queue.settle(pulled.values()) == 4
    assert queue.skip_to(100)
    assert queue.smallest_unsettled() == 100


@pytest.mark.parametrize(
    ("question", "some", "every"),
    [
        (len, 1, 0),
        (lambda queue: queue.smallest_unsettled(), 2, 4),
        (lambda queue: queue.position, 2, 4),
        (lambda queue: queue.stored_size, 10, 0),
        (lambda queue: queue.size, 10, 0),
        (lambda queue: queue.max_span, 0, 0),
        (lambda queue: queue.cached_offsets(), (2, 2), (0, 0)),
        (lambda queue: queue.skip_to(50), False, True),
        (lambda queue: queue.settle(messages(9, 9)), 2, NOTHING_TO_COMMIT),
        (lambda queue: len(queue.put(messages(1, 3))), 2, 3),
    ],
)
def test_messages_that_are_done_do_not_count(
    question: Callable[[ProcessQueue], object], some: object, every: object
) -> None:
    """Whatever is asked first, when 1 and 3 of three messages are done, or all."""
    for done, answer in (([3, 1], some), ([1, 2, 3], every)):
        queue, pulled = ProcessQueue(QUEUE), messages(1, 3, size=10)
        queue.put(pulled)
        queue.done += [pulled[offset - 1] for offset in done]
        assert question(queue) == answer
        assert not queue.done


def test_cached_messages_are_counted_without_a_change() -> None:
    """Another thread may ask while the loop's thread adds messages that are done."""
    queue, pulled = ProcessQueue(QUEUE), messages(1, 4, size=10)
    queue.put(pulled)
    queue.growth = 5
    queue.done += pulled[:3]
    assert queue.cached() == (1, 15)
    assert queue.done == pulled[:3]
    assert "1 unsettled" in repr(queue)


def test_done_messages_wake_the_puller(virtual: VirtualTime) -> None:
    """When anything is asked about the queue, which removes them."""

    async def main() -> None:
        queue, pulled = filled(1, 10)
        loop = asyncio.get_running_loop()
        queue.done += [pulled[offset] for offset in range(1, 8)]
        loop.call_later(1, queue.smallest_unsettled)
        await queue.wait_for_capacity(3, 50)
        assert loop.time() == 1

    virtual.run(main())
