"""Connections that read a broker's last response, close the sockets of failed handshakes, and do with few system calls.

Two defects of kafka-python 3.0 (seen in 3.0.10 to 3.0.12):

- A read that brings data and the end of the connection at once drops the data. A broker that refuses a SASL mechanism
  says so and hangs up: the client hears of a lost connection only, and tries again.
- A TLS handshake that fails leaves its socket open until the garbage collector finds it.

And it takes the long way to each socket: a write waits until the socket says that it takes data, which it nearly always
does, and each read of 4 KiB is followed by one that finds nothing. Here a write is tried at once, and a read that finds
less than it has room for is the last.

All are repaired in the transports, which kafka-python has no setting for: `KafkaConnectionManager._build_transport`
makes them. In the development version of 3.1 (August 2026) that method is gone; the first defect is still there.
"""

import time
from typing import Any, Final

from kafka.errors import KafkaConnectionError, KafkaProtocolError
from kafka.net.inet import create_connection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

__all__ = ["build_transport"]

_READ: Final = 64 << 10
"""The bytes of one read."""


async def build_transport(manager: Any, node: Any, timeout_at: float | None = None) -> Any:
    """Return a transport after its handshake, in the place of `KafkaConnectionManager._build_transport`.

    Args:
        manager: The `KafkaConnectionManager`; its `ssl_context` is set if connections use TLS.
        node: The broker: `host` and `port`.
        timeout_at: When to give up, in seconds of `time.monotonic`; None: never.

    Raises:
        KafkaConnectionError: The broker is away, or the handshake failed; its cause says why.
    """
    config = manager.config
    connection = await create_connection(
        manager._net,
        node.host,
        node.port,
        config["socket_options"],
        proxy_url=config["proxy_url"],
        timeout_at=timeout_at,
    )
    try:
        if manager.ssl_enabled:
            context = config["ssl_context"]
            transport = _TlsTransport(manager._net, connection, host=node.host, ssl_context=context)
            connection = transport._sock
        else:
            transport = _PlainTransport(manager._net, connection, host=node.host)
        await transport.handshake()
    except Exception as error:
        connection.close()
        raise KafkaConnectionError(f"Handshake failed: {error}") from error
    return transport


class _Quick:
    """The parts of a transport that make one system call where kafka-python's make several."""

    def write(self, data: bytes) -> None:
        """Send data at once as far as the socket takes them, and the rest when it takes more.

        Raises:
            RuntimeError: The transport is closed for writing.
        """
        transport: Any = self
        if transport._writing or transport._closed or not transport._write or not data:
            super().write(data)  # type: ignore[misc]  # the transport's
            return
        transport._write_buffer.append(data)
        sent, error = transport._sock_send()
        transport.last_write = time.monotonic()
        if transport._protocol._sensors:
            transport._protocol._sensors.bytes_sent.record(sent)
        if error is not None:
            # The caller is about to note its request, so the connection ends only after that.
            transport._net.call_soon(lambda: transport.abort(error))
        elif transport._write_buffer:
            transport._writing = True
            transport._write_task = transport._net.call_soon(transport._write_to_sock)

    async def _read_from_sock(self) -> None:
        transport: Any = self
        network, connection = transport._net, transport._sock
        if not transport._read or transport._closed:
            return
        await network.begin_reading(connection)
        try:
            while True:
                data, error = transport._sock_recv()
                if error is not None:
                    transport.abort(error=error)
                    return
                transport.last_read = time.monotonic()
                if transport._protocol._sensors:
                    transport._protocol._sensors.bytes_received.record(len(data))
                try:
                    transport._protocol.data_received(data)
                except KafkaProtocolError as wrong:
                    transport.abort(error=wrong)
                    return
                if not transport._read or transport._closed:
                    return
                await network.next_data()
        finally:
            network.end_reading(connection)


class _PlainTransport(_Quick, KafkaTCPTransport):  # type: ignore[misc]  # kafka-python has no annotations
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """Return what has arrived, or else the error of the connection."""
        received: list[bytes] = []
        while True:
            try:
                data = self._sock.recv(_READ)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                return _data_first(b"".join(received), KafkaConnectionError(error))
            if not data:
                return _data_first(b"".join(received), KafkaConnectionError("socket disconnected"))
            received.append(data)
            if len(data) < _READ:
                break
        return (received[0] if len(received) == 1 else b"".join(received)), None


class _TlsTransport(_Quick, KafkaSSLTransport):  # type: ignore[misc]  # as above
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        return _data_first(*super()._sock_recv())


def _data_first(data: bytes, error: Exception | None) -> tuple[bytes, Exception | None]:
    """Return data without the error that followed it; the next read raises the error again."""
    return data, None if data else error
