"""Unusual and damaged records: the partition continues, and no other message is lost."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import OffsetSpec

from streamkit import Message, StreamApplication
from streamkit.listeners.listener import send_to
from streamkit.messaging import headers as portable
from streamkit.settlement import Reject
from tests.peer import raw_kafka
from tests.peer.kafka import KafkaServer
from tests.peer.raw_kafka import RawRecord, batch, records
from tests.peer.test_kafka_binder import Inbox, Shop, eventually

pytestmark = [pytest.mark.slow]

LAST = RawRecord(b"last")
GZIP, UNKNOWN_CODEC, TRANSACTIONAL, CONTROL = 1, 7, 0x10, 0x20


class ForeignShop(Shop):
    """An application whose topic has one partition that is written byte by byte."""

    def __init__(self, server: KafkaServer) -> None:
        super().__init__(server)
        self._server = server
        self.letters = f"error.{self.topic}.{self.group}"

    async def store(self, *batches: bytes) -> None:
        """Send batches to the Kafka broker, which appends them to the topic."""
        await asyncio.to_thread(raw_kafka.store, self.brokers, self.topic, *batches)

    def overwrite(self, written: bytes, by: bytes) -> None:
        """Change bytes on Kafka's disk; offset and leader epoch stay as Kafka wrote them."""
        assert len(by) == len(written)
        segment = self._server.segment(self.topic)
        place = segment.read_bytes().index(written[16:]) - 16
        with segment.open("r+b") as file:
            file.seek(place + 8)
            file.write(by[8:12])
            file.seek(place + 16)
            file.write(by[16:])

    async def size(self, topic: str) -> int:
        """Return the number of records in the topic's only partition; 0 without a topic."""

        def look() -> int:
            with self.admin() as admin:
                key = TopicPartition(topic, 0)
                return admin.list_partition_offsets({key: OffsetSpec.LATEST})[key].offset

        return await asyncio.to_thread(look) if await self.partitions(topic) else 0

    @asynccontextmanager
    async def reading(self, inbox: Inbox, **settings: object) -> AsyncIterator[StreamApplication]:
        """Run an application that records every message."""
        async with self.app(self.listening(inbox), **settings) as app:
            yield app


@pytest.fixture
def foreign(kafka_server: KafkaServer) -> ForeignShop:
    return ForeignShop(kafka_server)


def test_headers_may_have_any_bytes_as_names_and_values(foreign: ForeignShop) -> None:
    """Invalid UTF-8 in names becomes U+FFFD, as in Java's clients; null means no header."""
    odd = RawRecord(b"odd", b"\xff", [(b"colour\xff", b"\xfe"), (b"none", None), (b"", b"x"), (b"size", b"\x00")])
    found = records(odd, RawRecord(b"next"))

    async def main() -> None:
        await foreign.make_topic(1)
        await foreign.store(batch(found, 2), batch(gzip.compress(found), 2, attributes=GZIP), raw_kafka.of(LAST))
        inbox = Inbox()
        async with foreign.reading(inbox):
            messages = await inbox.wait(5)
            await eventually(foreign.committed, {0: 5})
        assert [message.payload for message in messages] == [b"odd", b"next", b"odd", b"next", b"last"]
        for message in messages[0], messages[2]:
            assert message.headers["colour\N{REPLACEMENT CHARACTER}"] == b"\xfe"
            assert message.headers["size"] == b"\x00"
            assert message.headers[""] == b"x"
            assert "none" not in message.headers

    asyncio.run(main())


BROKEN = {
    "a wrong checksum": lambda written: written[:-2] + bytes([written[-2] ^ 1]) + written[-1:],
    "an unknown format": lambda written: written[:16] + b"\3" + written[17:],
    "an unknown compression": lambda written: resummed(written, 22, UNKNOWN_CODEC),
    "what gzip does not read": lambda written: resummed(written, 22, GZIP),
    "an impossible length of a record": lambda written: resummed(written, raw_kafka.HEADER, 0x7F),
    # The last batch of the partition: the broker does not find the batches behind a wrong length.
    "a wrong length": lambda written: written[:8] + (20).to_bytes(4, "big") + written[12:],
}
"""What becomes of a batch on a broker's disk."""


