"""`streamkit doctor` in the directory of an application on Kafka."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from rocket_admin.commands.doctor import doctor
from tests.peer.kafka import KafkaServer

pytestmark = [pytest.mark.slow]

SETTINGS = """
spring.cloud.stream.default-binder=kafka
spring.cloud.stream.kafka.binder.brokers={brokers}
spring.cloud.stream.kafka.binder.auto-create-topics=false
spring.cloud.stream.bindings.cook-in-0.destination=doctor-orders
spring.cloud.stream.bindings.cook-in-0.group=doctor-kitchen
spring.cloud.stream.bindings.cook-in-0.consumer.instance-count=3
spring.cloud.stream.kafka.bindings.cook-in-0.consumer.enable-dlq=true
spring.cloud.stream.bindings.ask-out-0.destination=doctor-orders
spring.cloud.stream.bindings.ask-out-0.producer.partition-count=4
spring.cloud.stream.kafka.bindings.ask-out-0.producer.topic.properties.retention.ms=5000
spring.cloud.stream.bindings.bill-out-0.destination=doctor-bills
"""


def test_doctor_names_what_is_wrong_on_kafka(
    kafka_server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics and groups are as before: nothing is created, and no group is joined."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    brokers = kafka_server.address
    (tmp_path / "application.properties").write_text(SETTINGS.format(brokers=brokers))
    with KafkaAdminClient(bootstrap_servers=brokers) as admin:
        admin.create_topics({"doctor-orders": {"num_partitions": 2}}, wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=brokers) as producer:
            for number in range(4):
                producer.send("doctor-orders", b"soup", partition=number % 2)
        first = TopicPartition("doctor-orders", 0)
        with KafkaConsumer(bootstrap_servers=brokers, group_id="doctor-kitchen", enable_auto_commit=False) as consumer:
            consumer.assign([first])
            consumer.commit({first: OffsetAndMetadata(1, "", -1)})
        topics = set(admin.list_topics())
        done = CliRunner().invoke(doctor, ["--for", "0.1", "--answer-within", "60", "--json"])
        assert set(admin.list_topics()) == topics
        assert admin.describe_groups(["doctor-kitchen"])["doctor-kitchen"]["members"] == []
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 2, done.output
    told = {(each["severity"], each["check"], *each["about"]) for each in findings}
    assert told >= {
        ("ok", "brokers", brokers),
        ("ok", "cluster"),
        ("error", "bindings", "bill-out-0", "doctor-bills"),
        ("error", "bindings", "cook-in-0", "error.doctor-orders.doctor-kitchen"),
        ("error", "bindings", "ask-out-0", "doctor-orders"),
        ("warning", "bindings", "ask-out-0", "doctor-orders"),
        ("warning", "bindings", "cook-in-0", "doctor-orders"),
        ("warning", "lag", "doctor-kitchen"),
    }, done.output
    texts = [each["found"] for each in findings]
    assert "group doctor-kitchen has no members, and 1 message(s) to consume" in texts
