"""Commands: encoding, header access and validation."""

import json
import struct

import pytest

from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

JSON, BINARY = HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ
BOTH = pytest.mark.parametrize("encoding", [JSON, BINARY], ids=["json", "binary"])
ASK = GetMaxOffsetRequestHeader(topic="orders", queue_id=3)
SEND = {
    "producer_group": "g",
    "topic": "orders",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 1,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_000,
    "flag": 0,
}


def passed(command: RemotingCommand) -> RemotingCommand:
    """Return the command as its receiver decodes it."""
    (received,) = FrameDecoder().feed(b"".join(command.encode()))
    return received


def json_frame(header: str, body: bytes = b"") -> bytes:
    """Return a frame with this JSON header."""
    data = header.encode()
    return struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body


def received(header: str) -> RemotingCommand:
    """Return the command decoded from this JSON header."""
    (command,) = FrameDecoder().feed(json_frame(header))
    return command


def received_fields(code: int, fields: str) -> RemotingCommand:
    """Return a request of `code` with these JSON fields."""
    return received(f'{{"code":{code},"extFields":{fields}}}')


@BOTH
def test_request_round_trip(encoding: HeaderEncoding) -> None:
    """Code, number, fields and body are kept, in either encoding."""
    command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ASK, b"body", encoding=encoding)
    command.opaque = 77
    got = passed(command)
    assert (got.code, got.opaque, got.flag, got.body, got.encoding) == (30, 77, 0, b"body", encoding)
    assert (got.language, got.version, got.remark) == ("PYTHON", 407, None)
    assert got.header(GetMaxOffsetRequestHeader) == ASK
    assert got.ext_fields == {"topic": "orders", "queueId": "3", "committed": "true"}


@BOTH
def test_response_matches_its_request(encoding: HeaderEncoding) -> None:
    """It has its request's number and encoding, and the response bit."""
    request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ASK, encoding=encoding)
    request.opaque = 78
    header = GetMaxOffsetResponseHeader(offset=2**40)
    got = passed(RemotingCommand.response(passed(request), header=header, remark="gut ü"))
    assert (got.is_response, got.opaque, got.encoding, got.remark) == (True, 78, encoding, "gut ü")
    assert got.header(GetMaxOffsetResponseHeader) == header


def test_binary_header_has_apaches_layout() -> None:
    """The ROCKETMQ header's bytes are where Apache's code reads them."""
    command = RemotingCommand.request(RequestCode.GET_KV_CONFIG, encoding=BINARY, ext_fields={"k": "v"})
    command.opaque = 5
    expected = "0065 03 0197 00000005 00000000 00000000 00000008 0001 6b 00000001 76"
    (frame,) = command.encode()
    assert bytes(frame) == bytes.fromhex("00000021 0100001d" + expected)


def test_json_values_are_written_as_texts() -> None:
    """Numbers and booleans are quoted, for peers that only read texts."""
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**SEND))
    header = json.loads(bytes(command.encode()[0])[8:])
    assert header["extFields"] == {
        "a": "g",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "k": "false",
        "m": "false",
    }


def test_both_send_headers_have_the_same_attributes() -> None:
    """A handler reads long and short field names alike."""
    long = RemotingCommand.request(RequestCode.SEND_MESSAGE, SendMessageRequestHeader(**SEND))
    short = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**SEND))
    one, other = (
        passed(long).header(SendMessageRequestHeader),
        passed(short).header(SendMessageRequestHeaderV2),
    )
    assert isinstance(other, SendMessageRequestHeader)
    assert all(getattr(one, name) == getattr(other, name) for name in SEND)


@BOTH
def test_additional_fields_are_sent_with_the_header(encoding: HeaderEncoding) -> None:
    """For example those of a signature."""
    command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ASK, encoding=encoding, ext_fields={"Signature": "s"})
    got = passed(command)
    assert got.header(GetMaxOffsetRequestHeader) == ASK
    assert got.ext_fields["Signature"] == "s"


@BOTH
def test_body_in_parts_is_written_without_joining(encoding: HeaderEncoding) -> None:
    """A broker reads messages in pieces and sends them so."""
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, encoding=encoding)
    parts = [memoryview(b"one"), b"", memoryview(b"two")]
    response = RemotingCommand.response(request, body=b"zero", parts=parts)
    assert response.encode()[2] is parts[0]
    assert passed(response).body == b"zeroonetwo"


def test_texts_like_null_true_or_1_stay_texts() -> None:
    """Each is a legal topic name."""
    for word in ("null", "true", "1", "1.5", "[]", "{}"):
        got = received_fields(30, f'{{"topic":"{word}","queueId":"0"}}')
        assert got.header(GetMaxOffsetRequestHeader).topic == word


def test_unquoted_values_are_accepted() -> None:
    """The JavaScript client sends numbers and booleans without quotes, also for texts."""
    got = received('{"code":12,"extFields":{"topic":7,"key":true,"maxNum":32,"beginTimestamp":1,"endTimestamp":"2"}}')
    header = got.header(QueryMessageRequestHeader)
    assert (header.topic, header.key, header.max_num, header.end_timestamp) == ("7", "true", 32, 2)
    assert got.ext_fields["maxNum"] == "32"


def test_nulls_and_unknown_fields_are_ignored() -> None:
    """A null means that the field is missing."""
    got = received('{"code":30,"remark":null,"extFields":{"topic":"t","queueId":"1","bname":null,"new":"x"},"x":[]}')
    assert got.header(GetMaxOffsetRequestHeader) == GetMaxOffsetRequestHeader(topic="t", queue_id=1)
    assert "bname" not in got.ext_fields


