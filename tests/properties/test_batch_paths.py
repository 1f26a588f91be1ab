"""Batches have the same results whether a part is stored in one call by the native core or message by message."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_broker.processors.batches import (
    MAX_MESSAGES,
    MOST_KEYS,
    PART_BYTES,
    PART_MESSAGES,
    bounds_in_steps,
    read_plain,
)
from rocket_broker.processors.deduplicated import LONGEST_PROPERTIES
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.steps import run_all
from rocket_remoting.wire.batch import BatchEntry, decode_batch
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED, sequence_key, writer_id
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import CreateTopicRequestHeader, SendDeduplicatedRequestHeader
from rocket_remoting.wire.properties import MAX_PROPERTIES_LENGTH
from rocket_remoting.wire.sys_flag import MULTI_TAGS, TRANSACTION_COMMIT, TRANSACTION_PREPARED
from tests.end_to_end.raw_client import HELD, RawClient, send_header
from tests.native_core import needs_native_core
from tests.properties.batch_paths import Entry, TwoPaths, batch_body, wire, with_both
from tests.store.disk import Disk, FakeClock
from tests.store.faulty_file_system import FaultyFileSystem

pytestmark = needs_native_core

COUNT = 50
FEW = 3
Properties = Callable[[int], dict[str, str]]


def usual(
    properties: Properties = lambda n: {},
    *,
    count: int = COUNT,
    size: int = 100,
    closed: bool = True,
    first: int = 0,
) -> list[Entry]:
    """Return messages that begin with their numbers, with at least ``size`` bytes each."""
    numbers = range(first, first + count)
    return [Entry(b"%d " % n + bytes(size), wire(properties(n), closed=closed), n) for n in numbers]


def one_odd(properties: bytes, count: int = COUNT) -> list[Entry]:
    """Return tagged messages, the last but one with other properties."""
    entries = usual(lambda n: {"TAGS": "a", "UNIQ_KEY": f"u{n}"}, count=count)
    entries[-2] = replace(entries[-2], properties=properties)
    return entries


def bodies(entries: list[Entry]) -> list[bytes]:
    """Return the messages' bodies."""
    return [entry.body for entry in entries]


STORED_AT_ONCE = {
    "no properties": usual(),
    "tags": usual(lambda n: {"TAGS": f"t{n % 3}" * (n % 5 + 1)}),
    "unique keys": usual(lambda n: {"UNIQ_KEY": f"7F00000100002A9F18B4AAC2{n:08X}"}),
    "several keys": usual(lambda n: {"KEYS": f" k{n}  all {n % 4} ", "UNIQ_KEY": f"u{n}"}),
    "one key of all": usual(lambda n: {"KEYS": "all", "UNIQ_KEY": "all"}),
    "spaces beside keys": usual(lambda n: {"p": "v w", "KEYS": f"k{n} all", "q": " x y  z "}),
    "only spaces as keys": usual(lambda n: {"KEYS": "  "}),
    "some have some": usual(lambda n: {"TAGS": "a", "UNIQ_KEY": f"u{n}"} if n % 3 else {"p": "v w"}),
    "as Java's clients before 5.0": usual(lambda n: {"TAGS": "a", "n": str(n)} if n % 2 else {}, closed=False),
    "names that others begin with": usual(lambda n: {"TAG": "x", "TAGSS": "y", "KEY": "z", "xTAGS": "a"}),
    "a delay level": usual(lambda n: {"DELAY": "3"}),
    "a transaction's properties": usual(lambda n: {"TRAN_MSG": "true", "PGROUP": "p"}),
    "a redelivery's properties": usual(lambda n: {"RETRY_TOPIC": "other", "RECONSUME_TIME": "3"}),
    "a schedule's properties": usual(lambda n: {"REAL_TOPIC": "other", "REAL_QID": "7", "WAIT": "false"}),
    "control characters": usual(lambda n: {"a": "\x7f\x03\n"}),
    "empty bodies": [Entry(b"", wire({"UNIQ_KEY": f"u{n}"})) for n in range(300)],
    "large bodies": usual(lambda n: {"TAGS": "a"}, size=8000),
    "flags at the ends of their range": [replace(e, flag=(-1) ** n * (2**31 - 1)) for n, e in enumerate(usual())],
    "the longest properties": one_odd(wire({"a": "x" * (MAX_PROPERTIES_LENGTH - 58)})),
    "as many keys as a message may have": one_odd(wire({"KEYS": " ".join("abcdefghij" * 51)})),
    "one message": usual(count=1),
    "tags beyond ASCII": one_odd(wire({"TAGS": "ключ"})),
    "keys beyond ASCII": one_odd(wire({"KEYS": "k ключ é"})),
    "a unique key beyond ASCII": one_odd(wire({"UNIQ_KEY": "\U0001f511"})),
    "a value beyond ASCII": one_odd(wire({"a": "é"})),
    "a name beyond ASCII": one_odd(wire({"é": "a"})),
    "a timer's name as a value": one_odd(wire({"a": "TIMER_DELAY_SEC"})),
    "as many keys as there may be": one_odd(wire({"KEYS": " ".join("k" * MAX_KEYS)})),
    "long keys": usual(lambda n: {"KEYS": f"{n:01000}"}, count=70),
    "two parts": usual(lambda n: {"UNIQ_KEY": f"u{n}"}, count=PART_MESSAGES + FEW, size=60),
}


