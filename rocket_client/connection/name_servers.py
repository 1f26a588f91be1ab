"""Requests to name servers: the client uses one name server until it fails, then the next.

Name servers are independent of each other, and each has all routes, so any of them can answer. One that does not know a
topic may have been started just now, so the others are asked as well. While none answers, the client continues with the
routes that it has.

Their addresses are configured, or fetched from an HTTP server: when the first member starts, and periodically.
"""

import asyncio
import logging
from typing import TypeVar

from rocket_client.connection.address_fetch import fetch_addresses
from rocket_client.connection.connections import Connections
from rocket_client.core.address_server import AddressServer
from rocket_client.core.call import Call, refusal
from rocket_client.core.inquiry import Inquiry
from rocket_client.core.name_server_calls import topic_route
from rocket_client.core.name_server_order import NameServerOrder
from rocket_client.errors import AddressFetchError, NameServersUnreachableError
from rocket_remoting.wire.bodies import TopicRouteData
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.ext_fields import Header

logger = logging.getLogger(__name__)

T = TypeVar("T")


class NameServers:
    """The name servers of a client.

    Args:
        addresses: The addresses; empty if a server answers with them.
        server: The HTTP server that answers with the addresses; None if they are configured.
        connections: Connections to name servers.
        timeout: Seconds within which a name server must answer.
    """

    def __init__(
        self, addresses: tuple[str, ...], server: AddressServer | None, connections: Connections, timeout: float
    ) -> None:
        self._order = NameServerOrder(addresses)
        self._server = server
        self._connections = connections
        self._timeout = timeout

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in use; empty until they have been fetched."""
        return self._order.addresses

    def __repr__(self) -> str:
        return f"NameServers({', '.join(self.addresses)}; current {self._order.current})"

    async def find(self) -> None:
        """Fetch the addresses if none is known.

        Raises:
            NameServersUnreachableError: The addresses could not be fetched.
        """
        if not self.addresses:
            try:
                await self.refresh()
            except AddressFetchError as error:
                raise NameServersUnreachableError((), [error]) from error

    async def refresh(self) -> None:
        """Fetch the addresses if they are not configured, and use them from now on.

        Raises:
            AddressFetchError: The addresses could not be fetched; those known stay in use.
        """
        if self._server is None:
            return
        known, fetched = self.addresses, await fetch_addresses(self._server)
        if set(fetched) == set(known):
            return
        logger.info("name servers from %s: %s; before: %s", self._server.url, fetched, known or "none")
        self._order.replace(fetched)
        for address in self._connections.addresses():
            if address not in fetched:
                await self._connections.drop(address)

    async def call(self, call: Call[T]) -> T:
        """Make the call to one name server after the other until one knows the result; return it, or None.

        Raises:
            NameServersUnreachableError: No name server answered.
            ResponseError: The name server that answered refused the request.
        """
        await self.find()
        inquiry = Inquiry(self._order, call, asyncio.get_running_loop().time())
        for address in inquiry:
            try:
                connection = await self._connections.to(address)
                response = await connection.invoke(call.code, call.header, timeout=self._timeout)
            except RemotingError as error:
                inquiry.failed(address, error)
            else:
                inquiry.answered(address, response)
        return inquiry.result()

    async def invoke(self, address: str, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        """Send a request to the name server at `address`; return its successful response.

        Raises:
            ResponseError: The name server refused the request.
        """
        connection = await self._connections.to(address)
        response = await connection.invoke(code, header, timeout=self._timeout)
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response, address, code)
        return response

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """Return the topic's route; None if no name server that answers knows the topic.

        Raises:
            NameServersUnreachableError: No name server answered.
            ResponseError: The name server that answered refused the request.
        """
        return await self.call(topic_route(topic))
