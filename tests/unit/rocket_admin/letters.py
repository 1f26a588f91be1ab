"""Puts dead letters into a cluster, as a client writes them whose listener has failed."""

from collections.abc import Sequence

from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message


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
