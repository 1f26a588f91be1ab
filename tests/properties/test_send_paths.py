"""Sends have the same results whether a run of requests is stored in one call by the native core or request by
request."""

import asyncio
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_broker.processors import send_runs
from rocket_broker.processors.batches import PART_BYTES, PART_MESSAGES
from rocket_broker.processors.send_runs import MOST_SENDS, SendRuns
from rocket_broker.store import MessageStore
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_remoting.session import turns
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rocket_remoting.wire.properties import MAX_PROPERTIES_LENGTH
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_ZLIB, MULTI_TAGS, TRANSACTION_PREPARED
from tests.end_to_end.raw_client import send_header
from tests.native_core import needs_native_core
from tests.properties.batch_paths import Entry, TwoPaths, batch_body, wire, with_both

pytestmark = needs_native_core

SECONDS = 29
"""Virtual time for requests that wait; the brokers' own work, every ten and thirty seconds, falls in between."""
FIELDS = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the time slice, so that a slow machine handles no other connection before a connection's later sends."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)


class Received:
    """The bytes received at one end of a connection.

    Attributes:
        data: The bytes.
        is_closed: Whether the peer has closed the connection.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self._buffer = memoryview(bytearray(64 * 1024))

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self._buffer[:count]

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True


def frame(header: bytes, body: bytes = b"", *, encoding: int = 0) -> bytes:
    """Return a frame."""
    return struct.pack(">iI", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


def send(
    properties: Mapping[str, str] | str | None = None,
    body: bytes = b"hello",
    *,
    opaque: int = 7,
    flag: int = 0,
    head: Mapping[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """Return a request as Java's client writes it; a None field is left out."""
    if isinstance(properties, Mapping):
        properties = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    given = {**FIELDS, "i": properties, **fields}
    whole = {
        "code": 310, "extFields": {name: value for name, value in given.items() if value is not None}, "flag": flag,
        "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 407, **(head or {}),
    }  # fmt: skip
    return frame(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), body)


UNKNOWN = frame(b'{"code":9999,"opaque":1}')
"""A request that is no send, and changes nothing."""


def batch(
    entries: Sequence[Entry], properties: Mapping[str, str] | str | None = None, *, code: int = 320, **fields: Any
) -> bytes:
    """Return a batch request as Java's client writes it."""
    given = {"m": "true", **fields}
    return send(properties, batch_body(entries), head={"code": code}, **given)


async def compare(both: TwoPaths, *data: bytes) -> list[int]:
    """Send bytes to both brokers at the same time, over new connections; answers and files must be the same.

    Args:
        both: The brokers.
        data: The bytes of each connection; they arrive in one turn of the loop.

    Returns:
        How many messages were stored at once, for each queue of each run.
    """
    sides = (both.at_once, both.one_by_one)
    pipes: list[list[Any]] = [[], []]
    for side, own in zip(sides, pipes, strict=True):
        for _ in data:
            connection = await side.embedded.broker.transport.connect(side.embedded.broker_address)
            own.append(connection._transport)
            own[-1]._protocol = Received()
        side.runs.clear()
    ends = [[pipe._protocol for pipe in own] for own in pipes]
    for own in pipes:
        for pipe, of_connection in zip(own, data, strict=True):
            pipe.write(of_connection)
    await asyncio.sleep(SECONDS)
    first, second = [[(bytes(end.data), end.is_closed) for end in of_side] for of_side in ends]
    for side, own in zip(sides, pipes, strict=True):
        side.embedded.broker.store.commit()
        for pipe in own:
            pipe.close()
    assert first == second
    return both.runs


class _CountsAlone(MessageStore):
    """Counts the requests that are stored in one call.

    Attributes:
        stored_alone: Their number.
    """

    stored_alone = 0

    def put_alone(self, *arguments: Any) -> Any:
        stored = super().put_alone(*arguments)
        self.stored_alone += isinstance(stored, tuple)
        return stored


