"""The Kafka binder fulfils the contract on Apache Kafka."""

import pytest

from streamkit.testing.contract import BinderContract
from tests.contract.kafka_environment import KafkaEnvironment
from tests.peer.kafka import KafkaServer


@pytest.mark.slow
class TestKafka(BinderContract):
    """Every case that does not take hours."""

    @pytest.fixture
    def environment(self, kafka_server: KafkaServer) -> KafkaEnvironment:
        return KafkaEnvironment(kafka_server.address)
