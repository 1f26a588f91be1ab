"""Pull requests have the same results whether they are handled like earlier ones or each is decoded and decided."""

import asyncio
import json
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_broker.processors import known_pulls
from rocket_remoting.session import turns
from rocket_remoting.wire.bodies import Body, MessageModel, SubscriptionGroupConfig
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import DeleteTopicRequestHeader
from tests.end_to_end.raw_client import RawClient, pull_header, send_header
from tests.native_core import needs_native_core
from tests.properties.batch_paths import Side, TwoPaths, with_both

pytestmark = needs_native_core

FIELDS = {
    "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "7",
    "commitOffset": "1", "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
    "expressionType": "TAG",
}  # fmt: skip
COMMITS, WAITS, ASKS = 1, 2, 4
"""Bits of sysFlag: commit an offset, wait for a message, and the request has the subscription."""


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the time slice, so that a slow machine does not handle a connection's requests later."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)


def frame(header: bytes, body: bytes = b"", *, encoding: int = 0) -> bytes:
    """Return a frame."""
    return struct.pack(">iI", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


def pull(*, opaque: int = 7, head: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """Return a pull request as Java's client writes it; a None field is left out."""
    given = {name: value for name, value in {**FIELDS, **fields}.items() if value is not None}
    whole = {
        "code": 11, "extFields": given, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 407, **(head or {})
    }  # fmt: skip
    return frame(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode())


def send(body: bytes = b"hello", *, opaque: int = 9, **fields: Any) -> bytes:
    """Return a send."""
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_header("orders", **fields), body)
    command.opaque = opaque
    return b"".join(command.encode())


def replaced(old: bytes, new: bytes) -> bytes:
    """Return a pull request with other bytes in its header."""
    header = pull()[8:]
    assert old in header
    return frame(header.replace(old, new))


class Received:
    """The bytes received at one end of a connection, and whether the peer has closed it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self._buffer = memoryview(bytearray(64 * 1024))

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self._buffer[:count]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True


class Consumers:
    """Connections to two brokers, the second of which decodes and decides each request.

    Attributes:
        both: The brokers.
        taken: How many requests the first broker has handled like earlier ones.
    """

    def __init__(self, both: TwoPaths) -> None:
        self.both = both
        self.sides = (both.at_once, both.one_by_one)
        self.taken = 0
        self._pipes: dict[str, list[Any]] = {}
        known = self._broker(both.at_once)._known_pulls
        take = known.take

        def counted(*arguments: Any) -> Any:
            taken = take(*arguments)
            self.taken += taken is not None
            return taken

        known.take = counted
        other = self._broker(both.one_by_one)
        other._known_pulls._pulling._lasting_basis = lambda header: None
        other._known_pulls = None

    @staticmethod
    def _broker(side: Side) -> Any:
        return side.embedded.broker

    async def write(self, data: bytes, name: str = "one") -> None:
        """Send bytes on a connection to both brokers; whatever they have answered until now must be the same."""
        if name not in self._pipes:
            self._pipes[name] = []
            for side in self.sides:
                connection = await side.embedded.broker.transport.connect(side.embedded.broker_address)
                pipe: Any = connection._transport
                pipe._protocol = Received()
                self._pipes[name].append(pipe)
        for pipe in self._pipes[name]:
            pipe.write(data)
        await asyncio.sleep(1)
        self.compare()

    def compare(self) -> None:
        """Compare what the brokers have answered and keep."""
        for first, second in self._pipes.values():
            assert first._protocol.data == second._protocol.data
            assert first._protocol.is_closed == second._protocol.is_closed
        states = [
            (
                len(broker.pull_request_hold), broker.pull_request_hold._size, broker.offsets.table(),
                {key: repr(traffic) for key, traffic in broker.statistics.gets.items()},
                broker.statistics.pulls_missed, sorted(broker.groups.configs()),
            )
            for broker in map(self._broker, self.sides)
        ]  # fmt: skip
        assert states[0] == states[1]

    async def each(self, ask: Callable[[RawClient], Coroutine[Any, Any, Any]]) -> None:
        """Ask both brokers on a connection of its own."""
        for side in self.sides:
            await ask(side.client)
        await asyncio.sleep(0)

    async def change(self, code: int, header: Header | None, body: Body | bytes = b"") -> None:
        """Send a request that both brokers must carry out."""
        await self.each(lambda client: client.ask_ok(code, header, body))

    async def end(self) -> None:
        """Wait until no pull request is held, and close the connections."""
        await asyncio.sleep(29)
        self.compare()
        for pipes in self._pipes.values():
            for pipe in pipes:
                pipe.close()


def with_consumers(scene: Callable[[Consumers], Coroutine[Any, Any, None]], **settings_: str) -> None:
    """Run a scene in virtual time; each of the queues of ``orders`` has one message."""

    async def run(both: TwoPaths) -> None:
        consumers = Consumers(both)
        await scene(consumers)
        await consumers.end()

    with_both(run, pool=False, **settings_)


def test_consumer_that_waits_again_and_again_gets_equal_answers() -> None:
    """After the first pull of its kind none is decoded, with a send before it in the same read, too."""

    async def scene(consumers: Consumers) -> None:
        await consumers.write(send(queue_id=1), "producer")  # now the queue is known
        await consumers.write(pull(), "waits")
        for number in range(2, 12):
            await consumers.write(send(b"%d" % number, opaque=number), "producer")
            again = pull(opaque=number, queueOffset=str(number), commitOffset=str(number - 1))
            await consumers.write(send(queue_id=1) + again if number % 2 else again, "waits")
        assert consumers.taken == 11
        await consumers.write(pull(queueOffset="0"))
        await consumers.write(pull(queueOffset="3", maxMsgNums="4"))
        assert consumers.taken == 13

    with_consumers(scene)


def test_pulls_by_the_subscription_of_a_heartbeat_have_equal_answers() -> None:
    """Until it changes: the filter, the message model, or whether there is one."""

    async def scene(consumers: Consumers) -> None:
        async def waits(*, taken: bool, **fields: Any) -> None:
            before = consumers.taken
            await consumers.write(pull(sysFlag="3", subscription=None, subVersion="1", **fields), "waits")
            assert (consumers.taken > before) == taken

        async def beat(expression: str, version: int, **more: Any) -> None:
            await consumers.each(
                lambda client: client.heartbeat(consumers={"g": {"orders": expression}}, version=version, **more)
            )

        await waits(taken=False)
        await beat("*", 1)
        await waits(taken=True)
        await beat("TAGS = 'a'", 2, expression_type="SQL92")
        await consumers.write(send(properties={"TAGS": "b"}), "producer")
        await waits(taken=False, queueOffset="2")
        await beat("a || b", 3)
        await waits(taken=True, queueOffset="2")
        await beat("c", 4)
        await consumers.write(send(properties={"TAGS": "b"}), "producer")
        await beat("c", 5, model=MessageModel.BROADCASTING)
        await waits(taken=True, queueOffset="3")
        await consumers.change(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False),
        )
        await waits(taken=False, queueOffset="3")

    with_consumers(scene)


ODD: dict[str, bytes] = {
    "an empty queue": pull(queueId="3", topic="empty", queueOffset="0"),
    "an offset beyond the end": pull(queueOffset="9"),
    "a long offset": pull(queueOffset="9" * 18),
    "a longer offset": pull(queueOffset="9" * 19),
    "a negative offset": pull(queueOffset="-1"),
    "a negative commit": pull(commitOffset="-1"),
    "an offset with a zero": pull(queueOffset="01"),
    "an unquoted offset": pull(queueOffset=1),
    "no offset": pull(queueOffset=None),
    "no commit": pull(commitOffset=None),
    "no topic": pull(topic=None),
    "an unknown topic": pull(topic="unknown"),
    "no such queue": pull(queueId="7"),
    "a new group": pull(consumerGroup="new"),
    "a group of the broker": pull(consumerGroup="CID_RMQ_SYS_x"),
    "a topic of the broker": pull(topic="SCHEDULE_TOPIC_XXXX"),
    "a retry topic": pull(topic="%RETRY%g"),
    "no wish to wait": pull(sysFlag=str(COMMITS | ASKS)),
    "no commit by flag": pull(sysFlag=str(WAITS | ASKS), commitOffset="0"),
    "the subscription of a heartbeat": pull(sysFlag=str(COMMITS | WAITS)),
    "tags": pull(subscription="a || b"),
    "wrong tags": pull(subscription="||"),
    "SQL92": pull(subscription="a = 1", expressionType="SQL92"),
    "wrong SQL92": pull(subscription="a =", expressionType="SQL92"),
    "another type": pull(expressionType="OTHER"),
    "no type": pull(expressionType=None),
    "a number of 0": pull(opaque=0),
    "a negative number": pull(opaque=-5),
    "the largest number": pull(opaque=2**31 - 1),
    "a number that is too large": pull(opaque=2**31),
    "one message": pull(maxMsgNums="1"),
    "no messages": pull(maxMsgNums="0"),
    "few bytes": pull(maxMsgBytes="10"),
    "no time to wait": pull(suspendTimeoutMillis="0"),
    "a one-way request": pull(head={"flag": 2}),
    "a response": pull(head={"flag": 1}),
    "a lite pull": pull(head={"code": 361}),
    "a longer code": pull(head={"code": 110}),
    "a remark": pull(head={"remark": "queueOffset"}),
    "a backslash": pull(consumerGroup="g\\"),
    "a name in a text": pull(proxyFrowardClientId='"queueOffset":"5"'),
    "a field of another client": pull(brokerName="broker-a"),
    "a nested number": replaced(b'"flag":0,', b'"flag":0,"x":{"opaque":3},'),
    "only a nested number": replaced(b'"opaque":7', b'"x":{"opaque":7}'),
    "a nested offset": replaced(b'"queueOffset":"1"', b'"queueOffset": "1","x":{"queueOffset":"5"}'),
    "a code twice": replaced(b'"flag":0,', b'"flag":0,"code":9999,'),
    "an offset twice": replaced(b'"queueOffset":"1"', b'"queueOffset":"5","queueOffset":"1"'),
    "an offset twice, and no number": replaced(b',"opaque":7', b',"queueOffset":"3"'),
    "an escaped name": replaced(b'"queueOffset":"1"', b'"queueOffset":"5","\\u0071ueueOffset":"1"'),
    "a number as text": replaced(b'"opaque":7', b'"opaque":"7"'),
    "spaces": frame(json.dumps({"code": 11, "extFields": FIELDS, "opaque": 7}).encode()),
    "another order": frame(json.dumps({"opaque": 7, "extFields": dict(reversed(FIELDS.items())), "code": 11}).encode()),
    "no fields": frame(b'{"code":11,"opaque":7}'),
    "no JSON": frame(b'{"code":11,' + bytes(50)),
    "a body": frame(pull()[8:], b"body"),
    "a long header": pull(brokerName="b" * 2_000),
    "the binary encoding": b"".join(
        RemotingCommand.request(
            RequestCode.PULL_MESSAGE, pull_header("orders", 1, sys_flag=6), encoding=HeaderEncoding.ROCKETMQ
        ).encode()
    ),
    "half a frame": pull()[:-20],
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_unusual_pulls_have_equal_answers(odd: bytes) -> None:
    """The first time, when its like are known, when a message comes, and behind others."""

    async def scene(consumers: Consumers) -> None:
        await consumers.each(lambda client: client.create_topic("empty", queues=4))
        for _ in range(2):
            await consumers.write(odd)
            await consumers.write(odd, "two")
        await consumers.write(pull() + odd + pull(opaque=8), "three")
        await consumers.write(send() + odd, "four")
        await consumers.write(send(), "producer")
        await consumers.write(odd + odd, "five")

    with_consumers(scene)


def test_changes_apply_to_pulls_like_earlier_ones() -> None:
    """A change of the topic, the group, a setting or an offset applies to the next pull, and to those that wait."""

    async def scene(consumers: Consumers) -> None:
        offsets = iter(range(1, 99))
        offset = next(offsets)

        async def waits(*, taken: bool = True) -> None:
            before = consumers.taken
            await consumers.write(pull(queueOffset=str(offset), commitOffset=str(offset)), "waits")
            assert (consumers.taken > before) == taken

        async def wake() -> None:
            nonlocal offset
            await consumers.write(send(), "producer")
            offset = next(offsets)

        async def set_(line: bytes) -> None:
            await consumers.change(RequestCode.UPDATE_BROKER_CONFIG, None, line + b"\n")

        async def group(**fields: Any) -> None:
            config = SubscriptionGroupConfig(group_name="g", **fields)
            await consumers.change(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)

        await waits()
        await wake()
        for change, undo in (
            (lambda: consumers.each(lambda client: client.create_topic("orders", queues=4, perm=2)),
             lambda: consumers.each(lambda client: client.create_topic("orders", queues=4))),
            (lambda: group(consume_enable=False), group),
            (lambda: set_(b"brokerPermission=2"), lambda: set_(b"brokerPermission=6")),
        ):  # fmt: skip
            await waits()
            await change()
            await wake()  # it was allowed to wait, and is refused now
            await waits(taken=False)
            await undo()
            await waits()
            await wake()
        await set_(b"slaveReadEnable=true")
        await waits(taken=False)
        await wake()
        await set_(b"slaveReadEnable=false")
        await set_(b"longPollingEnable=false")
        await waits()
        await asyncio.sleep(2)
        await set_(b"longPollingEnable=true")
        await waits()
        for side in consumers.sides:
            side.embedded.broker.offsets.reset("g", "orders", 0, 1)
        await wake()
        await waits(taken=False)
        await consumers.change(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
        await waits(taken=False)

    with_consumers(scene)


def test_terms_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are decided again."""
    monkeypatch.setattr(known_pulls, "MOST_KNOWN", 3)

    async def scene(consumers: Consumers) -> None:
        for number in range(8):
            await consumers.write(pull(subVersion=str(number % 5), opaque=number + 1))
        known = consumers.both.at_once.embedded.broker._known_pulls
        assert known is not None
        assert len(known._known) <= 3
        assert consumers.taken == 8

    with_consumers(scene)


def test_pulls_beyond_a_limit_are_refused_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not held."""
    monkeypatch.setattr("rocket_broker.pulling.pull_request_hold.MAX_BYTES_PER_CONNECTION", 3_000)

    async def scene(consumers: Consumers) -> None:
        for number in range(4):
            await consumers.write(pull(opaque=number + 1))

    with_consumers(scene)


PULLS = st.builds(
    pull,
    opaque=st.integers(0, 2**31),
    queueId=st.sampled_from(["0", "0", "1"]),
    queueOffset=st.integers(0, 6).map(str),
    commitOffset=st.integers(0, 6).map(str),
    sysFlag=st.integers(0, 7).map(str),
    maxMsgNums=st.sampled_from(["32", "1"]),
    suspendTimeoutMillis=st.sampled_from(["20000", "500"]),
    subscription=st.sampled_from(["*", "a", "b || a"]),
    consumerGroup=st.sampled_from(["g", "h"]),
)
SENDS = st.builds(send, queue_id=st.sampled_from([0, 0, 1]), properties=st.sampled_from([None, {"TAGS": "a"}]))
WRITES = st.lists(st.one_of(PULLS, SENDS), min_size=1, max_size=3).map(b"".join)


@given(st.lists(st.tuples(WRITES, st.sampled_from(["one", "two", "three"])), min_size=1, max_size=12))
@settings(max_examples=40)
def test_arbitrary_pulls_and_sends_have_equal_answers(writes: list[tuple[bytes, str]]) -> None:
    """Any of them, on any connection."""

    async def scene(consumers: Consumers) -> None:
        for data, name in writes:
            await consumers.write(data, name)

    with_consumers(scene)