async def compare_alone(both: TwoPaths, *data: bytes) -> int:
    """Send bytes to both brokers over a new connection, each in a turn of its own; answers and files must be the same.

    Returns:
        How many of them were stored in one call.
    """
    sides = (both.at_once, both.one_by_one)
    store = both.at_once.embedded.broker.store
    store.__class__ = _CountsAlone
    before = store.stored_alone
    connections = [await side.embedded.broker.transport.connect(side.embedded.broker_address) for side in sides]
    pipes = [connection._transport for connection in connections]
    for pipe in pipes:
        pipe._protocol = Received()
    ends = [pipe._protocol for pipe in pipes]
    # The first requests make this connection the one that counts as alone.
    for part in (*[UNKNOWN] * 3, *data):
        for pipe in pipes:
            pipe.write(part)
        await asyncio.sleep(1)
    await asyncio.sleep(SECONDS)
    assert (ends[0].data, ends[0].is_closed) == (ends[1].data, ends[1].is_closed)
    for side, pipe in zip(sides, pipes, strict=True):
        side.embedded.broker.store.commit()
        pipe.close()
    both.assert_same_stores()
    return store.stored_alone - before


PROPERTIES = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "7F00000100002A9F18B4AAC200000001", "WAIT": "true", "n": "1"}
PLAIN: dict[str, Sequence[bytes]] = {
    "no properties": [send(None)],
    "empty properties": [send("")],
    "usual properties": [send(PROPERTIES)],
    "an empty body": [send(PROPERTIES, b"")],
    "closed properties": [send("TAGS\x01a\x02KEYS\x01b\x02")],
    "no wish to wait": [send({"WAIT": "false", "TAGS": "a"})],
    "only the wish to wait": [send({"WAIT": "TRUE"})],
    "text beyond ASCII": [send({"TAGS": "ключ", "KEYS": "é \U0001f511", "ü": "ö"})],
    "a compressed body": [send(PROPERTIES, zlib.compress(bytes(99)), f=str(COMPRESSED | COMPRESSION_ZLIB))],
    "a flag": [send(PROPERTIES, h=str(-(2**31)))],
    "few fields": [send(PROPERTIES, j=None, k=None, m=None, g="-1")],
    "all fields": [send(PROPERTIES, l="16", n="broker-a", o="more")],
    "other heads": [send(PROPERTIES, head={"remark": "r", "language": None, "version": -1, "x": [{"y": 1}]})],
    "a one-way request": [send(PROPERTIES, flag=2)],
    "many requests": [send({**PROPERTIES, "n": str(n)}, b"%d" % n, opaque=n, e=str(n % 4)) for n in range(100)],
    "more than a run": [send(PROPERTIES, b"%d" % n, opaque=n) for n in range(MOST_SENDS + 3)],
    "requests of 70 KiB": [send(PROPERTIES, bytes(70_000), opaque=n) for n in range(2)],
    "two topics": [send(PROPERTIES, b="orders" if n % 2 else "other", opaque=n) for n in range(9)],
    "as many keys as there may be": [send({"KEYS": " ".join("k" * MAX_KEYS)})],
    "the same header in another order": [
        frame(json.dumps({"opaque": 3, "extFields": dict(reversed(FIELDS.items())), "code": 310}).encode(), b"x")
    ],
    "unicode escapes": [frame(json.dumps({"code": 310, "extFields": {**FIELDS, "i": "TAGS\x01é\x02"}}).encode())],
}


