"""Long polling: the events that end a held pull, and when."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from rocket_broker.filter.pull_filter import PullFilter
from rocket_broker.limits.refusal import Refusal
from rocket_broker.pulling import pull_request_hold
from rocket_broker.pulling.pull_request_hold import PULL_SIZE, HeldPullRequest, PullRequestHold, PullTerms
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import PullMessageRequestHeader
from rocket_remoting.wire.record import encode_record
from tests.unit.rocket_broker.memory_peers import Peers, run_virtually


class CountingFilter:
    """A property filter that counts its evaluations."""

    def __init__(self, *, wants: bool = True, cost: int = 1) -> None:
        self.wants = wants
        self.cost = cost
        self.times = 0

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return the fixed result."""
        self.times += 1
        return self.wants


RECORD = encode_record(
    "t", b"", b"", queue_id=0, queue_offset=10, commit_log_offset=0, sys_flag=0, flag=0, born_timestamp=0,
    born_host=("127.0.0.1", 1), store_timestamp=0, store_host=("127.0.0.1", 1),
)  # fmt: skip


class FixedStore:
    """A store with given queue ends in which every message is the same."""

    def __init__(self) -> None:
        self.end = 10

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.end

    def message_in_queue(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        return memoryview(RECORD)


class Stage:
    """Held pulls, their connection, and the time at which each was run again."""

    def __init__(self, connection: Connection, ends: FixedStore) -> None:
        self.ends = ends
        self.pulls = PullRequestHold(ends)
        self.resumed: list[tuple[float, int]] = []
        self.refusals: list[str] = []
        self.connection = connection

    def hold(
        self,
        offset: int = 10,
        *,
        queue_id: int = 0,
        seconds: float = 15.0,
        codes: frozenset[int] | None = None,
        properties: CountingFilter | None = None,
        resume: Callable[[HeldPullRequest], None] | None = None,
        connection: Connection | None = None,
    ) -> bool:
        """Hold a pull of ``t``; return whether the limits allowed it."""
        header = PullMessageRequestHeader(
            consumer_group="g", topic="t", queue_id=queue_id, queue_offset=offset, max_msg_nums=32, sys_flag=2,
            commit_offset=0, suspend_timeout_millis=15_000, sub_version=0,
        )  # fmt: skip
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        wanted = PullFilter(codes, properties)
        terms = PullTerms(command, header, wanted)
        pull = HeldPullRequest(connection or self.connection, 1, offset, terms, resume or self._note)
        try:
            self.pulls.hold(pull, seconds)
        except Refusal as refusal:
            self.refusals.append(refusal.remark)
            return False
        return True

    def arrive(self, offset: int = 10, *, code: int = 0, topic: str = "t", queue_id: int = 0) -> None:
        """Report a stored message to the held pulls."""
        self.pulls.messages_arrived(topic, queue_id, offset, (code,), 0)

    def _note(self, pull: HeldPullRequest) -> None:
        self.resumed.append((asyncio.get_running_loop().time(), pull.offset))


def on_stage(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> Stage:
    """Run the scene in virtual time and return the final stage."""

    async def main() -> Stage:
        broker_end, client_end = await Peers().connect("c")
        stage = Stage(broker_end, FixedStore())
        await scene(stage)
        await client_end.close()
        return stage

    return run_virtually(main)


def test_stored_message_wakes_the_pull_at_once() -> None:
    """In the same instant."""

    async def scene(stage: Stage) -> None:
        stage.hold()
        await asyncio.sleep(3)
        stage.arrive()
        await asyncio.sleep(0)
        assert stage.resumed == [(3.0, 10)]
        assert len(stage.pulls) == 0

    on_stage(scene)


def test_messages_stored_together_wake_a_pull_once() -> None:
    """Its answer contains all of them."""

    async def scene(stage: Stage) -> None:
        stage.hold()
        for offset in range(10, 20):
            stage.arrive(offset)
        assert stage.resumed == []
        await asyncio.sleep(0)
        assert len(stage.resumed) == 1

    on_stage(scene)


def test_messages_at_many_queues_wake_the_pull_of_each() -> None:
    """A queue that has no such message keeps its pull, and a pull that fails does not stop the others."""

    async def scene(stage: Stage) -> None:
        def fail(pull: HeldPullRequest) -> None:
            raise ValueError("defect")

        for queue_id in range(12):
            stage.hold(11 if queue_id == 5 else 10, queue_id=queue_id, resume=fail if queue_id == 2 else None)
            stage.arrive(queue_id=queue_id)
        await asyncio.sleep(0)
        assert [offset for _, offset in stage.resumed] == [10] * 10
        assert len(stage.pulls) == 1
        stage.arrive(11, queue_id=5)
        await asyncio.sleep(0)
        assert stage.resumed[-1] == (0.0, 11)

    on_stage(scene)


def test_more_arrivals_than_are_remembered_wake_every_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tags of some are not known any more, and one of them may be wanted."""
    monkeypatch.setattr(pull_request_hold, "_MOST_ARRIVALS", 3)

    async def scene(stage: Stage) -> None:
        stage.hold(codes=frozenset([1]))
        for offset in range(10, 13):
            stage.arrive(offset)
        await asyncio.sleep(0)
        assert stage.resumed == []
        for offset in range(13, 17):
            stage.arrive(offset, code=offset == 16)
        await asyncio.sleep(0)
        assert stage.resumed == [(0.0, 10)]

    on_stage(scene)


def test_message_elsewhere_wakes_no_pull() -> None:
    """That is: another topic, another queue, or an offset before the pull's."""

    async def scene(stage: Stage) -> None:
        stage.hold()
        stage.arrive(topic="u")
        stage.arrive(queue_id=1)
        stage.arrive(9)
        await asyncio.sleep(1)
        assert stage.resumed == []

    on_stage(scene)


def test_message_with_another_tag_does_not_wake_a_filtered_pull() -> None:
    """A message with a matching tag does."""

    async def scene(stage: Stage) -> None:
        stage.hold(codes=frozenset({7}))
        stage.arrive(10, code=8)
        await asyncio.sleep(1)
        assert stage.resumed == []
        stage.arrive(11, code=7)
        await asyncio.sleep(0)
        assert len(stage.resumed) == 1

    on_stage(scene)


def test_pull_ends_exactly_at_its_timeout() -> None:
    """Not only at the next periodic check."""

    async def scene(stage: Stage) -> None:
        stage.pulls.start()
        stage.hold(seconds=15.0)
        stage.hold(seconds=20.5)
        stage.hold(seconds=-1)
        await asyncio.sleep(30)
        stage.pulls.stop()

    assert [when for when, _ in on_stage(scene).resumed] == [0.0, 15.0, 20.5]


def test_periodic_check_wakes_pulls_behind_the_queue_end() -> None:
    """Every five seconds, for messages whose arrival was not reported."""

    async def scene(stage: Stage) -> None:
        stage.pulls.start()
        stage.hold(10)
        stage.ends.end = 11
        await asyncio.sleep(6)
        stage.pulls.stop()

    assert on_stage(scene).resumed == [(5.0, 10)]


def test_pull_that_fails_does_not_block_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """It gets an error, and the next pull is run."""

    async def scene(stage: Stage) -> None:
        def fail(pull: HeldPullRequest) -> None:
            raise OSError("disk on fire")

        stage.hold(resume=fail)
        stage.hold()
        stage.arrive()
        await asyncio.sleep(0.01)
        assert len(stage.resumed) == 1

    on_stage(scene)
    assert "could not be answered" in caplog.text


def test_pulls_of_a_closed_connection_are_dropped() -> None:
    """Their answers have no receiver."""

    async def scene(stage: Stage) -> None:
        stage.hold()
        stage.hold(9)
        stage.pulls.connection_closed(stage.connection)
        stage.arrive()
        await asyncio.sleep(20)

    stage = on_stage(scene)
    assert stage.resumed == []
    assert len(stage.pulls) == 0


def test_held_pulls_per_connection_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull beyond the limit is not held."""
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES_PER_CONNECTION", 2 * PULL_SIZE)

    async def scene(stage: Stage) -> None:
        assert [stage.hold() for _ in range(3)] == [True, True, False]
        stage.pulls.stop()

    on_stage(scene)


def test_held_pulls_of_all_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; each pull that ends frees a place."""
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES", 2 * PULL_SIZE)

    async def scene(stage: Stage) -> None:
        assert [stage.hold(offset=10 + number) for number in range(3)] == [True, True, False]
        stage.arrive()
        await asyncio.sleep(0)
        assert len(stage.pulls) == 1
        assert [stage.hold(), stage.hold()] == [True, False]
        stage.pulls.connection_closed(stage.connection)
        assert len(stage.pulls) == 0
        assert stage.hold()
        stage.pulls.stop()

    on_stage(scene)


def test_stop_drops_every_pull() -> None:
    """Their connections are about to close."""

    async def scene(stage: Stage) -> None:
        stage.hold()
        stage.arrive()
        stage.hold()
        stage.pulls.stop()
        await asyncio.sleep(20)

    assert on_stage(scene).resumed == []


def test_equal_filters_are_evaluated_once_per_message() -> None:
    """All pulls with a matching filter wake, the others stay held."""
    wanted, unwanted = CountingFilter(), CountingFilter(wants=False)

    async def scene(stage: Stage) -> None:
        for properties in (wanted, unwanted):
            for _ in range(1000):
                assert stage.hold(properties=properties)
        stage.arrive()
        await asyncio.sleep(1)
        assert len(stage.resumed) == 1000
        assert len(stage.pulls) == 1000
        stage.pulls.stop()

    on_stage(scene)
    assert (wanted.times, unwanted.times) == (1, 1)


def test_filter_is_not_evaluated_after_a_tag_mismatch() -> None:
    """The message is not read."""
    properties = CountingFilter()

    async def scene(stage: Stage) -> None:
        stage.hold(codes=frozenset({7}), properties=properties)
        stage.arrive(code=8)
        stage.pulls.stop()

    on_stage(scene)
    assert properties.times == 0


def test_filter_cost_per_connection_is_limited() -> None:
    """The cost counts at the pull's queue; a pull that ends frees its share."""

    async def scene(stage: Stage) -> None:
        assert stage.hold(properties=CountingFilter(cost=pull_request_hold.MAX_COST - 1), seconds=1)
        assert stage.hold(seconds=100)
        assert not stage.hold()
        await asyncio.sleep(2)
        assert stage.hold(properties=CountingFilter(cost=pull_request_hold.MAX_COST - 1))
        stage.pulls.stop()
        assert len(stage.pulls) == 0
        assert stage.hold(properties=CountingFilter(cost=pull_request_hold.MAX_COST))
        stage.pulls.stop()

    on_stage(scene)


@pytest.mark.parametrize("by", ["message", "time", "look"])
def test_waking_thousands_of_pulls_yields_to_other_work(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls woken by one message or due at one moment are answered in many loop iterations.

    One connection stands for many here.
    """
    monkeypatch.setattr(pull_request_hold, "MAX_COST", 100_000)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene(stage: Stage) -> None:
        nonlocal turns
        for _ in range(20_000):
            assert stage.hold(seconds=7)
        stage.pulls.start()
        if by == "message":
            stage.arrive()
        elif by == "look":
            stage.ends.end = 11
            await asyncio.sleep(5)
        else:
            await asyncio.sleep(7)
        counting = asyncio.create_task(count_turns())
        while len(stage.resumed) < 20_000:  # noqa: ASYNC110 - turns are what is counted
            await asyncio.sleep(0)
        counting.cancel()
        stage.pulls.stop()
        assert turns >= 5

    on_stage(scene)


def test_dropping_a_connections_pulls_yields_to_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps, however many pulls it holds."""
    monkeypatch.setattr(pull_request_hold, "MAX_COST", 100_000)

    async def scene(stage: Stage) -> None:
        for _ in range(20_000):
            assert stage.hold()
        stage.pulls.connection_closed(stage.connection)
        assert len(stage.pulls) > 0
        await asyncio.sleep(1)
        assert len(stage.pulls) == 0

    on_stage(scene)


def test_pull_with_a_zero_timeout_is_answered_at_once() -> None:
    """Also when others are due at the same moment."""

    async def scene(stage: Stage) -> None:
        stage.hold(seconds=0, resume=lambda pull: stage.hold(seconds=0) and None)
        await asyncio.sleep(1)
        assert stage.resumed == [(0.0, 10)]

    on_stage(scene)


def test_filter_evaluations_per_message_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal filters cost once, and a pull that ends frees its share."""
    monkeypatch.setattr(pull_request_hold, "MAX_COST_OF_QUEUE", 100)

    async def scene(stage: Stage) -> None:
        peers = Peers()
        ends = [(await peers.connect(f"c{number}"))[0] for number in range(4)]
        dear = CountingFilter(cost=50)
        assert all(stage.hold(properties=dear, connection=end) for end in ends)
        assert stage.hold(properties=CountingFilter(cost=50), seconds=1)
        assert not stage.hold(properties=CountingFilter(cost=1), connection=ends[0])
        assert "t queue 0 take 100 of 100 comparisons" in stage.refusals[0]
        await asyncio.sleep(2)
        assert stage.hold(properties=CountingFilter(cost=1), connection=ends[0])
        stage.pulls.stop()

    on_stage(scene)


def test_pulls_per_address_are_limited_to_a_quarter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All connections of an address share a quarter of the evaluations and of the memory."""
    monkeypatch.setattr(pull_request_hold, "MAX_COST_OF_QUEUE", 100)
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES", 16 * PULL_SIZE)

    async def scene(stage: Stage) -> None:
        peers = Peers()
        greedy = [(await peers.connect(f"g{number}", "127.0.0.2"))[0] for number in range(5)]
        modest, _ = await peers.connect("m", "127.0.0.3")
        same = CountingFilter(cost=20)
        assert stage.hold(properties=same, connection=greedy[0])
        assert stage.hold(properties=same, connection=greedy[1])
        assert not stage.hold(properties=CountingFilter(cost=20), connection=greedy[2])
        assert stage.hold(properties=CountingFilter(cost=20), connection=modest)
        assert [stage.hold(connection=end) for end in greedy[:3]] == [True, True, False]
        assert stage.hold(connection=modest)
        assert all("of address 127.0.0.2" in reason or "address 127.0.0.2 has" in reason for reason in stage.refusals)
        stage.pulls.connection_closed(greedy[0])
        assert stage.hold(connection=greedy[4])
        stage.pulls.stop()

    on_stage(scene)
