"""Long polls of the blocking client, against our own server in a thread."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rocket_client.blocking import BlockingClient
from rocket_client.core.pull_answer import PullStatus
from rocket_client.settings import ProducerSettings
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from tests.unit.rocket_client.test_blocking_connection import ServerThread

REQUEST_TIMEOUT, LATE = 2.0, 2.5


class LateServer(ServerThread):
    """A name server and broker that checks its held pulls only periodically, as Apache's does."""

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.PULL_MESSAGE:
            held = request.header(PullMessageRequestHeader).suspend_timeout_millis / 1000
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=7, min_offset=0, max_offset=7
            )
            answer = RemotingCommand.response(request, ResponseCode.PULL_NOT_FOUND, header)
            asyncio.get_running_loop().call_later(held + LATE, connection.respond, answer)
            return None
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=PERM_READ | PERM_WRITE)
            ],
            broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: self.server.address})],
        )
        return RemotingCommand.response(request, body=encode_body(route))


@pytest.fixture
def server() -> Iterator[LateServer]:
    """A server in a thread."""
    thread = LateServer()
    yield thread
    thread.close()


@pytest.mark.slow
def test_answer_after_the_hold_time_is_accepted(server: LateServer) -> None:
    """The request timeout counts from the end of the hold time."""
    settings = ProducerSettings(name_servers=server.server.address, request_timeout=timedelta(seconds=REQUEST_TIMEOUT))
    with BlockingClient("readers", settings) as client:
        result = client.pull(MessageQueue("orders", "a", 0), 7, wait=0.1)
    assert (result.status, result.next_offset) == (PullStatus.NO_NEW_MSG, 7)
