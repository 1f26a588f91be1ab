"""The audit log: administrative requests, and all requests that access control refuses, as lines of JSON.

::

    {"time":"2026-11-26T09:30:00.125Z","server":"broker-a","request":"UPDATE_AND_CREATE_TOPIC","code":17,
     "account":"operator","signed":true,"certificate":"ops.example.org","from":"10.0.0.7:40112",
     "names":{"topic":"orders"},"answer":"SUCCESS","remark":null}

A line has names of the request's header and body, and never a body or a secret. Texts of clients are cut, and all
characters but those of ASCII are escaped, so that nobody can forge a line.

The log is bounded, since everybody who reaches a server can send requests. In a minute it has at most 10 refused
requests of an address and 100 in all, and 1,000 handled ones of an address and 10,000 in all; a line at the end of the
minute has the number of those left out. A registration that a broker only renews is recorded once an hour. While the
disk is full, lines are lost, and the next line that can be written says how many.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from rocket_broker.access.needs import AccessRefusal, AuditedRequest, Needs, Result
from rocket_broker.errors import BrokerError
from rocket_broker.files.rotated_file import RotatedFile
from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.serving import UNWRITABLE
from rocket_broker.settings.audit_settings import AuditSettings
from rocket_remoting.clock import Clock
from rocket_remoting.session.address import counted_address, host_of
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.errors import RemotingError

__all__ = ["ANONYMOUS", "AuditLog"]

logger = logging.getLogger(__name__)

ANONYMOUS: Final = "anonymous"
"""The account of requests without an access key."""

MINUTE: Final = 60.0
MOST_REFUSED: Final = (10, 100)
MOST_HANDLED: Final = (1_000, 10_000)
"""Maximum number of lines about refused and about handled requests in a minute: of one address, of all addresses."""

RENEWAL_SECONDS: Final = 3600.0
MOST_RENEWALS: Final = 4096
"""Renewed registrations that are remembered; beyond, the oldest is recorded again."""

MOST_CHARACTERS: Final = 262
"""Characters of a name: names of topics and groups have 255 at most, those of retry topics 7 more."""
MOST_OF_REMARK: Final = 256
MOST_NAMES: Final = 16
MOST_BYTES: Final = 32 * 1024
"""Bytes of a body whose names are read, some 200 topics, which takes 2 ms beside the handler's own reading."""
_MOST_ADDRESSES: Final = 16

_NAMES: Final = (
    "topic", "group", "groupName", "consumerGroup", "clientId", "msgId",
    "accessKey", "admin", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms",
    "globalWhiteAddrs", "aclFileFullPath", "username", "subject", "policyType", "resource",
    "namespace", "key", "clusterName", "brokerName", "brokerAddr", "brokerId",
)  # fmt: skip
"""The header fields that are recorded; all others may hold secrets, values or contents."""
_SHORT_TOPIC: Final = "b"
"""The topic's field in SEND_MESSAGE_V2."""


class AuditLog:
    """Records requests in a file.

    Args:
        server: Name of the server.
        file: The file.
        clock: The time of the lines.
    """

    def __init__(self, server: str, file: RotatedFile, clock: Clock) -> None:
        self._server = server
        self._file = file
        self._clock = clock
        self._lost = 0
        self._open: dict[RemotingCommand, AuditedRequest] = {}
        self._renewals: dict[str, float] = {}
        self._refused = _Minute(*MOST_REFUSED)
        self._handled = _Minute(*MOST_HANDLED)
        self._minute: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, server: str, path: Path | None, settings: AuditSettings, clock: Clock) -> "AuditLog | None":
        """Return the log with the sizes of the settings; None if there is no path."""
        if path is None:
            return None
        size, count = settings.audit_log_file_size, settings.audit_log_file_count
        return cls(server, RotatedFile(path, max_size=size, max_files=count), clock)

    def refused(self, connection: Connection, command: RemotingCommand, needs: Needs, refusal: AccessRefusal) -> None:
        """Record a request that the sender may not send."""
        if self._admits(self._refused, connection):
            # Names in the body are left out: nobody without a right makes the server read a body.
            _Request(self, connection, command, Needs(), is_signed=refusal.is_signed).end(refusal)

    def begin(
        self, connection: Connection, command: RemotingCommand, needs: Needs, *, is_signed: bool
    ) -> AuditedRequest:
        """Return an administrative request that is to be recorded when it has been handled."""
        if needs.is_renewed or self._admits(self._handled, connection):
            return _Request(self, connection, command, needs, is_signed=is_signed)
        return _LeftOut()

    def leave_open(self, command: RemotingCommand, request: AuditedRequest) -> None:
        """Keep a request until `answered`, or until the log is closed."""
        self._open[command] = request

    def answered(self, command: RemotingCommand, result: Result) -> None:
        """Record the result of a request that was left open; ignore other requests."""
        request = self._open.pop(command, None)
        if request is not None:
            request.end(result)

    def close(self) -> None:
        """Record the requests that were left open, and how many were left out."""
        for command in list(self._open):
            self.answered(command, None)
        if self._minute is not None:
            self._minute.cancel()
            self._end_minute()

    def record(self, line: Mapping[str, object]) -> None:
        """Write a line, with the time and the server's name."""
        if self._lost:
            if not self._append({"lost": self._lost}):
                self._lost += 1
                return
            self._lost = 0
        if not self._append(line):
            self._lost = 1

    def record_renewal(self, connection: Connection, line: Mapping[str, object]) -> None:
        """Write a line unless the same client had the same result within the last hour."""
        key = _json({**line, "from": host_of(connection.remote_address)})
        now = asyncio.get_running_loop().time()
        if now - self._renewals.get(key, -RENEWAL_SECONDS) < RENEWAL_SECONDS:
            return
        if not self._admits(self._handled, connection):
            return
        self._renewals.pop(key, None)
        if len(self._renewals) >= MOST_RENEWALS:
            del self._renewals[next(iter(self._renewals))]
        self._renewals[key] = now
        self.record(line)

    def _admits(self, minute: "_Minute", connection: Connection) -> bool:
        if self._minute is None:
            self._minute = asyncio.get_running_loop().call_later(MINUTE, self._end_minute)
        return minute.admits(counted_address(host_of(connection.remote_address)))

    def _end_minute(self) -> None:
        self._minute = None
        for kind, minute in (("refused", self._refused), ("handled", self._handled)):
            left_out = minute.end()
            if left_out:
                addresses = dict(left_out.most_common(_MOST_ADDRESSES))
                self.record({"left_out": left_out.total(), "kind": kind, "addresses": addresses})

    def _append(self, line: Mapping[str, object]) -> bool:
        when = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        whole = {"time": when.replace("+00:00", "Z"), "server": self._server, **line}
        try:
            self._file.append(_json(whole).encode() + b"\n")
        except OSError as error:
            if not self._lost:
                logger.error("lines of the audit log are lost until %s can be written: %s", self._file.path, error)
            return False
        return True

    def __repr__(self) -> str:
        return f"<AuditLog {self._file.path}>"


