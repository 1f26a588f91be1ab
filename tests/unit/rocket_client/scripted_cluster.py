"""A scripted cluster: name servers and brokers whose answers the test decides."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

from rocket_client import Producer, ProducerSettings
from rocket_client.connection.client import RocketClient
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    GetRouteInfoRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from streamkit.testing.virtual_time import VirtualTime

Answer = Callable[[RemotingCommand], RemotingCommand | None]

SEND_CODES = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


class Peer:
    """A listening end that records its requests and answers them by code."""

    def __init__(self, transport: MemoryTransport, port: int) -> None:
        self._transport = transport
        self._port = port
        self._server: Server | None = None
        self.asked: list[RemotingCommand] = []
        self.answers: dict[int, Answer] = {}
        self.late: dict[int, float] = {}
        """Seconds by which answers come late, by code."""
        self.otherwise: Answer = RemotingCommand.response

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        return len(self._server.connections) if self._server is not None else 0

    async def start(self) -> None:
        self._server = await self._transport.serve("127.0.0.1", self._port, self._handle)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None

    def count(self, code: int) -> int:
        return sum(command.code == code for command in self.asked)

    def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        answer = self.answers.get(command.code, self.otherwise)(command)
        if answer is not None and (seconds := self.late.get(command.code)):
            asyncio.get_running_loop().call_later(seconds, connection.respond, answer)
            return None
        return answer


class ScriptedBroker(Peer):
    """A broker that stores nothing but answers that it did, unless the script says otherwise."""

    def __init__(self, transport: MemoryTransport, name: str, port: int) -> None:
        super().__init__(transport, port)
        self.name = name
        self.stored: list[SendMessageRequestHeaderV2] = []
        self.reply = int(ResponseCode.SUCCESS)
        self.silent = False
        for code in SEND_CODES:
            self.answers[code] = self._store

    def refuse(self, command: RemotingCommand) -> RemotingCommand:
        """Return an error answer, for any request."""
        return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark="as the script says")

    def _store(self, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(SendMessageRequestHeaderV2)
        self.stored.append(header)
        if self.silent:
            return None
        placed = SendMessageResponseHeader(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=len(self.stored) - 1)
        return RemotingCommand.response(command, self.reply, placed, remark="as the script says")


class ScriptedCluster:
    """Two brokers with two queues each of topic `orders`, and two name servers."""

    def __init__(self, time: VirtualTime, brokers: Iterable[str] = ("a", "b")) -> None:
        self.time = time
        self.transport = MemoryTransport()
        self.brokers = [
            ScriptedBroker(self.transport, name, 10911 + 100 * number) for number, name in enumerate(brokers)
        ]
        self.name_servers = [Peer(self.transport, port) for port in (9876, 9877)]
        self.routes: dict[str, TopicRouteData] = {"orders": self.route(queues=2)}
        for server in self.name_servers:
            server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._answer_route

    async def __aenter__(self) -> Self:
        for peer in (*self.brokers, *self.name_servers):
            await peer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in (*self.brokers, *self.name_servers):
            await peer.stop()

    def route(self, queues: int, brokers: Iterable[ScriptedBroker] | None = None) -> TopicRouteData:
        """Return a client that knows the route of `orders`."""
        chosen = list(self.brokers if brokers is None else brokers)
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=broker.name,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=PERM_READ | PERM_WRITE,
                )
                for broker in chosen
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=broker.name, broker_addrs={0: broker.address}) for broker in chosen
            ],
        )

    def producer(self, group: str = "shop", **settings: Any) -> Producer:
        return Producer(group, self.settings(**settings), transport=self.transport, clock=self.time.clock)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RocketClient]:
        """A client that knows the route of `orders`."""
        client = RocketClient("1@one", self.settings(), self.transport, self.time.clock)
        await client.routes.refresh("orders")
        yield client
        await client.close()

    def settings(self, **settings: Any) -> ProducerSettings:
        addresses = [server.address for server in self.name_servers]
        return ProducerSettings(**{"name_servers": addresses, **settings})

    def _answer_route(self, command: RemotingCommand) -> RemotingCommand:
        topic = command.header(GetRouteInfoRequestHeader).topic
        route = self.routes.get(topic)
        if route is None:
            return RemotingCommand.response(command, ResponseCode.TOPIC_NOT_EXIST, remark=f"no route of {topic}")
        return RemotingCommand.response(command, body=encode_body(route))
