"""`spring.kafka.*` of a settings file, and what a real broker sees of it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streamkit import StreamApplication
from tests.peer.kafka import KafkaRequest, KafkaServer
from tests.peer.test_kafka_binder import PATIENCE, Inbox, eventually

pytestmark = [pytest.mark.slow]

SETTINGS = """
spring.application.name=shop
spring.cloud.stream.default-binder=kafka
spring.cloud.stream.output-bindings=out
spring.cloud.stream.bindings.out.destination=boot-orders
spring.cloud.stream.bindings.in.destination=boot-orders
spring.cloud.stream.bindings.in.group=boot-kitchen
spring.cloud.stream.bindings.in.consumer.batch-mode=true
spring.kafka.bootstrap-servers={address}
spring.kafka.client-id=till
spring.kafka.properties.request.timeout.ms=21000
spring.kafka.admin.client-id=till-topics
spring.kafka.consumer.auto-offset-reset=latest
spring.kafka.consumer.fetch-max-wait=70
spring.kafka.consumer.fetch-min-size=2B
spring.kafka.consumer.isolation-level=READ_COMMITTED
spring.kafka.consumer.max-poll-interval=2m
spring.kafka.consumer.max-poll-records=2
spring.kafka.consumer.heartbeat-interval=200ms
spring.kafka.consumer.properties.session.timeout.ms=11000
spring.kafka.producer.client-id=till-sender
spring.kafka.producer.acks=all
spring.kafka.producer.compression-type=gzip
spring.kafka.producer.properties.request.timeout.ms=22000
"""
GZIP = 1
"""The number of the compression in the attributes of a batch."""
ATTRIBUTES = slice(21, 23)
"""The place of the attributes in a batch of records."""


def test_clients_have_the_settings_of_spring_boot(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """Each kind of client has those of `spring.kafka`, and its own before them."""
    file = tmp_path / "application.properties"
    file.write_text(SETTINGS.format(address=kafka_server.address))

    async def main(requests: Callable[[], Sequence[KafkaRequest]]) -> None:
        inbox = Inbox()
        async with StreamApplication(config_location=file) as app:
            await app.bridge.asend("out", "before the group began")
        app = StreamApplication(config_location=file)

        @app.stream_listener("in")
        async def hear(texts: list[str]) -> None:
            inbox.add(texts)

        async with app:
            for number in range(5):
                await app.bridge.asend("out", str(number), {"scst_partition": 0})
            async with asyncio.timeout(PATIENCE):
                while sum(map(len, inbox.items)) < 5:
                    await inbox.wait(len(inbox.items) + 1)

            async def kinds() -> bool:
                return {"HEARTBEAT", "OFFSET_COMMIT"} <= {each.kind for each in requests()}

            await eventually(kinds, True)
        assert sorted(text for texts in inbox.items for text in texts) == list("01234")
        assert max(map(len, inbox.items)) <= 2

    with kafka_server.logged_requests() as requests:
        asyncio.run(main(requests))
        seen = requests()
    for kind, client, fields in (
        ("CREATE_TOPICS", "till-topics", {"timeoutMs": 21000}),
        ("PRODUCE", "till-sender", {"acks": -1, "timeoutMs": 22000}),
        ("FETCH", "till", {"maxWaitMs": 70, "minBytes": 2, "isolationLevel": 1}),
        ("JOIN_GROUP", "till", {"rebalanceTimeoutMs": 120_000, "sessionTimeoutMs": 11_000}),
        ("HEARTBEAT", "till", {}),
        ("OFFSET_COMMIT", "till", {}),
    ):
        # The fetches of consumers that are closed already may still be answered.
        found = [each for each in seen if each.kind == kind and each.client.startswith("till")]
        assert {each.client for each in found} == {client}, kind
        assert all(each.fields.items() >= fields.items() for each in found), (kind, found)
    stored = kafka_server.segment("boot-orders").read_bytes()
    assert int.from_bytes(stored[ATTRIBUTES]) & 7 == GZIP
