"""The load: connections that send requests and wait for their answers, on blocking sockets in one thread."""

import re
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.load.frames import QUEUES, SendFrames, pull_frame

__all__ = [
    "FlowControlError",
    "Load",
    "pull_again",
    "send_at_rate",
    "send_closed_loop",
    "send_count",
    "waiting_consumers",
]

_LENGTH = struct.Struct(">I")
_SUCCESS = b'{"code":0,'
_SYSTEM_BUSY = b'{"code":2,'
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
_RECEIVE_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 1024
_ANSWER_SECONDS = 30.0
_WAIT_MS = 60_000
_DELIVERED = b"x" * 128


class FlowControlError(ConnectionError):
    """The broker refused a request because requests wait too long: its code is SYSTEM_BUSY."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was done: messages, wall seconds, and CPU seconds of this process."""

    messages: int
    seconds: float
    own_cpu: float


def _trusting() -> ssl.SSLContext:
    """Return the TLS settings of a client that trusts every server: only the encryption is measured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_TLS = _trusting()


class _Connection:
    """A connection that counts answers by their frames; each must say success."""

    def __init__(self, address: str, *, tls: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decrypted: Callable[[], int] = lambda: 0
        if tls:
            self.socket = encrypted = _TLS.wrap_socket(self.socket)
            self._decrypted = encrypted.pending
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def send(self, frames: bytes) -> None:
        self.socket.sendall(frames)

    def receive(self) -> int:
        """Read what has come, at least once, and return the number of answers that are complete now."""
        answers = self._receive()
        while self._decrypted():  # the poll does not see what the TLS layer has read already
            answers += self._receive()
        return answers

    def _receive(self) -> int:
        count = self.socket.recv_into(self._view[self._end :])
        if not count:
            raise ConnectionError("the broker closed the connection")
        self._end += count
        buffer, start, end, answers = self._buffer, 0, self._end, 0
        while end - start >= 4:
            stop = start + 4 + _LENGTH.unpack_from(buffer, start)[0]
            if stop > end:
                break
            if not buffer.startswith(_SUCCESS, start + 8):
                is_busy = buffer.startswith(_SYSTEM_BUSY, start + 8)
                error = FlowControlError if is_busy else ConnectionError
                raise error(f"refused: {bytes(buffer[start + 8 : min(stop, start + 400)])!r}")
            start, answers = stop, answers + 1
        if start:
            self._view[: end - start] = self._view[start:end]
            self._end = end - start
        return answers

    def ask(self, frame: bytes) -> memoryview:
        """Send one request and return its answer, header and body, which stays until the next `receive`."""
        self.send(frame)
        while not self.receive():
            pass
        return self._view

    def close(self) -> None:
        self.socket.close()


def send_closed_loop(
    address: str, frames: SendFrames, *, connections: int, in_flight: int, seconds: float, tls: bool = False
) -> Load:
    """Send on several connections; each has up to ``in_flight`` requests without an answer, and sends on an answer."""
    with ExitStack() as stack:
        poll = select.epoll()
        stack.callback(poll.close)
        by_number: dict[int, _Connection] = {}
        for _ in range(connections):
            connection = _Connection(address, tls=tls)
            stack.callback(connection.close)
            by_number[connection.socket.fileno()] = connection
            poll.register(connection.socket, select.EPOLLIN)
        return _measure(lambda: _send_until(poll, by_number, frames, in_flight, seconds) * frames.messages)


def _send_until(
    poll: select.epoll,
    connections: dict[int, _Connection],
    frames: SendFrames,
    in_flight: int,
    seconds: float,
) -> int:
    until = time.perf_counter() + seconds
    for connection in connections.values():
        connection.send(frames.next(in_flight))
    pending, answered = in_flight * len(connections), 0
    while pending:
        for number, _ in poll.poll(_ANSWER_SECONDS):
            connection = connections[number]
            answers = connection.receive()
            answered += answers
            pending -= answers
            if answers and time.perf_counter() < until:
                connection.send(frames.next(answers))
                pending += answers
    return answered


def send_at_rate(address: str, frames: SendFrames, *, per_second: int, seconds: float) -> tuple[Load, list[float]]:
    """Send one message after the other when each is due; return the load, and the seconds from due time to answer."""
    latencies: list[float] = []

    def send() -> int:
        first = time.perf_counter()
        count = int(seconds * per_second)
        for number in range(count):
            due = first + number / per_second
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            connection.ask(frames.next(1))
            latencies.append(time.perf_counter() - due)
        return count

    connection = _Connection(address)
    try:
        return _measure(send), latencies
    finally:
        connection.close()


def send_count(address: str, frames: SendFrames, count: int, *, in_flight: int = 64) -> None:
    """Send ``count`` requests on one connection, ``in_flight`` at once; the queues get them in turn."""
    connection = _Connection(address)
    try:
        while count:
            pending = min(count, in_flight)
            connection.send(frames.next(pending))
            count -= pending
            while pending:
                pending -= connection.receive()
    finally:
        connection.close()


def pull_again(address: str, topic: str, group: str, end: int, *, most: int, seconds: float) -> Load:
    """Pull each queue from its first message to its end, again and again, ``most`` messages at a time."""

    def pull() -> int:
        until, pulled = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            for queue_id in range(QUEUES):
                _pull_queue(connection, topic, group, queue_id, end, most)
            pulled += end * QUEUES
        return pulled

    connection = _Connection(address)
    try:
        return _measure(pull)
    finally:
        connection.close()


@contextmanager
def waiting_consumers(address: str, topic: str, consumers: int) -> Iterator[Callable[[float], Load]]:
    """Connect consumers that wait for messages, each for its own queue of the topic.

    Yields a function that sends one message after the other for a number of seconds, each to the next consumer, which
    pulls again when it has received the message.
    """
    with ExitStack() as stack:

        def connect() -> _Connection:
            connection = _Connection(address)
            stack.callback(connection.close)
            return connection

        def pull(number: int) -> None:
            waiting[number].send(pull_frame(topic, "load", number, offsets[number], 32, wait_ms=_WAIT_MS))

        def deliver(seconds: float) -> int:
            until, sent = time.perf_counter() + seconds, 0
            while sent % consumers or time.perf_counter() < until:
                number = sent % consumers
                sender.ask(frames.next(1))
                while not waiting[number].receive():
                    pass
                offsets[number] += 1
                pull(number)
                sent += 1
            return sent

        sender, frames = connect(), SendFrames(topic, _DELIVERED, queues=consumers)
        waiting = [connect() for _ in range(consumers)]
        offsets = [0] * consumers
        for number in range(consumers):
            pull(number)
        yield lambda seconds: _measure(lambda: deliver(seconds))


def _pull_queue(  # noqa: PLR0917 - as a pull request has them
    connection: _Connection, topic: str, group: str, queue_id: int, end: int, most: int
) -> None:
    offset = 0
    while offset < end:
        answer = connection.ask(pull_frame(topic, group, queue_id, offset, most))
        found = _NEXT_OFFSET.search(answer[:_HEADER_BYTES])
        if found is None or int(found[1]) <= offset:
            raise ConnectionError(f"the pull from {topic}-{queue_id} at {offset} found nothing")
        offset = int(found[1])


def _measure(work: Callable[[], int]) -> Load:
    cpu, begun = time.process_time(), time.perf_counter()
    messages = work()
    return Load(messages, time.perf_counter() - begun, time.process_time() - cpu)
