"""The native core reads a usual header by a scan of its own and any other by a general parser, with equal results."""

import json
import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_broker.store.state import FileState, LogState, QueueState
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_remoting.wire.credentials import ACCESS_KEY, SCOPE, SIGNATURE, Credentials, SigningKey, scope_of
from tests.native_core import made, needs_native_core
from tests.properties.test_send_paths import BATCHES, ODD, PLAIN, PROPERTIES, SENDS, frame, send
from tests.signatures import signed_as_apache

if TYPE_CHECKING:
    from rocket_native import PlainSends

pytestmark = needs_native_core

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
ROOM = 1 << 12
SPECIAL = b'{}[]",:\\u0019-.eE+ntf \0\x1f\x7f\xff/b'


def file_in(memory: bytearray, base: int = 0) -> FileState:
    """Return the state of a file with space in a memory."""
    return made(FileState(), base=base, size=ROOM, allocated=ROOM, view=memoryview(memory))


def read(data: bytes) -> object:
    """Return all that the core makes of a request, except its signature; None if it does not take it."""
    from rocket_native import AnswerTemplate

    sends = sends_in(data)
    if sends is None:
        return None
    log, queues = bytearray(ROOM), [bytearray(ROOM) for _ in sends.targets]
    places = [made(QueueState(), max_offset=3, tail=file_in(queue, base=60)) for queue in queues]
    run = sends.pack(made(LogState(), tail=file_in(log)), places, None, 1)
    template = AnswerTemplate("7F", ("{a", "b", "c", "d", "e}"))
    answers = [(taken - len(data), *own) for taken, *own in sends.answers(run, template)]
    return sends.targets, sends.tags_codes, sends.all_wait, run.result, run.queues, run.key_count, log, queues, answers


def sends_in(data: bytes) -> "PlainSends | None":
    """Return the request as the core has read it, None if it does not take it."""
    from rocket_native import SendReader

    reader = SendReader(
        waiting=["DELAY"], timed="TIMER_", sys_flags=0x701, most_keys=MAX_KEYS, most_keys_in_all=9_999,
        most_messages=99, most_bytes=1 << 20, most_sends=9, store_host=HOST, keeps_signatures=True,
    )  # fmt: skip
    return reader.read([(HOST, 0, memoryview(data))], "CLUSTER\x01c", 1 << 22)


def with_space(data: bytes) -> bytes:
    """Return the request with a space in its header, which only the general parser reads."""
    length, header_length = struct.unpack_from(">ii", data)
    return struct.pack(">ii", length + 1, header_length + 1) + data[8:9] + b" " + data[9:]


@given(data=st.one_of(SENDS, BATCHES))
def test_arbitrary_headers_are_read_equally(data: bytes) -> None:
    """Whatever their fields are."""
    assert read(data) == read(with_space(data))


@pytest.mark.parametrize("data", [frames[0] for frames in PLAIN.values()], ids=PLAIN)
def test_usual_headers_are_read_equally(data: bytes) -> None:
    """They are taken both ways."""
    assert read(with_space(data)) == read(data) is not None


@pytest.mark.parametrize("data", [data for data in ODD.values() if data[8:9] == b"{"])
def test_unusual_headers_are_read_equally(data: bytes) -> None:
    """They are refused both ways, or taken both ways and refused by the broker."""
    assert read(with_space(data)) == read(data)


def test_damaged_headers_are_read_equally() -> None:
    """With bytes changed, left out, or there twice."""
    random, taken = Random(3), 0
    headers = [whole[8 : 8 + struct.unpack_from(">ii", whole)[1]] for whole in (send(PROPERTIES), send({"TAGS": "é"}))]
    for _ in range(2_000):
        header = bytearray(random.choice(headers))
        for _ in range(random.choice([1, 1, 2, 3])):
            start = random.randrange(1, len(header))
            stop = start + random.choice([0, 1, 1, 1, 2, 9])
            kept = bytes(header[start:stop]) * random.choice([0, 0, 2])
            header[start:stop] = kept or bytes(random.choices(SPECIAL, k=random.choice([0, 1, 1, 2])))
        data = frame(bytes(header), b"body")
        found = read(data)
        assert found == read(with_space(data)), bytes(header)
        taken += found is not None
    assert taken > 100


