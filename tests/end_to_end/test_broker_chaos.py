"""Faults that the bundled broker injects: what happens to the messages, and that a seed repeats them."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from rocket_client import SendError, SendStatus
from rocket_remoting import Message, MessageExt, MessageQueue
from streamkit.chaos import Chaos
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play

MESSAGES = 150
QUEUE = MessageQueue("orders", "broker-a", 0)


def received_with(chaos: str, *, at_once: int = 1) -> list[MessageExt]:
    """Send numbered messages to one queue, so many at a time, and return what an ordered consumer receives."""
    received: list[MessageExt] = []

    async def scene(stage: ClientStage) -> None:
        turns = asyncio.Semaphore(at_once)
        async with stage.producer() as producer:

            async def send(number: int) -> None:
                message, sent = Message("orders", b"%d" % number), False
                async with turns:
                    while not sent:  # a send to a given queue has one attempt
                        with suppress(SendError):
                            sent = (await producer.send(message, queue=QUEUE)).status is SendStatus.SEND_OK

            await asyncio.gather(*map(send, range(MESSAGES)))
        listener = RecordingListener()
        async with stage.orderly(listener):
            while len({*listener.bodies}) < MESSAGES:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)
        received.extend(listener.messages)

    play(scene, queues=1, chaos=Chaos.parse(chaos))
    return received


def numbers(messages: list[MessageExt]) -> list[int]:
    """Return the numbers of the messages in the order of the queue, each offset once."""
    by_offset = {message.queue_offset: int(message.body) for message in messages}
    return [number for _, number in sorted(by_offset.items())]


@pytest.mark.parametrize("chaos", ["duplicate=5%", "reorder=10%", "drop-connection=5%", "delay=20ms"])
def test_no_acknowledged_message_is_lost(chaos: str) -> None:
    """Whatever the faults, each message that was acknowledged is received."""
    messages = received_with(f"seed=7,{chaos}", at_once=8)
    assert {*numbers(messages)} == {*range(MESSAGES)}


def test_a_duplicate_has_two_offsets_and_one_id() -> None:
    """It is stored twice, as when a producer sends again."""
    messages = received_with("seed=7,duplicate=10%")
    assert 0 < len(numbers(messages)) - MESSAGES < MESSAGES / 2
    ids = {(int(message.body), message.unique_key) for message in messages}
    assert len(ids) == MESSAGES


def test_only_sends_that_are_under_way_together_change_their_order() -> None:
    """A producer that waits for each answer keeps its order."""
    chaos = "seed=7,reorder=20%"
    assert numbers(received_with(chaos)) == [*range(MESSAGES)]
    moved = numbers(received_with(chaos, at_once=8))
    assert moved != [*range(MESSAGES)]
    assert Counter(moved) == Counter(range(MESSAGES))


def test_a_lost_answer_leads_to_a_duplicate_and_a_lost_request_does_not() -> None:
    """The connection ends before or after the request is handled; the producer cannot tell, and sends again."""
    stored = Counter(numbers(received_with("seed=7,drop-connection=10%")))
    assert {1, 2} <= {*stored.values()}
    assert stored.total() < MESSAGES * 1.2


def test_a_seed_repeats_the_faults() -> None:
    """Two runs with one seed store the same messages in the same order; another seed does not."""
    faults = "duplicate=5%,reorder=10%,drop-connection=3%,delay=20ms"
    first = numbers(received_with(f"seed=7,{faults}", at_once=8))
    assert first == numbers(received_with(f"seed=7,{faults}", at_once=8))
    assert first != numbers(received_with(f"seed=8,{faults}", at_once=8))