@pytest.mark.parametrize("frames", PLAIN.values(), ids=PLAIN)
def test_plain_sends_have_equal_results(frames: list[bytes]) -> None:
    """Files, answers, statistics, and what consumers and searches by key find."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("other", queues=4)
            await side.client.send("other", body=b"first")
        queues = 4 if len(frames) == 100 else 2 if len(frames) == 9 else 1
        runs = await compare(both, b"".join(frames))
        assert sum(runs) == len(frames)
        if len(frames[0]) < 10_000:
            assert len(runs) == -(-len(frames) // MOST_SENDS) * queues
        for expression, type_ in (("*", "TAG"), ("a", "TAG"), ("TAGS = 'a' OR n = '7'", "SQL92")):
            await both.pulled(expression=expression, type_=type_)
        for key in ("k2", "7F00000100002A9F18B4AAC200000001", "é", "\U0001f511"):
            await both.found(key)

    with_both(scene, pool=False)


ODD: dict[str, bytes] = {
    "a topic that is made": send(PROPERTIES, b="new"),
    "a topic that may not be made": send(PROPERTIES, b="new", c="none"),
    "no topic": send(PROPERTIES, b=""),
    "a retry topic": send(PROPERTIES, b="%RETRY%group"),
    "a topic of the broker": send(PROPERTIES, b="SCHEDULE_TOPIC_XXXX"),
    "a wrong name": send(PROPERTIES, b="no/topic"),
    "a topic that cannot be written": send(PROPERTIES, b="read-only"),
    "several tags": send(PROPERTIES, b="several"),
    "a queue without a message": send(PROPERTIES, b="empty"),
    "any queue": send(PROPERTIES, b="one", e="-1"),
    "no such queue": send(PROPERTIES, e="4"),
    "a delay level": send({**PROPERTIES, "DELAY": "3"}),
    "no delay level": send({**PROPERTIES, "DELAY": "0"}),
    "a timer": send({**PROPERTIES, "TIMER_DELAY_SEC": "60"}),
    "a transaction": send({**PROPERTIES, "TRAN_MSG": "true", "PGROUP": "g"}),
    "half a transaction": send(PROPERTIES, f=str(TRANSACTION_PREPARED)),
    "a flag of several tags": send(PROPERTIES, f=str(MULTI_TAGS)),
    "another cluster": send({"CLUSTER": "mine", **PROPERTIES}),
    "a redelivery": send(PROPERTIES, j="1"),
    "unit mode": send(PROPERTIES, k="true"),
    "a batch": send(None, struct.pack(">iiiii", 25, 0, 0, 0, 3) + b"abc\0\0", m="true"),
    "a property twice": send("TAGS\x01a\x02KEYS\x01k\x02TAGS\x01b"),
    "another property twice": send("n\x01a\x02KEYS\x01k\x02n\x01b"),
    "a property without a name": send("\x01a\x02KEYS\x01k"),
    "a property without a value": send("TAGS\x01\x02KEYS\x01k"),
    "a name without a separator": send("TAGS\x02KEYS\x01k"),
    "two separators": send("TAGS\x01a\x01b\x02KEYS\x01k"),
    "empty properties between": send("TAGS\x01a\x02\x02KEYS\x01k"),
    "a zero byte": send({"TAGS": "a\0"}),
    "too many keys": send({"KEYS": " ".join("k" * (MAX_KEYS + 1))}),
    "many properties": send({str(n): "v" for n in range(65)}),
    "too long properties": send({"a": "x" * MAX_PROPERTIES_LENGTH}),
    "long properties": send({"a": "x" * (MAX_PROPERTIES_LENGTH - 40)}),
    "a surrogate": send({"TAGS": "\ud800"}),
    "an escaped surrogate": frame(b'{"code":310,"extFields":{"b":"orders","i":"TAGS\\u0001\\ud800"},"opaque":1}'),
    "unquoted numbers": send(PROPERTIES, e=1, f=0, g=17, h=3),
    "numbers that are none": send(PROPERTIES, e="one"),
    "leading zeros": send(PROPERTIES, e="01", h="007"),
    "a plus": send(PROPERTIES, h="+7"),
    "spaces": send(PROPERTIES, h=" 7 "),
    "digits with an underscore": send(PROPERTIES, h="1_0"),
    "too large numbers": send(PROPERTIES, h=str(2**31)),
    "an empty number": send(PROPERTIES, j=""),
    "an empty group": send(PROPERTIES, a=""),
    "no group": send(PROPERTIES, a=None),
    "no queue": send(PROPERTIES, e=None),
    "no properties but null": frame(json.dumps({"code": 310, "extFields": {**FIELDS, "i": None}}).encode()),
    "no fields": frame(b'{"code":310,"opaque":1}'),
    "a response": send(PROPERTIES, flag=1),
    "another flag": send(PROPERTIES, flag=4),
    "a code of text": send(PROPERTIES, head={"code": "310"}),
    "a fraction": send(PROPERTIES, head={"opaque": 1.0}),
    "a language by number": send(PROPERTIES, head={"language": 12}),
    "a wrong language": send(PROPERTIES, head={"language": [1]}),
    "a wrong version": send(PROPERTIES, head={"version": "x"}),
    "a large opaque": send(PROPERTIES, head={"opaque": 2**31}),
    "the older request": frame(json.dumps({"code": 10, "extFields": FIELDS}).encode()),
    "no JSON": frame(b"{" + bytes(80)),
    "no UTF-8": frame(send(PROPERTIES)[8:-5].replace(b"producers", b"prod\xffcers")),
    "a field twice": frame(send(PROPERTIES)[8:-5].replace(b'"e":"0"', b'"e":"0","e":"1"')),
    "a header that is too long": frame(send(PROPERTIES, o="x" * 300_000)[8:-5]),
    "a long header": send(PROPERTIES, o="x" * 20_000),
    "a header longer than its frame": struct.pack(">iI", 100, 200) + bytes(96),
    "a frame that is not complete": send(PROPERTIES)[:-1],
    "text": b"GET / HTTP/1.1\r\nHost: broker\r\nAccept: */*\r\nUser-Agent: someone with a browser\r\n\r\n",
    "a large body": send(PROPERTIES, bytes(4 * 1024 * 1024 + 1)),
}


async def make_topics(both: TwoPaths) -> None:
    """Create the topics of the unusual requests."""
    for side in (both.at_once, both.one_by_one):
        await side.client.create_topic("empty")
        await side.client.create_topic("read-only", perm=4)
        await side.client.create_topic("one")
        header = CreateTopicRequestHeader(
            topic="several", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="MULTI_TAG", topic_sys_flag=3, order=False,
        )  # fmt: skip
        await side.client.ask_ok(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_unusual_requests_are_handled_individually(odd: bytes) -> None:
    """With equal answers and files; requests before and after them are answered in order."""

    async def scene(both: TwoPaths) -> None:
        await make_topics(both)
        runs = await compare(both, odd)
        assert set(runs) <= {1}
        before, behind = ([send(PROPERTIES, b"%d" % n, opaque=n) for n in part] for part in (range(3), range(3, 5)))
        runs = await compare(both, b"".join([*before, odd, *behind]))
        assert runs[0] >= 3  # more where the odd one is plain behind the first three, or at the second time
        await both.pulled()

    with_both(scene, pool=False)


def test_sends_of_several_connections_are_stored_together() -> None:
    """Those of one turn of the loop; each connection gets its own answers."""

    async def scene(both: TwoPaths) -> None:
        of_each = [
            [send(PROPERTIES, b"%d of %d" % (n, who), opaque=n, e=str(who % 2), flag=2 * (n % 2)) for n in range(3)]
            for who in range(5)
        ]
        parts = [b"".join(frames) for frames in of_each]
        assert await compare(both, *parts, batch(THREE, opaque=9)) == [12, 6]
        assert await both.pulled(queue_id=1) == [b"first"] + [
            b"%d of %d" % (n, who) for who in (1, 3) for n in range(3)
        ]

    with_both(scene, pool=False)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_unusual_request_does_not_delay_other_connections(odd: bytes) -> None:
    """They are answered, as is what follows on its own connection while it stays open."""

    async def scene(both: TwoPaths) -> None:
        await make_topics(both)
        two = [send(PROPERTIES, b"%d" % n, opaque=n) for n in range(2)]
        runs = await compare(both, two[0], *two, b"".join([odd, *two]))
        assert runs[0] >= 3

    with_both(scene, pool=False)


def test_run_has_a_maximum_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is stored in further runs per connection."""
    monkeypatch.setattr(send_runs, "MOST_SENDS", 8)

    async def scene(both: TwoPaths) -> None:
        part = b"".join(send(PROPERTIES, b"%d" % n, opaque=n) for n in range(3))
        assert await compare(both, *[part] * 5) == [8, 1, 3, 3]

    with_both(scene, pool=False)