KEYS, TEMPORARY = Credentials("shop-app", "12345678"), Credentials("shop-äpp", "x" * 80, "token")


@given(data=st.one_of(SENDS, BATCHES), keys=st.sampled_from([KEYS, TEMPORARY]), as_apache=st.booleans())
def test_core_reads_what_clients_sign(data: bytes, keys: Credentials, as_apache: bool) -> None:
    """The values of all fields, as decoded, and the body."""
    header_end = 8 + struct.unpack_from(">ii", data)[1]
    head, body = json.loads(data[8:header_end]), data[header_end:]
    fields, code = head["extFields"], head["code"]
    fields = signed_as_apache(keys, fields, body) if as_apache else keys.signed(code, fields, body)
    head["extFields"] = fields
    header = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    sends = sends_in(frame(header, body))
    assert (sends is None) == (sends_in(data) is None)
    if sends is not None and (signed := sends.signatures(0)[0]) is not None:
        assert [key for *_, key, _ in sends.senders] == [fields[ACCESS_KEY]]
        _, content, signature, scope = signed
        assert (scope is None) == as_apache
        if scope is not None:
            assert scope_of(code, scope[1]) == scope[0] == fields[SCOPE].encode()
        assert SigningKey(keys.secret_key).signature(content) == signature == fields[SIGNATURE].encode()


@pytest.mark.parametrize("field", ["o", "_UNIQUE_KEY_QUERY", "!scope", "accessKey", "Accesskey", "B", ""])
def test_core_reads_no_signature_beside_unknown_fields(field: str) -> None:
    """Nor one that a request without an access key has."""
    fields: dict[str, Any] = KEYS.signed(310, {"i": "a\x01b\x02"}, b"hello")
    usual, more = sends_in(send(**fields)), sends_in(send(**{**fields, field: "1"}))
    assert usual is not None
    assert more is not None
    assert usual.signatures(0)[0] is not None
    assert (more.signatures(0), more.senders) == ([None], [])
    del fields[ACCESS_KEY]
    without = sends_in(send(**fields))
    assert without is not None
    assert without.signatures(0) == [None]


def test_error_inside_the_core_is_an_ordinary_error() -> None:
    """Here a run that belongs to other sends: what keeps a loop running must be able to catch it."""
    from rocket_native import AnswerTemplate

    one, two = sends_in(send(PROPERTIES)), sends_in(send(PROPERTIES) * 2)
    assert one is not None
    assert two is not None
    place = made(QueueState(), tail=file_in(bytearray(ROOM)))
    run = one.pack(made(LogState(), tail=file_in(bytearray(ROOM))), [place], None, 1)
    with pytest.raises(RuntimeError, match="the native core has a defect"):
        two.answers(run, AnswerTemplate("7F", ("{a", "b", "c", "d", "e}")))


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        (send(PROPERTIES) * 3, [3]),
        (send(PROPERTIES) * 12, [9]),
        (send(PROPERTIES) + send({"DELAY": "1"}) + send(PROPERTIES), [1]),
        (send(PROPERTIES) + send(PROPERTIES, bytes(1 << 22 | 1)), [1]),
        (send({"DELAY": "1"}) + send(PROPERTIES), None),
        (send(PROPERTIES, bytes(1 << 22 | 1)), None),
        (send(PROPERTIES)[:-1], None),
        (send(PROPERTIES)[:19], None),
    ],
)
def test_reading_ends_at_the_first_request_that_is_not_plain(data: bytes, counts: list[int] | None) -> None:
    """Or that is too large; only where the number of requests ends it may those behind be plain, too."""
    from rocket_native import AnswerTemplate

    sends = sends_in(data)
    assert (sends and sends.counts) == counts
    if sends is not None:
        room = made(LogState(), tail=file_in(bytearray(ROOM)))
        run = sends.pack(room, [made(QueueState(), tail=file_in(bytearray(ROOM)))], None, 1)
        ((_, _, may_go_on),) = sends.answers(run, AnswerTemplate("7F", ("{a", "b", "c", "d", "e}")))
        assert may_go_on == (counts == [9])
