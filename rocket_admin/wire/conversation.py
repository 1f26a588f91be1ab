"""The commands of one connection, with names instead of numbers. This module does no I/O.

A response has only the number of its request. So a conversation remembers the requests of both ends until their
responses come: clients send most of them, brokers some.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rocket_admin.previews import preview
from rocket_remoting.wire import sys_flag
from rocket_remoting.wire.codes import RequestCode, ResponseCode, Version
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers.sending import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocket_remoting.wire.properties import decode_properties
from rocket_remoting.wire.record import decode_records

__all__ = ["Conversation", "ExplainedCommand", "Unreadable"]

MOST_PENDING: Final = 10_000
"""Requests without a response that a conversation remembers; older ones are forgotten."""
SHOWN: Final = 200
"""Maximum number of characters of a body."""

_HIDDEN: Final = frozenset({"Signature", "SecurityToken", "secretKey", "password"})
_ATTRIBUTES: Final = dict(
    zip(SendMessageRequestHeader.__struct_fields__, SendMessageRequestHeader.__struct_encode_fields__, strict=True)
)
_LONG_NAMES: Final = {
    short: _ATTRIBUTES.get(attribute, attribute)
    for attribute, short in zip(
        SendMessageRequestHeaderV2.__struct_fields__, SendMessageRequestHeaderV2.__struct_encode_fields__, strict=True
    )
}
"""The names of the short fields ``a`` to ``n``."""
_SHORT: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_SENDS: Final = _SHORT | {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}
_TIMES: Final = frozenset({"bornTimestamp", "storeTimestamp", "timestamp", "subVersion", "consumeTimestamp"})
_YEAR_2000_MS: Final = 946_684_800_000

_PULL_FLAGS: Final = {
    sys_flag.PULL_COMMIT_OFFSET: "COMMIT_OFFSET",
    sys_flag.PULL_SUSPEND: "SUSPEND",
    sys_flag.PULL_SUBSCRIPTION: "SUBSCRIPTION",
    sys_flag.PULL_CLASS_FILTER: "CLASS_FILTER",
    sys_flag.PULL_LITE: "LITE_PULL",
}
_MESSAGE_FLAGS: Final = {
    sys_flag.COMPRESSED: "COMPRESSED",
    sys_flag.MULTI_TAGS: "MULTI_TAGS",
    sys_flag.BORN_HOST_V6: "BORN_HOST_V6",
    sys_flag.STORE_HOST_V6: "STORE_HOST_V6",
    sys_flag.NEED_UNWRAP: "NEED_UNWRAP",
    sys_flag.INNER_BATCH: "INNER_BATCH",
}
_TRANSACTION: Final = {
    sys_flag.TRANSACTION_PREPARED: "PREPARED",
    sys_flag.TRANSACTION_COMMIT: "COMMIT",
    sys_flag.TRANSACTION_ROLLBACK: "ROLLBACK",
}
_COMPRESSION: Final = {
    sys_flag.COMPRESSION_LZ4: "LZ4",
    sys_flag.COMPRESSION_ZSTD: "ZSTD",
    sys_flag.COMPRESSION_ZLIB: "ZLIB",
}


class ExplainedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command as people read it.

    Attributes:
        time: When it was seen.
        connection: The number of the connection, from 1.
        server: The address of the server.
        by_client: Whether the client sent it, and not the server.
        kind: `request`, `one-way request` or `response`.
        name: The name of the request, or of the response's code.
        opaque: The number that a response shares with its request.
        answers: The name of the request that a response answers; None if that was not seen.
        milliseconds: The time from the request to this response.
        sender: Language and version of the sender.
        fields: The header fields by their long names.
        remark: A response's remark.
        body: What the body is; None without a body.
        size: Bytes of the body.
    """

    time: datetime
    connection: int
    server: str
    by_client: bool
    kind: str
    name: str
    opaque: int
    answers: str | None = None
    milliseconds: float | None = None
    sender: str
    fields: Mapping[str, object]
    remark: str | None = None
    body: str | None = None
    size: int = 0

    @property
    def failed(self) -> bool:
        """Whether this is a response other than SUCCESS, and other than those of pulls without a message."""
        fine = ("SUCCESS", "PULL_NOT_FOUND", "PULL_RETRY_IMMEDIATELY", "PULL_OFFSET_MOVED")
        return self.kind == "response" and self.name not in fine


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are not commands, or that a capture lacks.

    Attributes:
        time: When they were seen.
        connection: The number of the connection.
        server: The address of the server.
        by_client: Whether the client sent them.
        reason: What is wrong with them.
        goes_on: Whether commands that the same end sends later are shown again.
    """

    time: datetime
    connection: int
    server: str
    by_client: bool
    reason: str
    goes_on: bool = False


class _Asked(msgspec.Struct, frozen=True):
    code: int
    at: datetime


class Conversation:
    """The commands of one connection.

    Args:
        connection: The number of the connection.
        server: The address of the server.
        shows_bodies: Whether bodies are shown, which may be private.
    """

    def __init__(self, connection: int, server: str, *, shows_bodies: bool = False) -> None:
        self._connection = connection
        self._server = server
        self._shows_bodies = shows_bodies
        # The requests of the client (True) and of the server (False), by their numbers.
        self._asked: dict[bool, OrderedDict[int, _Asked]] = {True: OrderedDict(), False: OrderedDict()}

    def request_code(self, response: RemotingCommand, *, by_client: bool) -> int | None:
        """Return the code of the request that a response answers; None if it was not seen."""
        asked = self._asked[not by_client].get(response.opaque)
        return None if asked is None else asked.code

    @property
    def remembered(self) -> int:
        """The number of requests that have no response yet."""
        return sum(map(len, self._asked.values()))

    def explain(
        self, command: RemotingCommand, at: datetime, *, by_client: bool, body_size: int | None = None
    ) -> ExplainedCommand:
        """Explain the next command of one end; a request is remembered until its response.

        Args:
            command: The command.
            at: When it was seen.
            by_client: Whether the client sent it, and not the server.
            body_size: Bytes of a body that is not in the command, because not all of them are known.
        """
        asked = None
        if command.is_response:
            asked = self._asked[not by_client].pop(command.opaque, None)
            kind, name = "response", _name(ResponseCode, command.code)
        else:
            kind, name = "one-way request" if command.is_oneway else "request", _name(RequestCode, command.code)
            if not command.is_oneway:
                self._remember(command, at, by_client=by_client)
        code = command.code if asked is None else asked.code
        return ExplainedCommand(
            time=at,
            connection=self._connection,
            server=self._server,
            by_client=by_client,
            kind=kind,
            name=name,
            opaque=command.opaque,
            answers=None if asked is None else _name(RequestCode, asked.code),
            milliseconds=None if asked is None else round((at - asked.at) / timedelta(milliseconds=1), 3),
            sender=f"{command.language} {_version(command.version)}",
            fields=_fields(command),
            remark=command.remark or None,
            body="not captured" if body_size else self._body(command, code) if command.body else None,
            size=body_size or len(command.body),
        )

    def _remember(self, request: RemotingCommand, at: datetime, *, by_client: bool) -> None:
        asked = self._asked[by_client]
        asked[request.opaque] = _Asked(request.code, at)
        if len(asked) > MOST_PENDING:
            asked.popitem(last=False)

    def _body(self, command: RemotingCommand, code: int) -> str:
        body = bytes(command.body)
        if command.is_response and code in _PULLS:
            return _pulled(body)
        if not self._shows_bodies:
            return "JSON" if body[:1] in (b"{", b"[") else "bytes"
        return preview(body, length=SHOWN)


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return f"code {code}"


def _version(version: int) -> str:
    try:
        return Version(version).name.removeprefix("V").replace("_", ".")
    except ValueError:
        return f"version {version}"


def _fields(command: RemotingCommand) -> dict[str, object]:
    try:
        fields = command.ext_fields
    except RemoteProtocolError as error:
        return {"unreadable": str(error)}
    if not command.is_response and command.code in _SHORT:
        fields = {_LONG_NAMES.get(name, name): value for name, value in fields.items()}
    return {name: _value(command, name, value) for name, value in fields.items()}


def _value(command: RemotingCommand, name: str, value: str) -> object:
    if name in _HIDDEN:
        return "(hidden)"
    with suppress(ValueError, RemoteProtocolError, OverflowError, OSError):
        if name == "properties":
            return decode_properties(value)
        if name == "commitOrRollback":
            return _TRANSACTION.get(int(value), value)
        if name == "sysFlag":
            return _flags(command.code, int(value))
        if name in _TIMES and int(value) > _YEAR_2000_MS:
            return f"{datetime.fromtimestamp(int(value) / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    return value


def _flags(code: int, flags: int) -> str:
    if code in _PULLS:
        found = [name for bit, name in _PULL_FLAGS.items() if flags & bit]
        known = sum(_PULL_FLAGS)
    elif code in _SENDS:
        found = [name for bit, name in _MESSAGE_FLAGS.items() if flags & bit]
        found += [name for value, name in _TRANSACTION.items() if sys_flag.transaction_value(flags) == value]
        found += [name for value, name in _COMPRESSION.items() if flags & sys_flag.COMPRESSION_TYPE_MASK == value]
        known = sum(_MESSAGE_FLAGS) | sys_flag.TRANSACTION_ROLLBACK | sys_flag.COMPRESSION_TYPE_MASK
    else:
        return str(flags)
    if flags & ~known:
        found.append(str(flags & ~known))
    return "|".join(found) or "0"


def _pulled(body: bytes) -> str:
    try:
        messages = decode_records(body, decompress=False)
    except RemoteProtocolError as error:
        return f"unreadable records: {error}"
    if not messages:
        return "no messages"
    first, last = messages[0].queue_offset, messages[-1].queue_offset
    return f"message {first}" if len(messages) == 1 else f"{len(messages)} messages, {first} to {last}"
