"""Kafka as the contract's system under test, in real time."""

import asyncio
from collections.abc import Mapping

from kafka import KafkaAdminClient

from binders.kafka.binder import CAPABILITIES
from streamkit.testing.contract import ContractEnvironment

PREFIX = "spring.cloud.stream.kafka"

# What the contract means where a case says nothing: Kafka's own defaults are one call per partition, no redelivery.
_DEFAULTS: Mapping[str, object] = {"ordered": False, "max_reconsume_times": -1}


class KafkaEnvironment(ContractEnvironment):
    """A running Kafka."""

    name = "Kafka"
    binder_type = "kafka"
    capabilities = CAPABILITIES
    redelivery_delays = (1, 2)
    delay_levels = (1, 1, 1, 2)
    patience = 60.0
    slack = 30.0
    suspend = 0.2

    def __init__(self, address: str) -> None:
        """Use the one at ``host:port``."""
        self._address = address

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the brokers' address, and short intervals for noticing members."""
        return {
            f"{PREFIX}.binder.brokers": self._address,
            f"{PREFIX}.binder.consumer-properties.heartbeat.interval.ms": "100",
            f"{PREFIX}.binder.consumer-properties.session.timeout.ms": "45000",
            f"{PREFIX}.default.consumer.poll-timeout": "1s",
            f"{PREFIX}.default.consumer.redelivery-delays": "1s 1s 1s 2s",
        }

    def consumer_properties(self, binding: str, portable: Mapping[str, object]) -> Mapping[str, str]:
        """Return the portable names, which are the binder's except for the start offset."""
        prefix = f"{PREFIX}.bindings.{binding}.consumer"
        wanted = {**_DEFAULTS, **portable}
        return {f"{prefix}.{_NAMES.get(name, name)}": _text(name, value) for name, value in wanted.items()}

    async def create_topic(self, name: str, partitions: int) -> None:
        """Create the topic."""
        await asyncio.to_thread(self._create_topic, name, partitions)

    def _create_topic(self, name: str, partitions: int) -> None:
        with KafkaAdminClient(bootstrap_servers=self._address) as admin:
            admin.create_topics({name: {"num_partitions": partitions}}, wait_for_metadata=True)


_NAMES = {"start": "start-offset"}
_UNITS = {"suspend": "s", "consume_timeout": "s"}


def _text(name: str, value: object) -> str:
    text = str(value)
    return (text.lower() if isinstance(value, bool) else text) + _UNITS.get(name, "")