def test_sync_flush_delays_answers_of_a_run() -> None:
    """All together; a request that does not wait is handled individually."""

    async def scene(both: TwoPaths) -> None:
        frames = [send(PROPERTIES, b"%d" % n, opaque=n, flag=2 * (n % 2)) for n in range(6)]
        assert await compare(both, b"".join(frames[:3]), *frames[3:]) == [6]
        for side in (both.at_once, both.one_by_one):
            log = side.embedded.broker.store._commit_log
            assert log.flushed == log.end
        hasty = send({"WAIT": "false"}, b"hasty", opaque=9)
        assert await compare(both, frames[0], hasty) == [1, 1]

    with_both(scene, pool=False, flushDiskType="SYNC_FLUSH")


THREE = [Entry(b"%d" % n, wire({"TAGS": "a", "KEYS": f"k{n} all", "WAIT": "true"}, closed=n == 1), n) for n in range(3)]
ODD_ENTRIES = {
    "a timed message": [*THREE, Entry(b"late", wire({"TIMER_DELAY_SEC": "60"}))],
    "a property without a value": [*THREE, Entry(b"", wire({"TAGS": ""}))],
    "a zero byte": [*THREE, Entry(b"", wire({"TAGS": "\0"}))],
    "no UTF-8": [*THREE, Entry(b"", b"TAGS\x01\xff\x02")],
    "too many keys": [*THREE, Entry(b"", wire({"KEYS": " ".join("k" * (MAX_KEYS + 1))}))],
    "too long properties": [*THREE, Entry(b"", wire({"a": "x" * MAX_PROPERTIES_LENGTH}))],
    "none": [],
    "more than a part": [Entry(b"")] * (PART_MESSAGES + 1),
    "more bytes than a part": [Entry(bytes(PART_BYTES // 2))] * 2,
}


@pytest.mark.parametrize("entries", ODD_ENTRIES.values(), ids=ODD_ENTRIES)
def test_unusual_batches_are_handled_individually(entries: list[Entry]) -> None:
    """Requests before and after them are answered in order."""

    async def scene(both: TwoPaths) -> None:
        before = [send(PROPERTIES, b"%d" % n, opaque=n) for n in range(3)]
        await compare(both, b"".join([*before, batch(entries), send(PROPERTIES, b"behind")]))
        await both.pulled()

    with_both(scene, pool=False)


@pytest.mark.parametrize("code", [310, 320])
def test_batches_and_sends_of_a_read_are_stored_together(code: int) -> None:
    """Each is answered with the ids of its messages."""

    async def scene(both: TwoPaths) -> None:
        await_disk = {"WAIT": "true", "TAGS": "b", "KEYS": "all"}
        requests = [
            send(PROPERTIES, b"0", opaque=1),
            batch(THREE, await_disk, code=code, opaque=2),
            send(PROPERTIES, b"1", opaque=3, e="1"),
            batch(THREE[:1], code=code, opaque=4, e="1"),
            batch(THREE, code=code, opaque=5, flag=2),
            batch(THREE, code=code, opaque=6, f="256", h="9", g="-5", n="broker-a"),
        ]
        assert await compare(both, b"".join(requests)) == [10, 2]
        many = batch([Entry(b"", wire({"n": "1"}))] * (PART_MESSAGES // 2 - 1), code=code)
        assert await compare(both, many * 3) == [PART_MESSAGES - 2, PART_MESSAGES // 2 - 1]
        for key in ("all", "k2"):
            await both.found(key)
        for queue_id in range(2):
            await both.pulled(queue_id=queue_id, expression="a")

    with_both(scene, pool=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": "DELAY\x013\x02"},
        {"properties": "DELAY\x010\x02"},
        {"properties": "TRAN_MSG\x01true\x02"},
        {"properties": "TIMER_DELAY_MS\x019\x02"},
        {"properties": "CLUSTER\x01mine\x02"},
        {"properties": "a\x01\0\x02"},
        {"f": "4"},
        {"e": "7"},
        {"j": "2"},
        {"b": "%RETRY%g"},
        {"m": "false"},
        {"m": "yes"},
    ],
)
def test_common_fields_of_batches_are_validated_equally(fields: dict[str, Any]) -> None:
    """By their headers."""

    async def scene(both: TwoPaths) -> None:
        await compare(both, batch(THREE, **fields) + send(PROPERTIES))
        await both.pulled()

    with_both(scene, pool=False)


def test_change_of_a_topic_applies_to_the_next_request() -> None:
    """Whether it concerns the permission, the queues, the time from which sends are accepted, or the topic itself."""

    async def scene(both: TwoPaths) -> None:
        async def change(code: int, header: Header | None, body: bytes = b"") -> None:
            await asyncio.gather(*(side.client.ask_ok(code, header, body) for side in (both.at_once, both.one_by_one)))

        async def make(**fields: Any) -> None:
            usual = {
                "topic": "orders", "default_topic": "TBW102", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6,
                "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False,
            }  # fmt: skip
            await change(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(**{**usual, **fields}))

        two = send(PROPERTIES, e="3") * 2
        await compare(both, two)
        assert await compare(both, two) == [2]
        for fields, stored in (
            ({"perm": 4}, []),
            ({"perm": 6}, [2]),
            ({"read_queue_nums": 1, "write_queue_nums": 1}, []),
            ({}, [2]),
            ({"topic_filter_type": "MULTI_TAG"}, [1, 1]),
            ({"order": True}, [2]),
        ):
            await make(**fields)
            assert await compare(both, two) == stored
        for settings_, stored in (
            (b"brokerPermission=4", []),
            (b"brokerPermission=6", [2]),
            (b"startAcceptSendRequestTimeStamp=9999999999999", []),
            (b"startAcceptSendRequestTimeStamp=0", [2]),
        ):
            await change(RequestCode.UPDATE_BROKER_CONFIG, None, settings_ + b"\n")
            assert await compare(both, two) == stored
        await change(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
        assert await compare(both, two) == [1, 1]
        assert await compare(both, two) == [2]

    with_both(scene, pool=False)


def test_other_requests_in_between_keep_their_order() -> None:
    """A pull between sends sees only what was sent before it, in any encoding."""

    async def scene(both: TwoPaths) -> None:
        binary = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, send_header("orders"), b"binary", encoding=HeaderEncoding.ROCKETMQ
        )
        ask = frame(json.dumps({"code": 30, "extFields": {"topic": "orders", "queueId": "0"}, "opaque": 5}).encode())
        sends = [send(PROPERTIES, b"%d" % n, opaque=n) for n in range(4)]
        runs = await compare(both, b"".join([*sends[:2], ask, *sends[2:], ask, *binary.encode()]))
        assert (runs[0], sum(runs)) == (2, 5)

    with_both(scene, pool=False)


REGION = '"<id>"1111111111,2222222222,1333333333'


@pytest.mark.parametrize("settings_", [{"messageIndexEnable": "false"}, {"traceOn": "false", "regionId": REGION}])
def test_settings_apply_both_ways(settings_: dict[str, str]) -> None:
    """Without an index none is written; the answers have the broker's region."""

    async def scene(both: TwoPaths) -> None:
        assert await compare(both, send(PROPERTIES) * 3) == [3]
        await both.found("k1")

    with_both(scene, pool=False, **settings_)


@pytest.mark.parametrize(
    "sizes",
    [
        {"mappedFileSizeCommitLog": str(64 * 1024)},
        {"mappedFileSizeConsumeQueue": str(20 * 70)},
        {"maxIndexNum": "333"},
    ],
    ids=["the log", "the queue", "the index"],
)
def test_requests_at_the_end_of_a_file_are_stored_equally(sizes: dict[str, str]) -> None:
    """One by one, and the next ones together again."""

    async def scene(both: TwoPaths) -> None:
        ways = set()
        for number in range(20):
            sends = [send({**PROPERTIES, "KEYS": f"k{number}"}, bytes(150), e=str(n % 2)) for n in range(20)]
            runs = await compare(both, b"".join(sends))
            assert sum(runs) == 20
            ways.add(runs[0])
        assert ways == {1, 10}
        assert len(await both.found("k7")) == 20
        await both.pulled(queue_id=1)

    with_both(scene, pool=False, **sizes)


def test_damaged_requests_have_equal_results() -> None:
    """With any bytes changed."""
    random = Random(11)
    whole = b"".join(send({**PROPERTIES, "n": str(n)}, b"%d" % n, opaque=n) for n in range(3))

    async def scene(both: TwoPaths) -> None:
        taken = 0
        for _ in range(250):
            data = bytearray(whole)
            for _ in range(random.choice([1, 1, 2])):
                data[random.randrange(len(data))] = random.choice(
                    [0, 1, 2, 0x22, 0x5C, 0x30, 255, random.randrange(256)]
                )
            taken += sum(run for run in await compare(both, bytes(data)) if run > 1)
        assert taken > 100
        await both.pulled()

    with_both(scene, pool=False)


TEXTS = st.text(st.sampled_from('aZ09 _-é\0\x01\x02\x03\x7f"\\\U0001f511'), max_size=8)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "TIMER_OUT_MS", "CLUSTER", "n", ""])
SENDS = st.builds(
    send,
    st.dictionaries(NAMES, TEXTS, max_size=4),
    st.binary(max_size=40),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.sampled_from([0, 0, 0, 2]),
    b=st.sampled_from(["orders", "orders", "other", "new"]),
    e=st.sampled_from(["0", "1", "3", "9"]),
    f=st.sampled_from(["0", "0", "256", "4", "2"]),
    g=st.integers(-(2**63), 2**63 - 1).map(str),
    h=st.integers(-(2**31), 2**31 - 1).map(str),
    j=st.sampled_from([None, "0", "2"]),
)


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.binary(max_size=9),
        st.dictionaries(NAMES, TEXTS, max_size=3).map(wire),
        st.integers(-(2**31), 2**31 - 1),
    ),
    max_size=4,
)
BATCHES = st.builds(
    batch,
    ENTRIES,
    st.one_of(st.none(), st.dictionaries(NAMES, TEXTS, max_size=2)),
    code=st.sampled_from([310, 320]),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.sampled_from([0, 0, 0, 2]),
    b=st.sampled_from(["orders", "orders", "other", "new"]),
    e=st.sampled_from(["0", "1", "3", "9"]),
    f=st.sampled_from(["0", "0", "256", "4"]),
    m=st.sampled_from(["true", "true", "false"]),
)


@given(frames=st.lists(st.one_of(SENDS, BATCHES), min_size=1, max_size=12))
@settings(max_examples=60)
def test_arbitrary_requests_have_equal_results(frames: list[bytes]) -> None:
    """Any requests give the same answers and the same files on both paths."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("other")
        await compare(both, b"".join(frames))
        for queue_id in range(4):
            await both.pulled(queue_id=queue_id)

    with_both(scene, pool=False)


@pytest.mark.parametrize("frames", PLAIN.values(), ids=PLAIN)
def test_plain_sends_that_come_alone_have_equal_results(frames: list[bytes]) -> None:
    """Each with a usual header is stored and answered in one call."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("other", queues=4)
            await side.client.send("other", body=b"first")
        few = frames[:9]
        await compare_alone(both, *few)  # what is known of queues is learned from the first requests
        count = await compare_alone(both, *few)
        # Headers in another order take the usual path, and so do large messages and many keys when space is reserved.
        assert count == len(few) or few[0][8:].find(b'{"code":310,') or len(few[0]) > 2_000
        await both.pulled(expression="a")
        await both.found("k2")

    with_both(scene, pool=False)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_unusual_requests_that_come_alone_have_equal_results(odd: bytes) -> None:
    """The usual requests before and after them do, too."""

    async def scene(both: TwoPaths) -> None:
        await make_topics(both)
        plain = send(PROPERTIES, b"plain")
        await compare_alone(both, plain, odd, plain)
        await both.pulled()

    with_both(scene, pool=False)


@pytest.mark.parametrize("entries", [THREE, THREE[:1], *ODD_ENTRIES.values()], ids=["three", "one", *ODD_ENTRIES])
def test_batches_that_come_alone_have_equal_results(entries: list[Entry]) -> None:
    """Plain ones are stored in one call, too."""

    async def scene(both: TwoPaths) -> None:
        plain = send(PROPERTIES, b"plain")
        count = await compare_alone(both, plain, plain, batch(entries), batch(entries, code=310), plain)
        assert count >= (4 if entries in (THREE, THREE[:1]) else 2)
        await both.pulled()

    with_both(scene, pool=False)


@given(frames=st.lists(st.one_of(SENDS, BATCHES), min_size=1, max_size=8))
@settings(max_examples=40)
def test_arbitrary_requests_that_come_alone_have_equal_results(frames: list[bytes]) -> None:
    """Any request gives the same answer and the same files on both paths."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("other")
        plain = send(PROPERTIES)
        assert await compare_alone(both, plain, plain, *frames, plain) >= 1
        for queue_id in range(4):
            await both.pulled(queue_id=queue_id)

    with_both(scene, pool=False)


@pytest.mark.parametrize(
    "sizes",
    [
        {"mappedFileSizeCommitLog": str(8 * 1024)},
        {"mappedFileSizeConsumeQueue": str(20 * 7)},
        {"maxIndexNum": "33"},
        {"messageIndexEnable": "false"},
        {"flushDiskType": "SYNC_FLUSH"},
    ],
    ids=["the log", "the queue", "the index", "no index", "with a flush"],
)
def test_requests_that_come_alone_at_the_end_of_a_file_are_stored_equally(sizes: dict[str, str]) -> None:
    """They take the usual path; the next ones take the lone path again. With SYNC_FLUSH all take the usual path."""

    async def scene(both: TwoPaths) -> None:
        frames = [send({**PROPERTIES, "KEYS": f"k{n}"}, bytes(150), e=str(n % 2)) for n in range(40)]
        count = await compare_alone(both, *frames)
        assert (count == 0) if "flushDiskType" in sizes else (len(frames) * 2 // 3 < count < len(frames))
        await both.found("k7")
        await both.pulled(queue_id=1)

    with_both(scene, pool=False, **sizes)


def test_rules_apply_to_requests_that_come_alone() -> None:
    """A changed topic or setting, or a deleted topic, takes effect with the next request."""

    async def scene(both: TwoPaths) -> None:
        async def change(code: int, header: Header | None, body: bytes = b"") -> None:
            await asyncio.gather(*(side.client.ask_ok(code, header, body) for side in (both.at_once, both.one_by_one)))

        async def make(**fields: Any) -> None:
            usual = {
                "topic": "orders", "default_topic": "TBW102", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6,
                "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False,
            }  # fmt: skip
            await change(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(**{**usual, **fields}))

        one = send(PROPERTIES, e="3")
        assert await compare_alone(both, one, one) >= 1
        for fields, stored in (
            ({"perm": 4}, 0),
            ({"perm": 6}, 1),
            ({"read_queue_nums": 1, "write_queue_nums": 1}, 0),
            ({}, 1),
            ({"topic_filter_type": "MULTI_TAG"}, 0),
            ({}, 1),
        ):
            await make(**fields)
            assert await compare_alone(both, one, one) == stored
        for settings_, stored in (
            (b"regionId=elsewhere", 1),
            (b"traceOn=false", 1),
            (b"startAcceptSendRequestTimeStamp=9999999999999", 0),
            (b"startAcceptSendRequestTimeStamp=0", 2),
        ):
            await change(RequestCode.UPDATE_BROKER_CONFIG, None, settings_ + b"\n")
            assert await compare_alone(both, one, one) == stored
        await make(order=True)  # from now on a setting decides whether the topic can be written
        assert await compare_alone(both, one, one) == 0
        await change(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="orders"))
        assert await compare_alone(both, one, one, one) == 1

    with_both(scene, pool=False)


def test_requests_that_come_into_a_run_only_when_it_is_read_again_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends earlier on one connection has room for further requests of others."""
    monkeypatch.setattr(send_runs, "MOST_SENDS", 8)

    async def scene(both: TwoPaths) -> None:
        await make_topics(both)
        refused = [send(PROPERTIES, b="read-only", opaque=n) for n in range(8)]
        first, second = send(PROPERTIES, b"1", opaque=8), send(PROPERTIES, b"2", opaque=9)
        await compare(both, b"".join([first, *refused]), b"".join([second, *refused]))

    with_both(scene, pool=False)


def test_sends_to_ordered_topics_that_come_alone_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stored as a run of what was read already; and a request with a similar code is looked at once."""
    taken: list[tuple[SendRuns, bytes]] = []
    take = SendRuns.take

    def noted(self: SendRuns, received: Sequence[tuple[Any, memoryview]]) -> Any:
        taken.append((self, bytes(received[0][1][16:18])))
        return take(self, received)

    monkeypatch.setattr(SendRuns, "take", noted)

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            header = CreateTopicRequestHeader(
                topic="orders", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
                topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=True,
            )  # fmt: skip
            await side.client.ask_ok(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        one, two = send(PROPERTIES), send(PROPERTIES, opaque=8)
        assert await compare_alone(both, one, one) == 0
        both.at_once.runs.clear()
        taken.clear()  # the first send makes what later ones need
        assert await compare_alone(both, one, one + two, frame(b'{"code":34,"opaque":1}' + b" " * 99)) == 0
        assert both.at_once.runs == [1, 2]
        own = both.at_once.embedded.broker._send_runs
        assert [code for runs, code in taken if runs is own and code.startswith(b"3")] == []

    with_both(scene, pool=False)
