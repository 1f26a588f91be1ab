"""Requests that are encoded once and changed in place, so that the load generator is not the bottleneck.

::

    | prefix | {"code":310,"extFields":{…,"i":"UNIQ_KEY\\u0001……\\u0002WAIT…"},…,"opaque":1000000000,…} | body |
                                                        └ 32 digits: a new number      └ 10 digits: a new number

A request has the fields and properties that Apache's Java client sends. Numbers keep their count of digits, so the
frame keeps its length. The unique key is signed, the opaque is not: a signed request gets a new signature, too.
"""

import base64
import hmac
from collections.abc import Sequence

from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import RequestCode, Version
from rocket_remoting.wire.command import PREFIX, RemotingCommand
from rocket_remoting.wire.credentials import SIGNATURE, Credentials
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.properties import (
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties_text,
)
from rocket_remoting.wire.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND

__all__ = ["PullFrames", "SendFrames", "pull_frame"]

QUEUES = 4
_FIRST_OPAQUE = 1_000_000_000
_UNIQUE_KEY = "7F00000100002A9F18B4AAC200000000"
_COUNTED_DIGITS = 8
_SIGNATURE_BYTES = 28


class SendFrames:
    """Send requests for one topic, to its queues in turn.

    Attributes:
        messages: Messages in each frame.
    """

    def __init__(
        self, topic: str, body: bytes, *, batch: int = 1, keys: Credentials | None = None, queues: int = QUEUES
    ) -> None:
        """Encode a request for each queue.

        Args:
            topic: The topic.
            body: The body of every message.
            batch: Messages in a request; 1 for requests of single messages.
            keys: Sign the requests; None: they are not signed.
            queues: The number of the topic's queues.
        """
        self.messages = batch
        self._sent = 0
        self._frames = [_Template(_send(topic, body, queue_id, batch), keys) for queue_id in range(queues)]

    def next(self, count: int) -> bytes:
        """Return ``count`` requests, one after the other."""
        taken = []
        for _ in range(count):
            taken.append(self._frames[self._sent % len(self._frames)].with_numbers(self._sent))
            self._sent += 1
        return b"".join(taken)


def pull_frame(topic: str, group: str, queue_id: int, offset: int, most: int, *, wait_ms: int = 0) -> bytes:
    """Return a request to pull up to ``most`` messages of a queue from an offset on, held until there are some."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=most,
        sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=wait_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return b"".join(_request(RequestCode.PULL_MESSAGE, header, b"").encode())


class PullFrames:
    """Pull requests of a consumer that waits for the next message of a queue, each of which commits its offset."""

    def __init__(self, topic: str, group: str, queue_id: int, *, wait_ms: int) -> None:
        numbers = 1_111_111_111, 2_222_222_222
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=numbers[0],
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND | PULL_COMMIT_OFFSET,
            commit_offset=numbers[1],
            suspend_timeout_millis=wait_ms,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        (frame,) = _request(RequestCode.PULL_MESSAGE, header, b"").encode()
        text = bytes(frame[PREFIX.size :])
        for number in (*numbers, _FIRST_OPAQUE):
            text = text.replace(b"%d" % number, b"%d")
        self._header = text

    def next(self, offset: int) -> bytes:
        """Return the request for the message with an offset."""
        header = self._header % (offset, offset, offset)
        return PREFIX.pack(4 + len(header), len(header)) + header


class _Template:
    def __init__(self, request: RemotingCommand, keys: Credentials | None) -> None:
        self._signing = None
        if keys is not None:
            request.sign(keys)
            self._signing = _Signing(request.ext_fields, bytes(request.body), keys)
        frame = b"".join(request.encode())
        self._frame = bytearray(frame)
        self._opaque = frame.index(b"%d" % _FIRST_OPAQUE)
        self._keys = _positions(frame, _UNIQUE_KEY.encode())
        self._signature = frame.index(request.ext_fields[SIGNATURE].encode()) if keys is not None else 0

    def with_numbers(self, number: int) -> bytes:
        frame = self._frame
        _put_number(frame, self._keys, number)
        frame[self._opaque : self._opaque + 10] = b"%d" % (_FIRST_OPAQUE + number % _FIRST_OPAQUE)
        if self._signing is not None:
            frame[self._signature : self._signature + _SIGNATURE_BYTES] = self._signing.with_number(number)
        return bytes(frame)


class _Signing:
    """What the signature of a request is made of; `rocket_remoting.wire.credentials` draws it."""

    def __init__(self, fields: dict[str, str], body: bytes, keys: Credentials) -> None:
        content = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode() + body
        self._content = bytearray(content)
        self._keys = _positions(content, _UNIQUE_KEY.encode())
        self._secret = keys.secret_key.encode()

    def with_number(self, number: int) -> bytes:
        _put_number(self._content, self._keys, number)
        return base64.b64encode(hmac.digest(self._secret, self._content, "sha1"))


def _put_number(data: bytearray, positions: Sequence[int], number: int) -> None:
    """Put a number, and their place in the request, into the digits of unique keys."""
    digits = b"%08X" % (number & 0xFFFFFFFF)
    for place, position in enumerate(positions):
        data[position - 4 : position] = b"%04X" % place
        data[position : position + _COUNTED_DIGITS] = digits


def _positions(frame: bytes, key: bytes) -> Sequence[int]:
    """Return where the counted digits of each unique key begin."""
    found, position = [], frame.find(key)
    while position >= 0:
        found.append(position + len(key) - _COUNTED_DIGITS)
        position = frame.find(key, position + 1)
    return found


def _send(topic: str, body: bytes, queue_id: int, batch: int) -> RemotingCommand:
    properties = {PROPERTY_UNIQUE_KEY: _UNIQUE_KEY, PROPERTY_WAIT_STORE_MSG_OK: "true"}
    code = RequestCode.SEND_MESSAGE_V2
    own = encode_properties_text(properties)
    if batch > 1:
        code = RequestCode.SEND_BATCH_MESSAGE
        body = encode_batch([Message(topic, body, properties=properties)] * batch)
        own = ""
    header = SendMessageRequestHeaderV2(
        producer_group="load",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=own,
        reconsume_times=0,
        unit_mode=False,
        batch=batch > 1,
    )
    return _request(code, header, body)


def _request(code: RequestCode, header: Header, body: bytes) -> RemotingCommand:
    command = RemotingCommand.request(code, header, body)
    command.language, command.version, command.opaque = "JAVA", Version.V4_9_7, _FIRST_OPAQUE
    return command
