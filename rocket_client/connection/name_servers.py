"""Requests to name servers: the client keeps to one, and turns to the next when it fails.

Name servers do not know of each other and each has all routes, so any of them will do. With all of them
gone the client goes on with the routes it has.
"""

import random

from rocket_client.connection.connections import Connections
from rocket_client.errors import NameServersUnreachableError
from rocket_remoting.wire.bodies import TopicRouteData, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader


class NameServers:
    """The configured name servers, seen as one."""

    def __init__(self, addresses: tuple[str, ...], connections: Connections, timeout: float) -> None:
        self.addresses = addresses
        self._connections = connections
        self._timeout = timeout
        # Clients begin with different ones, so that the load spreads.
        self._current = random.randrange(len(addresses))

    def __repr__(self) -> str:
        return f"NameServers({', '.join(self.addresses)}; current {self.current})"

    @property
    def current(self) -> str:
        """The one that is asked first."""
        return self.addresses[self._current]

    async def invoke(
        self, code: int, header: Header | None = None, body: bytes = b"", *, timeout: float | None = None
    ) -> RemotingCommand:
        """The answer of the first name server that gives one, whatever its code.

        Raises:
            NameServersUnreachableError: None did.
        """
        causes: list[Exception] = []
        for _ in self.addresses:
            try:
                connection = await self._connections.to(self.current)
                return await connection.invoke(code, header, body, timeout=timeout or self._timeout)
            except RemotingError as error:
                causes.append(error)
                self._current = (self._current + 1) % len(self.addresses)
        raise NameServersUnreachableError(self.addresses, causes)

    async def ask(self, address: str, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        """The successful answer of that one name server.

        Raises:
            ResponseError: It answered with another code.
        """
        connection = await self._connections.to(address)
        response = await connection.invoke(code, header, timeout=self._timeout)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address=address, request_code=code)
        return response

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """Where the topic's queues are; None when no such topic is known.

        Raises:
            NameServersUnreachableError: No name server answered.
            ResponseError: One answered with an error.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response = await self.invoke(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.SUCCESS and response.body:
            return decode_body(response.body, TopicRouteData)
        if response.code in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
            return None
        raise ResponseError(
            response.code,
            response.remark,
            address=self.current,
            request_code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        )
