"""Fetches the addresses of the name servers without blocking the event loop."""

import asyncio

from rocket_client.core.address_server import MAX_ANSWER, AddressServer


async def fetch_addresses(server: AddressServer) -> tuple[str, ...]:
    """Return the addresses that the server answers with.

    Raises:
        AddressFetchError: The server does not answer in time, or not with addresses.
    """
    try:
        async with asyncio.timeout(server.timeout):
            reader, writer = await asyncio.open_connection(*server.endpoint)
            try:
                writer.write(server.request())
                received = bytearray()
                while len(received) <= MAX_ANSWER and (chunk := await reader.read(MAX_ANSWER)):
                    received += chunk
            finally:
                writer.transport.abort()
    except OSError as error:  # TimeoutError too
        raise server.unreachable(error) from error
    return server.addresses(bytes(received))