def resummed(written: bytes, place: int, byte: int) -> bytes:
    """Return a batch with one changed byte and a valid checksum."""
    return raw_kafka.with_sum(written[:place] + bytes([byte]) + written[place + 1 :])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kafka.bindings.in.consumer.ordered": "false", "bindings.in.consumer.concurrency": 2},
        {"bindings.in.consumer.batch-mode": "true"},
    ],
    ids=["ordered", "concurrent", "batches"],
)
def test_unreadable_batch_becomes_a_dead_letter(foreign: ForeignShop, settings: dict[str, object]) -> None:
    """With its bytes and origin; the messages around it are delivered."""
    good = [raw_kafka.of(RawRecord(f"good {number}".encode())) for number in range(len(BROKEN))]
    bad = [raw_kafka.of(RawRecord(f"bad {number}".encode()), RawRecord(b"too")) for number in range(len(BROKEN))]
    broken = [change(written) for change, written in zip(BROKEN.values(), bad, strict=True)]

    async def main() -> None:
        await foreign.make_topic(1)
        for pair in zip(good, bad, strict=True):
            await foreign.store(*pair)
        await foreign.store(raw_kafka.of(LAST))
        for before, after in zip(bad, broken, strict=True):
            foreign.overwrite(before, after)
        inbox = Inbox()

        async def note(message: Message[Any]) -> None:
            for payload in message.payload if isinstance(message.payload, list) else [message.payload]:
                inbox.add(payload)

        async with foreign.app(lambda app: app.stream_listener("in")(note), **settings):
            await inbox.wait(len(good) + 1)
            await eventually(foreign.committed, {0: 3 * len(BROKEN) + 1})
        assert sorted(inbox.items) == [b"good %d" % number for number in range(len(good))] + [b"last"]
        letters = await foreign.records(foreign.letters, len(broken))
        letters.sort(key=lambda letter: dict(letter.headers)["x-original-offset"])
        for number, (letter, was) in enumerate(zip(letters, broken, strict=True)):
            headers = dict(letter.headers)
            # The broker fills in the offset and the leader's epoch.
            assert letter.value[16:] == was[16:]
            assert f"{foreign.topic}-0, offset {3 * number + 1}," in headers["FAILURE_MESSAGE"].decode()
            assert headers["FAILURE_TYPE"] == b"streamkit.errors.BinderError"
            assert headers["x-original-offset"] == (3 * number + 2).to_bytes(8, "big")

    asyncio.run(main())


def test_unreadable_batch_without_dead_letters_is_logged_and_dropped(
    foreign: ForeignShop, caplog: pytest.LogCaptureFixture
) -> None:
    """enable-dlq=false: the log says where it was, also if it is the partition's last."""
    bad = raw_kafka.of(RawRecord(b"bad"))
    dropped = (
        f"gives up the record at {foreign.topic}-0, offset 0, which cannot be read: the batch at {foreign.topic}-0"
    )

    async def is_dropped() -> bool:
        return dropped in caplog.text

    async def main() -> None:
        await foreign.make_topic(1)
        await foreign.store(bad)
        foreign.overwrite(bad, bad[:-2] + b"!" + bad[-1:])
        inbox = Inbox()
        async with foreign.reading(inbox, **{"kafka.bindings.in.consumer.enable-dlq": "false"}):
            await eventually(is_dropped, True)
            await foreign.store(raw_kafka.of(LAST))
            await inbox.wait(1)
            await eventually(foreign.committed, {0: 2})
        assert [message.payload for message in inbox.items] == [b"last"]

    asyncio.run(main())


def test_polled_source_skips_an_unreadable_batch(foreign: ForeignShop) -> None:
    """It returns the next message, and writes a dead letter."""
    bad = raw_kafka.of(RawRecord(b"bad"))

    async def main() -> None:
        await foreign.make_topic(1)
        await foreign.store(bad, raw_kafka.of(LAST))
        foreign.overwrite(bad, bad[:-2] + b"!" + bad[-1:])
        settings = {
            "kafka.bindings.in.consumer.poll-timeout": "10s",
            "kafka.bindings.in.consumer.ordered": "false",
        }
        inbox = Inbox()

        async def take(message: Message[Any]) -> None:
            inbox.add(message.payload)

        async with foreign.app(lambda app: app.pollable_source("in"), **settings) as app:
            while not inbox.items:
                await app.pollable_source("in").poll(take)
            await eventually(foreign.committed, {0: 2})
        assert inbox.items == [b"last"]
        (letter,) = await foreign.records(foreign.letters, 1)
        assert letter.value[16:] == bad[16:-2] + b"!" + bad[-1:]

    asyncio.run(main())


