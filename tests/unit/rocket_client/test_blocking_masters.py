"""Sends of the blocking client when another broker has become the master."""

from contextlib import closing

import pytest

from rocket_client.blocking import BlockingClient
from rocket_client.settings import ProducerSettings
from rocket_remoting import Message
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from tests.ports import free_ports
from tests.unit.rocket_client.test_blocking_connection import ServerThread


class Replica(ServerThread):
    """A broker that answers every send with one code."""

    def __init__(self, code: ResponseCode) -> None:
        super().__init__()
        self._code = code

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        placed = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=7)
        return RemotingCommand.response(request, self._code, placed)


class NameServer(ServerThread):
    """A name server whose first route has the former master, and each further one the new master."""

    def __init__(self, former: str, new: str) -> None:
        super().__init__()
        self._masters = [new, former]

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        address = self._masters.pop() if len(self._masters) > 1 else self._masters[0]
        queues = QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=PERM_READ | PERM_WRITE)
        broker = BrokerData(cluster="c", broker_name="a", broker_addrs={0: address})
        return RemotingCommand.response(
            request, body=encode_body(TopicRouteData(queue_datas=[queues], broker_datas=[broker]))
        )


@pytest.mark.parametrize("is_reachable", [True, False])
def test_next_attempt_of_a_send_goes_to_the_new_master(is_reachable: bool) -> None:
    """The former one is a slave now, or cannot be reached; its route is known for less than 30 s."""
    with (
        closing(Replica(ResponseCode.SERVICE_NOT_AVAILABLE)) as slave,
        closing(Replica(ResponseCode.SUCCESS)) as new,
        closing(NameServer(slave.server.address if is_reachable else _nobody(), new.server.address)) as names,
        BlockingClient("senders", ProducerSettings(name_servers=names.server.address)) as client,
    ):
        assert client.send(Message("orders", b"x"), timeout=60.0).queue_offset == 7


def _nobody() -> str:
    """Return an address at which nobody listens."""
    return f"127.0.0.1:{free_ports()[0]}"