class _Request:
    """An administrative or refused request."""

    __slots__ = ("_connection", "_is_renewed", "_line", "_log")

    def __init__(
        self, log: AuditLog, connection: Connection, command: RemotingCommand, needs: Needs, *, is_signed: bool
    ) -> None:
        # Read now: the bytes of a request are those of a buffer, which does not outlive the handler.
        fields = _fields(command)
        self._log = log
        self._connection = connection
        self._is_renewed = needs.is_renewed
        self._line: dict[str, object] = {
            "request": _name(RequestCode, command.code),
            "code": command.code,
            "account": _cut(fields.get(ACCESS_KEY, ANONYMOUS)),
            "signed": is_signed,
            "certificate": _cut(connection.certificate_name),
            "from": connection.remote_address,
            "names": _names(fields, command, needs),
        }

    def end(self, result: Result) -> None:
        """Record the request with its result."""
        answer, remark = _described(result)
        line = {**self._line, "answer": answer, "remark": _cut(remark, MOST_OF_REMARK)}
        if self._is_renewed:
            self._log.record_renewal(self._connection, line)
        else:
            self._log.record(line)


class _LeftOut:
    """A request that is not recorded, because there are too many."""

    def end(self, result: Result) -> None:
        """Do nothing."""


class _Minute:
    """The requests of one kind in this minute: how many are recorded, and how many of each address are left out.

    Args:
        most_of_address: The most lines of an address.
        most: The most lines of all addresses.
    """

    def __init__(self, most_of_address: int, most: int) -> None:
        self._most_of_address = most_of_address
        self._left = self._most = most
        self._recorded: Counter[str] = Counter()
        # By addresses with lines, which bounds their number; "others" counts the requests of all other addresses.
        self._left_out: Counter[str] = Counter()

    def admits(self, address: str) -> bool:
        """Count a request; return whether to record it."""
        if self._left and self._recorded[address] < self._most_of_address:
            self._left -= 1
            self._recorded[address] += 1
            return True
        self._left_out[address if address in self._recorded else "others"] += 1
        return False

    def end(self) -> Counter[str]:
        """Begin a new minute; return how many requests of each address were left out."""
        left_out, self._left_out = self._left_out, Counter()
        self._left = self._most
        self._recorded.clear()
        return left_out


def _described(result: Result) -> tuple[str | None, str | None]:
    """Return the answer's code by its name, and its remark."""
    match result:
        case RemotingCommand():
            return _name(ResponseCode, result.code), result.remark
        case Refusal():
            return result.code.name, result.remark
        case RemotingError():
            return ResponseCode.SYSTEM_ERROR.name, str(result)
        case OSError() if result.errno in UNWRITABLE:
            return ResponseCode.SERVICE_NOT_AVAILABLE.name, str(result)
        case Exception():
            return ResponseCode.SYSTEM_ERROR.name, f"{type(result).__name__}: {result}"
    return None, "the request was not handled to its end"


def _fields(command: RemotingCommand) -> Mapping[str, str]:
    try:
        return command.ext_fields
    except RemotingError:  # the answer says so
        return {}


def _names(fields: Mapping[str, str], command: RemotingCommand, needs: Needs) -> dict[str, object]:
    found: dict[str, object] = {name: _cut(fields[name]) for name in _NAMES if name in fields}
    if command.code == RequestCode.SEND_MESSAGE_V2 and _SHORT_TOPIC in fields:
        found["topic"] = _cut(fields[_SHORT_TOPIC])
    listed = _listed(command, needs)
    if listed:
        found["listed"] = [_cut(name) for name in islice(listed, MOST_NAMES)]
        if len(listed) > MOST_NAMES:
            found["more"] = len(listed) - MOST_NAMES
    return found


def _listed(command: RemotingCommand, needs: Needs) -> list[str]:
    if len(command.body) > MOST_BYTES:
        return []
    try:
        return list(needs.names(command))
    except (BrokerError, RemotingError, UnicodeDecodeError):  # the handler cannot read it either: the answer says so
        return []


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)


def _cut(text: str | None, most: int = MOST_CHARACTERS) -> str | None:
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text)} characters)"


def _json(line: Mapping[str, object]) -> str:
    return json.dumps(line, separators=(",", ":"))