@pytest.mark.parametrize("fields", ["", ',"extFields":null', ',"extFields":{}'])
def test_header_without_fields_is_accepted(fields: str) -> None:
    """A command needs no fields."""
    got = received(f'{{"code":34{fields}}}')
    assert got.ext_fields == {}
    assert got.header(Header) == Header()
    assert (got.language, got.opaque, got.flag, got.version) == ("JAVA", 0, 0, 0)


@pytest.mark.parametrize(
    ("language", "name"),
    [('"GO"', "GO"), ("9", "GO"), ("99", "OTHER"), ('"KLINGON"', "KLINGON"), ("null", "JAVA")],
)
def test_unknown_languages_are_accepted(language: str, name: str) -> None:
    """By name or by number."""
    got = received(f'{{"code":34,"language":{language}}}')
    assert got.language == name
    assert passed(got).language == name


def test_unknown_language_in_binary() -> None:
    """An undefined language byte is read as OTHER; a language without a byte is written as OTHER."""
    command = RemotingCommand.request(RequestCode.HEART_BEAT, encoding=BINARY)
    frame = bytearray(b"".join(command.encode()))
    frame[10] = 99
    (got,) = FrameDecoder().feed(frame)
    assert got.language == "OTHER"
    command.language = "KLINGON"
    assert passed(command).language == "OTHER"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('{"topic":"t"}', "queueId"),
        ('{"topic":"t","queueId":"x"}', "queueId='x': Expected `int`"),
        ('{"topic":"t","queueId":"2147483648"}', "queueId='2147483648': Expected `int` <= 2147483647"),
        ('{"topic":"t","queueId":"99999999999999999999999"}', "queueId='99999999999999999999999': Expected"),
        ('{"topic":"t","queueId":"%s"}' % ("9" * 5000), r"queueId='9{100}'… \(5000 characters\): Integer"),
        ('{"topic":"t","queueId":[1]}', "queueId"),
        ('{"topic":"t","queueId":""}', "queueId"),
        ("[]", "extFields"),
        ('"x"', "extFields"),
    ],
)
def test_invalid_field_error_names_field_and_request(fields: str, reason: str) -> None:
    """And the value."""
    with pytest.raises(RemoteProtocolError, match=rf"GET_MAX_OFFSET \(30\): .*{reason}"):
        received_fields(30, fields).header(GetMaxOffsetRequestHeader)


def test_empty_text_means_no_number() -> None:
    """Where a number is optional, as in Java."""
    fields = '{"topic":"t","key":"k","maxNum":"1","beginTimestamp":"0","endTimestamp":"0","_UNIQUE_KEY_QUERY":""}'
    assert received_fields(12, fields).header(QueryMessageRequestHeader).unique_key_query is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"code":"x"}',
        '{"code":1e400}',
        '{"code":2147483648}',
        '{"code":10,"opaque":-2147483649}',
        '{"code":10,"extFields":' + "[" * 100_000,
        '{"code":10,"remark":"\\ud800"}',
    ],
)
def test_malformed_json_header_is_refused(header: str) -> None:
    """As an error of the peer."""
    with pytest.raises(RemoteProtocolError, match="JSON header"):
        received(header)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00" * 16,
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, -1, 0),
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 100, 0),
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, -1),
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 100),
        struct.pack(">hBhiii", 1, 0, 0, 0, 0, 2) + b"\xff\xff" + struct.pack(">i", 0),
    ],
)
def test_malformed_binary_header_is_refused(header: bytes) -> None:
    """Lengths beyond the header, and texts that are not UTF-8, are errors of the peer."""
    frame = struct.pack(">ii", 4 + len(header), 1 << 24 | len(header)) + header
    with pytest.raises(RemoteProtocolError, match="binary header"):
        FrameDecoder().feed(frame)


@pytest.mark.parametrize(
    "fields",
    [
        b"\x00",
        b"\x00\x05a",
        b"\xff\xffa",
        b"\x00\x01a\x00\x00\x00\x09v",
        b"\x00\x01a\xff\xff\xff\xff",
        b"\x00\x01\xff\x00\x00\x00\x00",
    ],
)
def test_inconsistent_field_lengths_in_binary_are_refused(fields: bytes) -> None:
    """When the fields are read."""
    header = struct.pack(">hBhiiii", 30, 0, 0, 0, 0, 0, len(fields)) + fields
    (got,) = FrameDecoder().feed(struct.pack(">ii", 4 + len(header), 1 << 24 | len(header)) + header)
    with pytest.raises(RemoteProtocolError, match=r"GET_MAX_OFFSET \(30\): extFields"):
        got.header(GetMaxOffsetRequestHeader)
    assert "30" in repr(got)


def test_unencodable_command_is_a_local_error() -> None:
    """A binary header has no room for a code above 32767, a frame none for a header of 16 MiB."""
    with pytest.raises(LocalProtocolError, match="POP_MESSAGE"):
        RemotingCommand.request(RequestCode.POP_MESSAGE, encoding=BINARY).encode()
    with pytest.raises(LocalProtocolError, match="16777215"):
        RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields={"a": "x" * 2**24}).encode()
    with pytest.raises(LocalProtocolError, match="40000 bytes"):
        RemotingCommand.request(RequestCode.HEART_BEAT, encoding=BINARY, ext_fields={"x" * 40_000: ""}).encode()


def test_repr_shows_a_summary() -> None:
    """Name, number, fields and size, but not the body."""
    command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ASK, b"12345", oneway=True)
    assert repr(command) == (
        "<one-way request GET_MAX_OFFSET (30) opaque=0 {'topic': 'orders', 'queueId': '3', 'committed': 'true'} body=5>"
    )
    response = RemotingCommand.response(command, ResponseCode.NO_PERMISSION, remark="no")
    assert repr(response) == "<response NO_PERMISSION (16) opaque=0 {} remark='no' body=0>"