@pytest.mark.parametrize("entries", STORED_AT_ONCE.values(), ids=STORED_AT_ONCE)
def test_plain_batches_have_equal_results(entries: list[Entry]) -> None:
    """Files, answers, statistics, and what consumers and searches by key find."""

    async def scene(both: TwoPaths) -> None:
        answer = await both.send(entries)
        assert answer.code == ResponseCode.SUCCESS
        parts = [min(PART_MESSAGES, len(entries) - n) for n in range(0, len(entries), PART_MESSAGES)]
        assert both.runs == parts
        assert await both.pulled() == [b"first", *bodies(entries)]
        tagged = [entry.body for entry in entries if b"TAGS\x01a\x02" in b"\2" + entry.properties + b"\2"]
        for expression, type_ in (("a || t1", "TAG"), ("n > 20 OR TAGS = 'a'", "SQL92")):
            assert set(tagged) <= {*await both.pulled(expression=expression, type_=type_), *tagged}
        for key in ("all", "k7", "u7", "first", "j"):
            await both.found(key)

    with_both(scene)


STORED_ONE_BY_ONE = {
    "a value without a name": one_odd(wire({"": "v", "TAGS": "a"})),
    "a name without a value": one_odd(wire({"a": "", "TAGS": "a"})),
    "a name without a separator": one_odd(b"TAGS\x01a\x02b"),
    "a value's separator behind a name": one_odd(b"TAGS\x02a\x02"),
    "a name's separator behind a value": one_odd(b"TAGS\x01a\x01KEYS\x01b\x02"),
    "a last name without a separator": [*usual(), *one_odd(b"TAGS\x02", 2)[:1]],
    "two values": one_odd(b"TAGS\x01a\x01b\x02"),
    "an empty property": one_odd(b"\x02\x02TAGS\x01a\x02"),
    "a value that is not closed, and no other": one_odd(b"a\x01b\x02TAGS"),
    "tags twice": one_odd(b"TAGS\x01a\x02x\x01y\x02TAGS\x01b\x02"),
    "keys twice": one_odd(b"KEYS\x01a\x02KEYS\x01b\x02"),
    "a unique key twice": one_odd(b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"),
    "a time that is past": one_odd(wire({"TIMER_DELIVER_MS": "1", "TAGS": "a"})),
    "a time that is over": one_odd(wire({"TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "1700000000000"})),
    "a time beside a delay level": one_odd(wire({"TIMER_DELAY_SEC": "60", "DELAY": "3"})),
    "many keys in all": usual(lambda n: {"KEYS": "k " * 1000}, count=MOST_KEYS // 1000 + 1),
}


@pytest.mark.parametrize("entries", STORED_ONE_BY_ONE.values(), ids=STORED_ONE_BY_ONE)
def test_part_with_an_unusual_message_is_stored_one_by_one(entries: list[Entry]) -> None:
    """With equal files and answers."""

    async def scene(both: TwoPaths) -> None:
        answer = await both.send(entries)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert both.runs == [1] * len(entries)
        assert await both.pulled() == [b"first", *bodies(entries)]
        for expression in ("a", "b", "ключ"):
            await both.pulled(expression=expression)
        for key in ("a", "b", "u7", "k", "é", "ключ", "\U0001f511"):
            await both.found(key)

    with_both(scene)


SOON = str(1_700_000_000_000 + 10 * 365 * 86_400_000)
REFUSED = {
    "delayed by seconds": (one_odd(wire({"TIMER_DELAY_SEC": "60"})), 0),
    "delayed by milliseconds": (one_odd(wire({"TAGS": "a", "TIMER_DELAY_MS": "60000"}, closed=False)), 0),
    "timed": (one_odd(wire({"TIMER_DELIVER_MS": SOON})), 0),
    "timed, in the second part": (one_odd(wire({"TIMER_DELAY_SEC": "60"}), PART_MESSAGES + FEW), 0),
    "timed and cancelling": (one_odd(wire({"TIMER_DEL_UNIQKEY": "u1", "TIMER_DELIVER_MS": SOON})), 0),
    "no number as a time": (one_odd(wire({"TIMER_DELAY_SEC": "soon"})), 0),
    "too many keys": (one_odd(wire({"KEYS": " ".join("k" * (MAX_KEYS + 1))})), COUNT - 2),
    "too many spaces in keys": (one_odd(wire({"KEYS": "k" + " " * MAX_KEYS})), COUNT - 2),
    "a zero byte": (one_odd(b"TAGS\x01a\0\x02"), COUNT - 2),
    "too long properties": (one_odd(wire({"a": "x" * (MAX_PROPERTIES_LENGTH - 3)})), COUNT - 2),
    "properties that are no text": (one_odd(b"TAGS\x01\xff\x02"), None),
    "too many messages": ([Entry(b"")] * (MAX_MESSAGES + 1), 0),
    "too many bytes": ([Entry(bytes(80_000))] * 60, 0),
}


@pytest.mark.parametrize(("entries", "stored"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_equal(entries: list[Entry], stored: int | None) -> None:
    """With the same messages stored before: none, or those before the illegal one."""

    async def scene(both: TwoPaths) -> None:
        answer = await both.send(entries)
        if stored is not None:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
            assert both.runs == [1] * stored
            assert await both.pulled() == [b"first", *bodies(entries)[:stored]]

    with_both(scene)


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("orders", {"properties": {"DELAY": "3"}}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", {"properties": {"TIMER_DELAY_SEC": "60"}}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", {"properties": {"TRAN_MSG": "true"}}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", {"sys_flag": TRANSACTION_PREPARED}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", {"properties": {"a": "\0"}}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", {"queue_id": 4}, ResponseCode.SYSTEM_ERROR),
        ("orders", {"reconsume_times": 2**31 - 1}, ResponseCode.SUCCESS),
        ("%RETRY%g", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ("read-only", {}, ResponseCode.NO_PERMISSION),
        ("no/topic", {}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_headers_are_validated_equally(topic: str, fields: dict[str, Any], code: ResponseCode) -> None:
    """Fields common to all messages are refused or stored both ways."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("read-only", perm=4)
        answer = await both.send(usual(), topic, **fields)
        assert answer.code == code, answer.remark
        assert sum(both.runs) == (COUNT if code == ResponseCode.SUCCESS else 0)

    with_both(scene)


@pytest.mark.parametrize(
    "fields",
    [
        {
            "sys_flag": MULTI_TAGS,
            "reconsume_times": 3,
            "born_timestamp": 7,
            "properties": {"TAGS": "b", "é": "ü"},
        },
        {"queue_id": 3, "flag": 9, "properties": {"KEYS": "all", "UNIQ_KEY": "all", "WAIT": "false"}},
    ],
)
def test_common_fields_are_stored_equally(fields: dict[str, Any]) -> None:
    """In each record, and in a topic whose messages have several tags."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            header = CreateTopicRequestHeader(
                topic="several", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
                topic_filter_type="MULTI_TAG", topic_sys_flag=3, order=False,
            )  # fmt: skip
            await side.client.ask_ok(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for topic in ("orders", "several", "made on the way".replace(" ", "-")):
            answer = await both.send(usual(lambda n: {"TAGS": "a", "KEYS": f"k{n}"}), topic, **fields)
            assert (answer.code, both.runs) == (ResponseCode.SUCCESS, [COUNT]), answer.remark
            expected = usual()
            for expression in ("a", "b"):
                found = await both.pulled(topic, fields.get("queue_id", 0), expression)
                assert found == (bodies(expected) if expression == "a" else [])
            assert await both.found("all", topic) == []

    with_both(scene)


FULL = {
    "the log": {"mappedFileSizeCommitLog": str(128 * 1024)},
    "the queue": {"mappedFileSizeConsumeQueue": str(20 * 2 * COUNT + 20 * 7)},
    "the index": {"maxIndexNum": "333"},
    "log, queue and index": {
        "mappedFileSizeCommitLog": str(64 * 1024),
        "mappedFileSizeConsumeQueue": str(20 * 130),
        "maxIndexNum": "333",
    },
}


@pytest.mark.parametrize("sizes", FULL.values(), ids=FULL)
def test_part_at_the_end_of_a_file_is_stored_equally(sizes: dict[str, str]) -> None:
    """It is stored message by message, the next part in one call again, in several queues."""

    async def scene(both: TwoPaths) -> None:
        ways, sent = set(), list[list[bytes]]([[], []])
        for number in range(20):
            first = number * COUNT
            entries = usual(
                lambda n: {"UNIQ_KEY": f"u{n}", "KEYS": "all"},
                first=first,
                size=number * 40 + 100,
            )
            answer = await both.send(entries, queue_id=number % 2)
            assert answer.code == ResponseCode.SUCCESS
            ways.add(len(both.runs))
            sent[number % 2] += bodies(entries)
        assert ways == {1, COUNT}
        assert [await both.pulled(queue_id=queue_id) for queue_id in range(2)] == [
            [b"first", *sent[0]],
            [b"first", *sent[1]],
        ]
        assert len(await both.found("u777")) == 1

    with_both(scene, **sizes)


def test_held_pulls_are_answered_equally() -> None:
    """Those with filters get the first match and what follows."""

    async def scene(both: TwoPaths) -> None:
        found = []
        for side in (both.at_once, both.one_by_one):
            consumer = await RawClient.connect(side.embedded.broker.transport, side.embedded.broker_address)
            pulls = [
                asyncio.ensure_future(consumer.pull(offset=1, subscription=tag, sys_flag=HELD))
                for tag in ("a", "b", "never")
            ]
            await consumer.end()
            entries = usual(lambda n: {"TAGS": "b" if n == 40 else "a"})
            await side.client.ask_ok(
                RequestCode.SEND_BATCH_MESSAGE, send_header("orders", batch=True), batch_body(entries)
            )
            side.embedded.broker.store.commit()
            answered = [await pull for pull in pulls[:2]]
            assert not pulls[2].done()
            found.append([pulled.messages[0] for pulled in answered])
            await consumer.connection.close()
            with pytest.raises(RemotingError):
                await pulls[2]
        assert found[0] == found[1]
        assert [message.body[:2] for message in found[0]] == [b"0 ", b"40"]

    with_both(scene)


WRITER = writer_id("batches")


async def deduplicated(
    both: TwoPaths, entries: list[Entry], first: int, *, writer: str = WRITER, epoch: int = 0
) -> RemotingCommand:
    """Send a writer's idempotent batch to both brokers."""
    header = SendDeduplicatedRequestHeader(
        producer_group="g", topic="orders", default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=1, flag=0, batch=True,
        writer=writer, epoch=epoch, sequence=first,
    )  # fmt: skip
    return await both.ask(SEND_DEDUPLICATED, header, batch_body(entries))


def written(first: int, count: int = COUNT, *, writer: str = WRITER, epoch: int = 0) -> list[Entry]:
    """Return messages of a writer."""
    return usual(lambda n: {"TAGS": "a", "UNIQ_KEY": sequence_key(writer, epoch, n)}, first=first, count=count)


def test_writers_messages_are_stored_once_both_ways() -> None:
    """Repeated as a whole or in part, after a gap, and of the next epoch."""

    async def scene(both: TwoPaths) -> None:
        epochs = [
            (0, 0, [COUNT]),
            (0, 0, []),
            (25, 0, [1] * 25),
            (75, 0, [COUNT]),
            (130, 0, None),
            (0, 1, [COUNT]),
        ]
        for first, epoch, stored in epochs:
            answer = await deduplicated(both, written(first, epoch=epoch), first, epoch=epoch)
            assert (answer.code == ResponseCode.SUCCESS) == (stored is not None), answer.remark
            assert both.runs == (stored or [])
        assert len(await both.pulled()) == 1 + 125 + COUNT

    with_both(scene)


def keyed(number: int, key: str) -> list[Entry]:
    """Return messages of a writer, one of them with another key."""
    entries = written(0)
    entries[number] = replace(entries[number], properties=wire({"UNIQ_KEY": key}))
    return entries


KEY = sequence_key(WRITER, 0, 44)
NOT_OF_THE_WRITER = {
    "another sequence": keyed(44, sequence_key(WRITER, 0, 45)),
    "another epoch": keyed(44, sequence_key(WRITER, 1, 44)),
    "another writer": keyed(44, sequence_key(writer_id("other"), 0, 44)),
    "small digits": keyed(44, KEY[:-2] + "2c"),
    "a longer key": keyed(44, KEY + "0"),
    "a shorter key": keyed(44, KEY[:-1]),
    "no digits": keyed(44, KEY[:-2] + "G" + KEY[-1]),
    "no key": [*written(0, 44), Entry(bytes(9)), *written(45, 5)],
    "too long properties": [
        *written(0, 49),
        Entry(b"", wire({"UNIQ_KEY": sequence_key(WRITER, 0, 49), "a": "x" * (LONGEST_PROPERTIES - 44)})),
    ],
}


@pytest.mark.parametrize("entries", NOT_OF_THE_WRITER.values(), ids=NOT_OF_THE_WRITER)
def test_keys_of_another_writer_are_refused_both_ways(entries: list[Entry]) -> None:
    """Nothing of the batch is stored."""

    async def scene(both: TwoPaths) -> None:
        assert (await deduplicated(both, written(0), 0, writer=WRITER, epoch=1)).code != ResponseCode.SUCCESS
        assert (await deduplicated(both, entries, 0)).code == ResponseCode.MESSAGE_ILLEGAL
        assert both.runs == []

    with_both(scene)


def test_longest_properties_of_a_writer_are_stored_both_ways() -> None:
    """The last message's have the maximum length."""
    last = wire({"UNIQ_KEY": sequence_key(WRITER, 0, 49), "a": "x" * (LONGEST_PROPERTIES - 45)})
    assert len(last) == LONGEST_PROPERTIES

    async def scene(both: TwoPaths) -> None:
        assert (await deduplicated(both, [*written(0, 49), Entry(b"", last)], 0)).code == ResponseCode.SUCCESS
        assert both.runs == [COUNT]

    with_both(scene)


LENGTHS = {"size": (0, ">i"), "body": (16, ">i"), "properties": (20 + len(b"0 ") + 100, ">h")}
"""Where a message of `usual` has its lengths."""


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("change", [-(2**31), -1000, -23, -1, 1, 23, 1000, 2**30])
@pytest.mark.parametrize("number", [0, 7])
def test_inconsistent_lengths_are_refused_both_ways(length: str, change: int, number: int) -> None:
    """A first or later message's length that is too small, negative, too large or beyond the batch."""
    body = bytearray(batch_body(usual(lambda n: {"TAGS": "a"}, count=COUNT)))
    offset, format_ = LENGTHS[length]
    offset += number * (len(body[: body.index(b"10 ")]) - 20) // 10
    (right,) = struct.unpack_from(format_, body, offset)
    limit = 2 ** (8 * struct.calcsize(format_) - 1)
    struct.pack_into(format_, body, offset, max(-limit, min(right + change, limit - 1)))

    async def scene(both: TwoPaths) -> None:
        header = send_header("orders", batch=True)
        answer = await both.ask(RequestCode.SEND_BATCH_MESSAGE, header, bytes(body))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert both.runs == []

    with_both(scene)


def test_no_index_is_written_both_ways_if_disabled() -> None:
    """The setting ``messageIndexEnable``."""

    async def scene(both: TwoPaths) -> None:
        answer = await both.send(usual(lambda n: {"KEYS": "all", "UNIQ_KEY": f"u{n}"}))
        assert (answer.code, both.runs) == (ResponseCode.SUCCESS, [COUNT])
        assert await both.found("all") == []

    with_both(scene, messageIndexEnable="false")


@pytest.mark.parametrize(
    ("sys_flag", "settings_"),
    [(TRANSACTION_PREPARED, {}), (TRANSACTION_COMMIT, {}), (0, {"max_message_size": 8})],
)
def test_unusual_messages_are_left_to_the_loop(sys_flag: int, settings_: dict[str, int]) -> None:
    """Transactional ones and too large bodies; nothing is stored in one call."""
    data = batch_body([Entry(bytes(9))] * FEW)
    head = BatchHead("orders", 1, b"", sys_flag, 7, ("10.0.0.1", 5), 0)
    disk = Disk(FaultyFileSystem(), Path("/store"), FakeClock())
    store = disk.open(**settings_)
    writer = MessageWriter(store, DelayLevels("1s"), disk.clock, ("127.0.0.1", 10911))
    writer.put_entry(BatchHead("orders", 1, b"", 0, 7, ("10.0.0.1", 5), 0), BatchEntry(0, b"first", b""))
    end = store.max_commit_log_offset
    messages = read_plain(data, 0, len(data))
    assert messages is not None
    assert writer.put_plain(head, messages) is None
    assert store.max_commit_log_offset == end > 0
    disk.close()


@given(
    sizes=st.lists(st.one_of(st.integers(20, 60), st.integers(-5, 400_000)), max_size=60),
    repeated=st.integers(1, 1500),
    cut=st.integers(0, 30),
)
@settings(max_examples=60)
def test_parts_of_a_batch_are_equal_both_ways(sizes: list[int], repeated: int, cut: int) -> None:
    """Whatever the size fields are."""
    data = b"".join(struct.pack(">i", size) + bytes(max(0, size - 4)) for size in sizes)
    data = (data * repeated)[: 5_000_000 - cut]
    from rocket_native import part_bounds

    native = part_bounds(data, most_messages=PART_MESSAGES, most_bytes=PART_BYTES, most_in_all=MAX_MESSAGES)
    assert native == run_all(bounds_in_steps(data))


NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "n", "", "é"]
)
VALUES = st.one_of(
    st.sampled_from(["a", "b", "all", "true", "false", "3", "60", "k1 k2", " k1  k2 ", ""]),
    st.text(st.sampled_from("aZ09 _é\0\x03\x7f\U0001f511"), max_size=12),
    st.integers(0, 90).map(lambda size: "k" * size),
)
ORDINARY = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "n"]),
    st.text(st.sampled_from("aZ09 _-\x03\x7f"), min_size=1, max_size=12),
)
ODD = st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
    lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found).encode()
)


@given(
    kinds=st.lists(ORDINARY, min_size=1, max_size=6),
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6),
    flags=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=3),
    count=st.integers(FEW, 70),
    closed=st.booleans(),
    odd=st.one_of(st.none(), st.tuples(st.integers(0, 69), ODD)),
    fields=st.fixed_dictionaries(
        {
            "queue_id": st.integers(0, 3),
            "sys_flag": st.sampled_from([0, MULTI_TAGS, TRANSACTION_PREPARED]),
            "reconsume_times": st.integers(0, 16),
            "properties": st.dictionaries(st.sampled_from(["TAGS", "KEYS", "x", "ü"]), st.text("ab é", min_size=1)),
        }
    ),
)
@settings(max_examples=25)
def test_arbitrary_batch_has_equal_results(  # noqa: PLR0917
    kinds: list[dict[str, str]],
    sizes: list[int],
    flags: list[int],
    count: int,
    closed: bool,
    odd: tuple[int, bytes] | None,
    fields: dict[str, Any],
) -> None:
    """With any kind of message; a batch of ordinary messages alone is stored in one call."""
    entries = [
        Entry(
            b"%d " % n + bytes(sizes[n % len(sizes)] + 120),
            wire(kinds[n % len(kinds)], closed=closed),
            flags[n % len(flags)],
        )
        for n in range(count)
    ]
    if odd is not None:
        entries[odd[0] % count] = replace(entries[odd[0] % count], properties=odd[1])

    async def scene(both: TwoPaths) -> None:
        answer = await both.send(entries, **fields)
        if odd is None:
            stored = [count] if fields["sys_flag"] != TRANSACTION_PREPARED else []
            assert both.runs == stored, answer.remark
        for expression, type_ in (("*", "TAG"), ("a || all", "TAG"), ("n > 2 OR TAGS = 'a'", "SQL92")):
            await both.pulled("orders", fields["queue_id"], expression, type_)
        for key in ("all", "k1", "k2", "a"):
            await both.found(key)

    with_both(scene)


@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=2))
@settings(max_examples=40)
def test_damaged_batch_has_equal_results(changes: list[tuple[float, int]]) -> None:
    """With any bytes changed."""
    body = bytearray(batch_body(usual(lambda n: {"TAGS": "a", "KEYS": f"k{n} all"}, count=FEW)))
    for place, byte in changes:
        body[int(place * len(body))] = byte

    async def scene(both: TwoPaths) -> None:
        await both.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("orders", batch=True), bytes(body))
        await both.pulled()

    with_both(scene)