def test_batches_emptied_by_compaction_are_skipped(foreign: ForeignShop) -> None:
    """So are emptied transaction markers, also by readers of committed records."""
    written = raw_kafka.of(RawRecord(b"x" * 150), RawRecord(b"x" * 150))
    kept = RawRecord(b"y" * (100 + len(written) - raw_kafka.HEADER - len(raw_kafka.of(RawRecord(b"y" * 100)))))
    empty = batch(b"", 0, last=0)
    marker = batch(b"", 0, last=0, attributes=TRANSACTIONAL | CONTROL, producer=7)

    async def main() -> None:
        await foreign.make_topic(1)
        for offset, first in (0, empty), (2, marker):
            await foreign.store(written)
            foreign.overwrite(written, first + batch(records(kept), 1, offset=offset + 1))
        await foreign.store(raw_kafka.of(LAST))
        for isolation in "read_committed", "read_uncommitted":
            inbox = Inbox()
            own = {"kafka.bindings.in.consumer.configuration.isolation.level": isolation}
            async with foreign.reading(inbox, bindings__in__group=isolation, **own):
                messages = await inbox.wait(3)
            assert [message.payload for message in messages] == [kept.value, kept.value, b"last"]

    asyncio.run(main())


def test_dead_letter_too_large_for_its_topic_omits_the_message(foreign: ForeignShop) -> None:
    """The letter has the message's origin, and the partition continues."""

    async def main() -> None:
        await foreign.make_topic(1, **{"max.message.bytes": 5 << 20})
        await foreign.store(raw_kafka.of(RawRecord(b"x" * (4 << 20), b"key")), raw_kafka.of(LAST))
        inbox = Inbox()

        async def refuse_large(payload: bytes) -> None:
            inbox.add(len(payload))
            if len(payload) > 10:
                raise Reject("too large")

        async with foreign.app(lambda app: app.stream_listener("in")(refuse_large)):
            assert await inbox.wait(2) == [4 << 20, 4]
        (letter,) = await foreign.records(foreign.letters, 1)
        assert (letter.key, letter.value) == (b"key", b"")
        assert dict(letter.headers)["x-original-offset"] == bytes(8)

    asyncio.run(main())


NAMES = sorted(
    {value for name, value in vars(portable).items() if name.isupper() and isinstance(value, str)}
    | {
        "streamkit_id",
        "kafka_offset",
        "kafka_messageKey",
        "kafka_replyTopic",
        "target-protocol",
        "ce-id",
        "ce-type",
    }
)
"""What the framework reads itself, sends on or makes, of a message's headers."""
CLASSES = (
    "java.lang.String",
    "java.lang.Integer",
    "java.util.UUID",
    "[B",
    "org.springframework.util.MimeType",
    "no.Such",
)
CONTENTS = (b"", b"\xff\xfe", b'"half', b"[" * 5000, b'{"a": 1}', b"-1", b"9" * 400, b"1e999", b"a/b/c; d")


def odd_headers() -> list[RawRecord]:
    """Return a record for every header with each possible declaration: one class, several, or none."""
    typed = [
        [
            (name.encode(), content),
            (b"spring_json_header_types", b'{"%s": "%s"}' % (name.encode(), kind.encode())),
        ]
        for name in NAMES
        for kind, content in zip(CLASSES * 2, CONTENTS, strict=False)
    ]
    bare = [[(name.encode(), content)] for name in NAMES for content in CONTENTS]
    return [RawRecord(b'{"n": 1}', b"k", headers) for headers in [*typed, *bare]]


def test_message_with_arbitrary_headers_is_handled_or_a_dead_letter(foreign: ForeignShop) -> None:
    """Also where a listener's result copies them."""
    odd = odd_headers()

    async def main() -> None:
        await foreign.make_topic(1)
        await foreign.store(raw_kafka.of(*odd), raw_kafka.of(RawRecord(b'{"n": 2}')))
        inbox = Inbox()

        def listen(app: StreamApplication) -> None:
            @app.stream_listener("in")
            @send_to("answers")
            async def answer(order: dict[str, int]) -> dict[str, int]:
                inbox.add(order["n"])
                return order

        settings = {
            "bindings.answers.destination": f"{foreign.topic}-answers",
            "bindings.in.consumer.max-attempts": 1,
        }

        async def last() -> object:
            return inbox.items[-1:]

        async with foreign.app(listen, **settings):
            await eventually(last, [2])
            await eventually(foreign.committed, {0: len(odd) + 1})
        answers = await foreign.size(f"{foreign.topic}-answers")
        assert answers + await foreign.size(foreign.letters) == len(odd) + 1

    asyncio.run(main())
