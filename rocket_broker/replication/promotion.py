"""The check before a slave becomes the master: may the messages that senders were promised be lost?

With SYNC_MASTER each message that was answered with SEND_OK is on a slave, so the slave with the longest log has all.
"""

from typing import NamedTuple

from rocket_broker.settings.broker_settings import MASTER_ID, BrokerSettings
from rocket_remoting.session.address import format_address
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import ClusterInfo, HARuntimeInfo, KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import RemotingError, ResponseError

__all__ = ["Candidate", "examine"]

ANSWER_SECONDS = 3.0


class Candidate(NamedTuple):
    """A slave that is to become the master.

    Attributes:
        end: The end of its log; -1 if it did not answer.
        obstacles: The reasons why messages could be lost, or two masters would accept messages; none if all is well.
    """

    end: int
    obstacles: list[str]


async def examine(settings: BrokerSettings, transport: Transport) -> Candidate:
    """Compare a running slave with the other brokers of its name.

    Args:
        settings: The settings of the slave.
        transport: Connects to the brokers and the name servers.
    """
    obstacles: list[str] = []
    address = format_address((settings.advertised_host, settings.listen_port))
    end = -1
    try:
        end, follows = await _state(settings, transport, address)
        if follows:
            obstacles.append(f"it still copies the log of the master at {follows}: stop the master first")
    except RemotingError as e:
        obstacles.append(f"this slave does not answer at {address}, start it to compare its log: {e}")
    for broker_id, other in sorted((await _others(settings, transport, obstacles)).items()):
        if broker_id == MASTER_ID:
            obstacles.append(f"the master at {other} is registered: stop it first, or two masters accept messages")
        elif other != address:
            try:
                others_end, _ = await _state(settings, transport, other)
            except RemotingError as e:
                obstacles.append(f"slave {broker_id} at {other} does not answer, and may have a longer log: {e}")
                continue
            if others_end > end >= 0:
                obstacles.append(f"slave {broker_id} at {other} has {others_end - end} bytes more: promote that one")
    return Candidate(end, obstacles)


async def _others(settings: BrokerSettings, transport: Transport, obstacles: list[str]) -> dict[int, str]:
    """Return the addresses of the brokers with the slave's name, by their ids, as the name servers know them."""
    found: dict[int, str] = {}
    for name_server in settings.name_servers:
        try:
            body = await _ask(settings, transport, name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        except RemotingError as e:
            obstacles.append(f"name server {name_server} does not answer, and may know of a master: {e}")
            continue
        broker = decode_body(body, ClusterInfo).broker_addr_table.get(settings.broker_name)
        if broker is not None:
            found |= broker.broker_addrs
    return found


async def _state(settings: BrokerSettings, transport: Transport, address: str) -> tuple[int, str]:
    """Return the end of a slave's log, and the address of the master that it is connected to, empty if it is not."""
    try:
        copied = decode_body(
            await _ask(settings, transport, address, RequestCode.GET_BROKER_HA_STATUS), HARuntimeInfo
        ).ha_client_runtime_info
    except ResponseError:  # Apache's broker of 4.9 does not know the request
        figures = decode_body(await _ask(settings, transport, address, RequestCode.GET_BROKER_RUNTIME_INFO), KVTable)
        return int(figures.table.get("commitLogMaxOffset", "-1")), ""
    return copied.max_offset, copied.master_addr


async def _ask(settings: BrokerSettings, transport: Transport, address: str, code: RequestCode) -> bytes:
    connection: Connection = await transport.connect(address, timeout=ANSWER_SECONDS, tls=settings.client_tls())
    try:
        connection.sign_with(settings.credentials)
        answer = await connection.invoke(code, timeout=ANSWER_SECONDS)
    finally:
        await connection.close()
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, address=address, request_code=code)
    return bytes(answer.body)
