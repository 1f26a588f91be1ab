"""The frame: one command, a request or a response, on a connection.

::

    | length 4 | header length 4 | header | body |
    |          |                                  `- length - 4 - header length bytes
    |          |         `- top byte: encoding (0 JSON, 1 ROCKETMQ), low three bytes: length of the header
    `- bytes that follow this field

    JSON       {"code":310,"extFields":{…},"flag":0,"language":"JAVA","opaque":7,"remark":"…","version":407}
    ROCKETMQ   | code 2 | language 1 | version 2 | opaque 4 | flag 4
               | remark length 4 | remark | extFields length 4 | extFields (see ext_fields) |

    flag       bit 0: response, bit 1: oneway (the sender expects no response)
    opaque     the number of a request; its response has the same

All numbers are signed and big-endian. A response takes its request's encoding. This module does no I/O: a
`frame_decoder.FrameDecoder` turns bytes into commands, `RemotingCommand.encode` commands into bytes.
"""

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

from rocket_remoting.wire.codes import (
    CURRENT_VERSION,
    LanguageCode,
    ResponseCode,
    request_name,
    response_name,
)
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.ext_fields import (
    H,
    Header,
    Int,
    binary_fields,
    json_fields,
    read_binary,
    read_json,
    to_fields,
    write_binary,
)

Buffer = bytes | memoryview

RESPONSE_FLAG = 0x1
ONEWAY_FLAG = 0x2

PREFIX = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhiii")
_INT = struct.Struct(">i")
MAX_HEADER = 0xFFFFFF
_LANGUAGES = {code.value: code.name for code in LanguageCode}
_VERSION = int(CURRENT_VERSION)
_quote = msgspec.json.Encoder().encode


