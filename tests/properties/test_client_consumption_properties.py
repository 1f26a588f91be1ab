"""Consumption: whatever listeners do, each message is consumed once, and no offset passes a message before that."""

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_client import ConsumeContext, Reject, RetryLater, Success, Suspend
from rocket_remoting import MessageExt, RemotingCommand, RequestCode, ResponseCode
from rocket_remoting.wire.headers import PullMessageRequestHeader, UpdateConsumerOffsetRequestHeader
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, pulled, record
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster

FIRST = 5

Outcome = Success | RetryLater | Suspend | Reject | type[ValueError] | None


class Call(NamedTuple):
    """What a call of the listener does: it takes some seconds, then returns or raises this."""

    seconds: float
    outcome: Outcome


SUCCESSES: st.SearchStrategy[Outcome] = st.sampled_from([None, Success()])
FAILURES: dict[bool, st.SearchStrategy[Outcome]] = {
    False: st.sampled_from([RetryLater(), RetryLater(3), Reject("bad"), ValueError, Success(-1), Success(0)]),
    True: st.sampled_from([Suspend(), Suspend(5), Reject("bad"), ValueError]),
}
SECONDS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 4.0])


class PlannedConsumer:
    """A consumer whose calls do what a plan says, by the offset of their first message; a second call succeeds."""

    def __init__(self, script: ConsumerScript, calls: list[Call], most_calls: int, *, orderly: bool) -> None:
        self.script = script
        self.calls = calls
        self.most_calls = most_calls
        self.orderly = orderly
        self.under_way = 0
        self.heard: list[int] = []
        self.unconsumed: set[int] = set()
        self.wrong: list[str] = []
        self.committed = 0
        answers = script.broker.answers
        self._pull, self._commit = answers[RequestCode.PULL_MESSAGE], script.broker.otherwise
        answers[RequestCode.PULL_MESSAGE] = self.pull
        answers[RequestCode.UPDATE_CONSUMER_OFFSET] = self.commit
        if orderly:
            script.consumer.listen_orderly(self.listen)
        else:
            script.consumer.listen_concurrently(self.listen)

    async def listen(self, messages: list[MessageExt], context: ConsumeContext) -> Any:
        """Do what the plan says."""
        offsets = [message.queue_offset for message in messages]
        call = self.calls[offsets[0] % len(self.calls)] if offsets[0] not in self.heard else Call(0, None)
        self.heard += offsets
        self.under_way += 1
        self.check(self.under_way <= self.most_calls, f"{self.under_way} calls at once")
        self.check(not self.orderly or offsets[0] == min(self.unconsumed), f"{offsets[0]} came out of its order")
        self.check_positions()
        if call.seconds:
            await asyncio.sleep(call.seconds)
            self.check_positions()
        self.under_way -= 1
        if not self.orderly or isinstance(call.outcome, Success | Reject | None):
            self.unconsumed.difference_update(offsets)
        if call.outcome is ValueError:
            raise ValueError("bad")
        return call.outcome

    def pull(self, command: RemotingCommand) -> RemotingCommand | None:
        """Answer a pull, and check the commit that it carries."""
        self.check_commit(command.header(PullMessageRequestHeader).commit_offset)
        return self._pull(command)

    def commit(self, command: RemotingCommand) -> RemotingCommand | None:
        """Answer a commit, and check it."""
        self.committed = command.header(UpdateConsumerOffsetRequestHeader).commit_offset
        self.check_commit(self.committed)
        return self._commit(command)

    def check_commit(self, offset: int) -> None:
        """Check that an offset that the broker gets passes no message that is not consumed."""
        self.check(offset <= min(self.unconsumed, default=offset), f"{offset} was committed before its time")

    def check_positions(self) -> None:
        """Check the position that the consumer shows: exact, unless messages that failed are still sent back."""
        for queue, position in self.script.consumer.positions.items():
            if queue.topic == "orders":
                first = min(self.unconsumed)
                always = all(call.outcome in {None, Success()} for call in self.calls)
                self.check(position == first if always else position <= first, f"at {position} instead of {first}")

    def check(self, holds: bool, otherwise: str) -> None:
        """Note what is wrong: an error in a listener would only be a failed call."""
        if not holds:
            self.wrong.append(otherwise)


def plans(outcomes: st.SearchStrategy[Outcome]) -> st.SearchStrategy[list[Call]]:
    return st.lists(st.builds(Call, SECONDS, outcomes), min_size=1, max_size=8)


@pytest.mark.parametrize("orderly", [False, True])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_each_message_is_consumed_once_and_no_offset_passes_it_before(orderly: bool, data: st.DataObject) -> None:
    """With calls at once and calls that wait, failures, batches, several workers, and a queue that is revoked."""
    runs = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=6), "messages of each pull")
    calls = data.draw(plans(SUCCESSES) | plans(SUCCESSES | FAILURES[orderly]), "calls")
    batch = data.draw(st.integers(1, 3), "messages of a call")
    concurrency = data.draw(st.integers(1, 4), "concurrency")
    revoked_after = data.draw(st.none() | st.sampled_from([0.0, 0.4, 1.0, 6.0]), "revoked after")

    async def main() -> None:
        async with ScriptedCluster(time, brokers=["a"]) as cluster:
            script = ConsumerScript(
                cluster,
                committed=FIRST,
                concurrency=concurrency,
                consume_message_batch_max_size=batch,
                persist_consumer_offset_interval=timedelta(seconds=1),
            )
            consumer = PlannedConsumer(script, calls, 1 if orderly else concurrency, orderly=orderly)
            end = FIRST
            for size in runs:
                records = b"".join(record(offset) for offset in range(end, end + size))
                end += size
                script.replies.append(pulled(ResponseCode.SUCCESS, end, records))
            consumer.unconsumed = set(range(FIRST, end))
            async with script.consumer:
                if revoked_after is None:
                    await asyncio.sleep(500)
                else:
                    await asyncio.sleep(revoked_after)
                    script.consumer.unsubscribe("orders")
                    await asyncio.sleep(20)
            assert not consumer.wrong
            if not orderly:
                assert len(set(consumer.heard)) == len(consumer.heard)
            if revoked_after is None:
                assert set(consumer.heard) == set(range(FIRST, end))
                assert consumer.committed == end

    with VirtualTime() as time:
        time.run(main())
