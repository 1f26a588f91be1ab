"""Orders in a Kafka topic, a group that has consumed one of them, and an application that uses both."""

import json
from pathlib import Path
from typing import Final

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from rocket_admin.commands.application_explorers import UsedSystems, systems_of_application

__all__ = ["LARGEST", "create_orders", "systems_of_application_on"]

LARGEST: Final = 6 * 1024 * 1024
"""Bytes of the largest record that the topic takes."""
_SETTINGS: Final = """
spring.cloud.stream.default-binder=kafka
spring.cloud.stream.kafka.binder.brokers={brokers}
spring.cloud.stream.bindings.cook-in-0.destination={topic}
spring.cloud.stream.bindings.cook-in-0.group=kitchen
"""


def create_orders(brokers: str, topic: str, group: str) -> None:
    """Create a topic with six orders and one record without a value, and a group that has consumed the first order.

    Args:
        brokers: The addresses of the brokers.
        topic: The topic, which does not exist yet.
        group: The group.
    """
    with KafkaAdminClient(bootstrap_servers=brokers) as admin:
        settings = {"num_partitions": 2, "configs": {"max.message.bytes": str(LARGEST)}}
        admin.create_topics({topic: settings}, wait_for_metadata=True)
    with KafkaProducer(bootstrap_servers=brokers) as producer:
        headers = [("contentType", b'"application/json"'), ("evil", b"<img src=x>\x00")]
        for number in range(6):
            body = json.dumps({"order": number, "cake": "<script>"}).encode()
            producer.send(topic, body, b"k%d" % number, partition=number % 2, headers=headers)
        producer.send(topic, None, b"gone", partition=0)
    first = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=brokers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([first])
        consumer.commit({first: OffsetAndMetadata(1, "", -1)})


def systems_of_application_on(brokers: str, directory: Path, topic: str) -> UsedSystems:
    """Return the systems of an application that consumes a topic; its settings are written into a directory."""
    (directory / "application.properties").write_text(_SETTINGS.format(brokers=brokers, topic=topic))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.delenv("NAMESRV_ADDR", raising=False)
        return systems_of_application()
