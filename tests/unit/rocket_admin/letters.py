"""Puts dead letters into a cluster, as a client writes them whose listener has failed."""

from collections.abc import Sequence

from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.headers import SendMessageRequestHeaderV2
from rocket_remoting.wire.sys_flag import COMPRESSED


async def bury(name_server: str, group: str, topic: str, failures: Sequence[str]) -> None:
    """Store a dead letter of the group for each failure, whose message came from the topic."""
    async with (
        Admin(ClientSettings(name_servers=name_server)) as admin,
        Producer("shop", ProducerSettings(name_servers=name_server)) as producer,
    ):
        await admin.create_topic(f"%DLQ%{group}", 1)
        for number, failure in enumerate(failures):
            properties = {"RETRY_TOPIC": topic, "FAILURE_TYPE": failure, "FAILURE_MESSAGE": f"no dish {number}"}
            await producer.send(Message(f"%DLQ%{group}", f"order {number}".encode(), properties=properties))


async def bury_damaged(broker: str, group: str) -> None:
    """Store a dead letter of the group at the broker: its body is marked as compressed, and is not."""
    header = SendMessageRequestHeaderV2(
        producer_group="shop",
        topic=f"%DLQ%{group}",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=COMPRESSED,
        born_timestamp=0,
        flag=0,
    )
    connection = await TcpTransport().connect(broker, timeout=30)
    answer = await connection.invoke(RequestCode.SEND_MESSAGE_V2, header, b"not compressed", timeout=30)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await connection.close()
