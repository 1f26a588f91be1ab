"""A minimal Kafka broker on a real socket: it answers metadata requests and leaves others unanswered."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

METADATA, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID = 3, 17, 18, 22
# The highest version of each request, which says how old the broker is.
VERSIONS = {0: 7, 1: 12, METADATA: 1, SASL_HANDSHAKE: 1, API_VERSIONS: 4, INIT_PRODUCER_ID: 4}
UNSUPPORTED_MECHANISM = 33

Answer = Callable[[socket.socket], object]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve connections one after the other with the given function; yield the server's address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            # Closing a socket does not end an accept that waits.
            while (connection := server.accept()[0]) and not is_over.is_set():
                with connection, suppress(OSError):
                    answer(connection)
            connection.close()

        is_over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            yield address
        finally:
            is_over.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


@contextmanager
def broker_that_falls_silent() -> Iterator[tuple[str, threading.Event]]:
    """Serve as a broker that answers one metadata request; yield its address, and an event: it was asked again."""
    asked_again = threading.Event()
    threads: list[threading.Thread] = []
    answered: list[int] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            host, port = connection.getsockname()
            for key, correlation in _requests(connection):
                if key == API_VERSIONS:
                    _send(connection, correlation, _api_versions())
                elif key == METADATA and not answered:
                    answered.append(correlation)
                    _send(connection, correlation, _metadata(host, port, "topic"))
                elif key == METADATA:
                    asked_again.set()

    def answer(connection: socket.socket) -> None:
        threads.append(threading.Thread(target=serve, args=(connection.dup(),)))
        threads[-1].start()

    with answering(answer) as address:
        yield address, asked_again
    for thread in threads:
        thread.join()


@contextmanager
def silent_broker(topic: str) -> Iterator[str]:
    """Serve as a broker with a topic of one partition; yield its address."""
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        # Clients have several connections at once.
        connections.append(connection.dup())
        threads.append(threading.Thread(target=_serve, args=(connections[-1], topic)))
        threads[-1].start()

    try:
        with answering(answer) as address:
            yield address
    finally:
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def refuse_mechanism(connection: socket.socket) -> None:
    """Refuse a client's SASL mechanism and close, so that the client reads both at once."""
    for key, correlation in _requests(connection):
        if key == SASL_HANDSHAKE:
            # The answer is kept back until the connection is shut down, and travels with its end.
            answer = struct.pack(">iihi", 10, correlation, UNSUPPORTED_MECHANISM, 0)
            connection.send(answer, socket.MSG_MORE)
            return connection.shutdown(socket.SHUT_WR)
        _send(connection, correlation, _api_versions())
    return None


def _serve(connection: socket.socket, topic: str) -> None:
    with connection, suppress(OSError):
        host, port = connection.getsockname()
        for key, correlation in _requests(connection):
            if key == API_VERSIONS:
                _send(connection, correlation, _api_versions())
            elif key == METADATA:
                _send(connection, correlation, _metadata(host, port, topic))


def _requests(connection: socket.socket) -> Iterator[tuple[int, int]]:
    """Yield the key and the correlation of each request."""
    with connection.makefile("rb") as requests:
        while len(head := requests.read(4)) == 4:
            key, _, correlation = struct.unpack_from(">hhi", requests.read(*struct.unpack(">i", head)))
            yield key, correlation


def _send(connection: socket.socket, correlation: int, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)


def _api_versions() -> bytes:
    """Error i16 · number + 1 of: key i16, lowest and highest version i16, no tags · throttling i32 · no tags."""
    keys = b"".join(struct.pack(">hhhx", key, 0, version) for key, version in VERSIONS.items())
    return struct.pack(">hB", 0, len(VERSIONS) + 1) + keys + struct.pack(">ix", 0)


def _metadata(host: str, port: int, topic: str) -> bytes:
    """Describe this broker as the controller, and the topic with its partition 0."""
    broker = struct.pack(">ii", 1, 1) + _text(host) + struct.pack(">ih", port, -1)
    partition = struct.pack(">ihii", 1, 0, 0, 1) + struct.pack(">ii", 1, 1) * 2
    return broker + struct.pack(">ii", 1, 1) + struct.pack(">h", 0) + _text(topic) + b"\0" + partition


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