class HeaderEncoding(IntEnum):
    """The encoding of the header: the top byte of the header length."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand:
    """A request or a response, sent or received.

    Attributes:
        code: A `RequestCode`, or a `ResponseCode` when `is_response`.
        opaque: The number of the request on its connection; the session sets it when it sends a request.
        flag: The response and oneway bits.
        language: The sender's programming language, a name of `LanguageCode`.
        version: The sender's version, see `codes.Version`.
        remark: A response's text, such as the reason of a refusal.
        body: The bytes behind the header.
        parts: Further parts of the body of a command to be sent, so that a broker need not join records.
        encoding: The encoding of the header.
    """

    __slots__ = (
        "_extra",
        "_header",
        "_raw",
        "body",
        "code",
        "encoding",
        "flag",
        "language",
        "opaque",
        "parts",
        "remark",
        "version",
    )

    def __init__(  # noqa: PLR0917 - made for every frame; keywords cost
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        body: Buffer = b"",
        remark: str | None = None,
        encoding: HeaderEncoding = HeaderEncoding.JSON,
        language: str = "PYTHON",
        version: int = _VERSION,
        header: Header | None = None,
        raw: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        parts: Sequence[Buffer] = (),
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.body = body
        self.remark = remark
        self.encoding = encoding
        self.language = language
        self.version = version
        self._header = header
        self._raw = raw  # a received command's extFields in their encoding, decoded when needed
        self._extra = extra
        self.parts = parts

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        oneway: bool = False,
        encoding: HeaderEncoding = HeaderEncoding.JSON,
        ext_fields: Mapping[str, str] | None = None,
    ) -> "RemotingCommand":
        """Return a request to be sent; `ext_fields` are header fields in addition to those of `header`."""
        flag = ONEWAY_FLAG if oneway else 0
        return cls(code, 0, flag, body, None, encoding, header=header, extra=ext_fields)

    @classmethod
    def response(
        cls,
        to: "RemotingCommand",
        code: int = ResponseCode.SUCCESS,
        header: Header | None = None,
        body: Buffer = b"",
        remark: str | None = None,
        *,
        ext_fields: Mapping[str, str] | None = None,
        parts: Sequence[Buffer] = (),
    ) -> "RemotingCommand":
        """Return the response to a request, with the request's number and encoding."""
        return cls(
            code,
            to.opaque,
            RESPONSE_FLAG,
            body,
            remark,
            to.encoding,
            header=header,
            extra=ext_fields,
            parts=parts,
        )

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, type_: type[H]) -> H:
        """Return the header fields as an object of `type_`.

        Raises:
            RemoteProtocolError: A required field is missing, or a value is not of its type. The text names the field
                and the request.
        """
        if type(self._header) is type_:
            return self._header
        try:
            if self._raw is None:
                return read_json(_quote(self.ext_fields), type_)
            if self.encoding is HeaderEncoding.JSON:
                return read_json(self._raw, type_)
            return read_binary(self._raw, type_)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self.name}: {error}") from None

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header fields as a dict of texts.

        Raises:
            RemoteProtocolError: The received fields cannot be decoded.
        """
        fields: dict[str, str] = {}
        if self._raw is not None:
            fields = json_fields(self._raw) if self.encoding is HeaderEncoding.JSON else binary_fields(self._raw)
        if self._header is not None:
            fields.update(to_fields(self._header))
        if self._extra:
            fields.update(self._extra)
        return fields

    def keep_fields(self) -> dict[str, str]:
        """Return the header fields, and keep them as they are: reading them again takes less time.

        Raises:
            RemoteProtocolError: The received fields cannot be decoded.
        """
        self._extra = fields = self.ext_fields
        self._raw = self._header = None
        return fields

    def sign(self, credentials: Credentials) -> None:
        """Sign a request to be sent, which has no parts: add the fields of the signature to its header fields."""
        self._extra = credentials.signed(self.code, self.ext_fields, self.body)

    @property
    def name(self) -> str:
        """The code with its name, for logs and errors."""
        return response_name(self.code) if self.is_response else request_name(self.code)

    def encode(self) -> list[Buffer]:
        """Return the frame in pieces to be sent one after the other: prefix and header, body, parts.

        Raises:
            LocalProtocolError: A number does not fit its field, or the header is longer than 16 MiB.
        """
        header = self._json_header() if self.encoding is HeaderEncoding.JSON else self._binary_header()
        header_length = len(header)
        # A longer header would run into the top byte, and the peer would read a part of its length as the encoding.
        if header_length > MAX_HEADER:
            raise LocalProtocolError(
                f"{self.name}: a header of {header_length} bytes, at most {MAX_HEADER} can be sent"
            )
        #  31      24 23                                0
        # | encoding |           header length           |
        word = self.encoding << 24 | header_length
        if not self.body and not self.parts:
            return [PREFIX.pack(4 + header_length, word) + header]
        pieces = [self.body, *self.parts] if self.body else [*self.parts]
        length = 4 + header_length + sum(map(len, pieces))
        return [PREFIX.pack(length, word) + header, *pieces]

    def _json_header(self) -> bytes:
        fields: bytes
        # A received command that is sent on unchanged keeps its fields as they came: unquoted numbers and
        # nulls, which `ext_fields` would turn into texts or leave out, stay.
        if self._raw is not None and self._header is None and not self._extra:
            fields = self._raw if self.encoding is HeaderEncoding.JSON else _quote(self.ext_fields)
        elif self._header is not None and not self._extra:
            fields = _quote(to_fields(self._header))
        else:
            fields = _quote(self.ext_fields)
        return b'{"code":%d,"extFields":%b,"flag":%d,"language":"%b","opaque":%d,%b"version":%d}' % (
            self.code,
            fields,
            self.flag,
            self.language.encode(),
            self.opaque,
            b"" if self.remark is None else b'"remark":%b,' % _quote(self.remark),
            self.version,
        )

    def _binary_header(self) -> bytes:
        # The binary form cannot tell an empty remark from none: both have length 0, as in Apache's
        # RocketMQSerializable.
        remark = self.remark.encode() if self.remark else b""
        fields = write_binary(self.ext_fields)
        language = LanguageCode[self.language] if self.language in LanguageCode.__members__ else LanguageCode.OTHER
        try:
            head = _BINARY_HEAD.pack(self.code, language, self.version, self.opaque, self.flag, len(remark))
        except struct.error as error:
            raise LocalProtocolError(f"{self.name}: a number does not fit the binary header: {error}") from None
        return b"".join((head, remark, _INT.pack(len(fields)), fields))

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_oneway else "request"
        try:
            fields: object = self.ext_fields
        except RemoteProtocolError:
            fields = self._raw
        remark = "" if self.remark is None else f" remark={self.remark!r}"
        size = len(self.body) + sum(map(len, self.parts))
        return f"<{kind} {self.name} opaque={self.opaque} {fields}{remark} body={size}>"


class _JsonHead(msgspec.Struct, gc=False):
    code: Int
    flag: Int = 0
    opaque: Int = 0
    language: str | int | None = None
    version: Int = 0
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw())


_json_head = msgspec.json.Decoder(_JsonHead).decode


def decode_json_header(data: bytes) -> RemotingCommand:
    """Return the command of a JSON header, without a body.

    Raises:
        RemoteProtocolError: The header cannot be decoded; the text shows its beginning.
    """
    try:
        head = _json_head(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(
            f"a JSON header of {len(data)} bytes cannot be read: {error}: {data[:80]!r}"
        ) from None
    language = head.language
    if not isinstance(language, str):
        # Apache's RemotingCommand starts with JAVA, so a header without the field means JAVA there too.
        language = "JAVA" if language is None else _LANGUAGES.get(language, "OTHER")
    return RemotingCommand(
        head.code,
        head.opaque,
        head.flag,
        b"",
        head.remark,
        HeaderEncoding.JSON,
        language,
        head.version,
        raw=bytes(head.ext_fields) or b"{}",
    )


def decode_binary_header(data: bytes) -> RemotingCommand:
    """Return the command of a ROCKETMQ header, without a body.

    Raises:
        RemoteProtocolError: The header cannot be decoded; the text shows its lengths.
    """
    try:
        code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(data)
        remark_end = _BINARY_HEAD.size + remark_length
        # A negative remark length makes this read from a wrong place, or raise struct.error. Either is refused below.
        (fields_length,) = _INT.unpack_from(data, remark_end)
        # Python's slices would silently shorten a text whose length leads beyond the header, so all lengths
        # are checked.
        if remark_length < 0 or fields_length < 0 or remark_end + 4 + fields_length > len(data):
            raise RemoteProtocolError(
                f"a binary header of {len(data)} bytes has a remark of {remark_length}, fields of {fields_length} bytes"
            )
        remark = str(data[_BINARY_HEAD.size : remark_end], "utf-8") if remark_length else None
    except struct.error:
        raise RemoteProtocolError(f"a binary header of {len(data)} bytes is cut off: {data[:80]!r}") from None
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"a binary header of {len(data)} bytes has a remark that is not UTF-8") from None
    return RemotingCommand(
        code,
        opaque,
        flag,
        b"",
        remark,
        HeaderEncoding.ROCKETMQ,
        _LANGUAGES.get(language, "OTHER"),
        version,
        raw=data[remark_end + 4 : remark_end + 4 + fields_length],
    )