@given(waits=st.lists(st.sampled_from(["true", "false", "TRUE", "no", None]), min_size=FEW, max_size=40))
@settings(max_examples=20)
def test_positions_and_flush_waits_are_equal(waits: list[str | None]) -> None:
    """The results of both ways, with whether the answer waits for the disk."""
    data = batch_body([Entry(bytes(9), wire({"WAIT": wait} if wait else {})) for wait in waits])
    head = BatchHead("orders", 1, b"CLUSTER\x01c", 0, 7, ("10.0.0.1", 5), 2)
    results = []
    for at_once in (True, False):
        disk = Disk(FaultyFileSystem(), Path("/store"), FakeClock())
        writer = MessageWriter(disk.open(), DelayLevels("1s"), disk.clock, ("127.0.0.1", 10911))
        entries = decode_batch(data)
        writer.put_entry(head, entries[0])
        if at_once:
            messages = read_plain(data, 0, len(data))
            assert messages is not None
            run = writer.put_plain(head, messages)
            assert run is not None
            results.append((run.offsets, run.size, run.queue_offset, run.last))
        else:
            stored = [writer.put_entry(head, entry) for entry in entries]
            results.append(
                (
                    [result.commit_log_offset for result in stored],
                    sum(result.size for result in stored),
                    stored[0].queue_offset,
                    stored[-1],
                )
            )
        disk.close()
    assert results[0] == results[1]
    assert results[0][3].wait_store_ok == (waits[-1] is None or waits[-1].lower() == "true")
