"""Namespaces: ``ns%topic`` and ``ns%group`` are ordinary names, also in retry and dead letter topics."""

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.raw_client import RawClient, pull_header, send_header, with_broker


def test_group_in_a_namespace_has_its_own_retry_and_dead_letter_topics() -> None:
    """``%RETRY%ns%group`` and ``%DLQ%ns%group``, distinct from those without the namespace."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(consumers={"ns%g": {"ns%orders": "*", "%RETRY%ns%g": "*"}})
        await client.send("ns%orders", b"inside")
        await client.send("orders", b"outside")
        (message,) = await client.messages("ns%orders")
        assert message.body == b"inside"
        assert (await client.send_back(message, "ns%g", delay_level=-1)).code == ResponseCode.SUCCESS
        (dead,) = await client.messages("%DLQ%ns%g")
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"inside", "ns%orders")
        assert "%RETRY%ns%g" in embedded.broker.topics
        assert "%RETRY%g" not in embedded.broker.topics
        await client.commit(1, group="ns%g", topic="ns%orders")
        assert await client.committed(group="ns%g", topic="ns%orders") == 1
        assert await client.committed() is None

    with_broker(scene)


def test_fields_of_newer_clients_are_ignored() -> None:
    """5.x sends broker name and namespace with every request."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        newer = {"bname": "broker-a", "nsd": "true", "ns": "space", "oway": "false", "lo": "true", "x": "y"}
        sent = await client.ask(Code.SEND_MESSAGE_V2, send_header("orders"), b"hello", ext_fields=newer)
        assert sent.code == ResponseCode.SUCCESS
        pulled = await client.ask(Code.LITE_PULL_MESSAGE, pull_header("orders", 0), ext_fields=newer)
        assert pulled.code == ResponseCode.SUCCESS

    with_broker(scene)
