"""Fetches the addresses of the name servers without an event loop."""

import socket
import time

from rocket_client.core.address_server import MAX_ANSWER, AddressServer


def fetch_addresses(server: AddressServer) -> tuple[str, ...]:
    """Return the addresses that the server answers with.

    Raises:
        AddressFetchError: The server does not answer in time, or not with addresses.
    """
    deadline = time.monotonic() + server.timeout
    received = bytearray()
    try:
        with socket.create_connection(server.endpoint, server.timeout) as sock:
            sock.sendall(server.request())
            while len(received) <= MAX_ANSWER:
                # The socket's own timeout is for one call: a server that sends byte by byte would never exceed it.
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                sock.settimeout(left)
                chunk = sock.recv(MAX_ANSWER)
                if not chunk:
                    break
                received += chunk
    except OSError as error:  # TimeoutError too
        raise server.unreachable(error) from error
    return server.addresses(bytes(received))
