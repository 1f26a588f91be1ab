"""The settings of consumers that have no effect on some of them, because they are for consumers of another kind."""

from collections.abc import Iterable, Mapping
from typing import Final

from binders.kafka.properties import KafkaConsumerProperties
from streamkit.binder.binder import ConsumerDestination

__all__ = ["settings_ignored_by_consumer"]

_OWN: Final = "kafka.consumer."


def settings_ignored_by_consumer(
    destination: ConsumerDestination, extended: KafkaConsumerProperties, *, polled: bool, has_letters: bool
) -> Mapping[str, str]:
    """Return the settings that a consumer ignores, each with the reason.

    Args:
        destination: The destination, with all settings.
        extended: The Kafka settings of the consumer.
        polled: Whether the application polls the consumer.
        has_letters: Whether rejected messages are kept in a dead-letter topic.
    """
    ignored: dict[str, str] = {}
    if extended.auto_rebalance_enabled:
        ignored["consumer.instance-index"] = "auto-rebalance-enabled=true: Kafka assigns the partitions"
    if extended.ordered:
        ignored |= _own(("redelivery-level", "redelivery-delays"), "the consumer is ordered")
    else:
        ignored |= _own(["suspend"], "the consumer is not ordered")
    if not polled:
        ignored |= _own(["poll-timeout"], "the consumer is not polled")
    if not destination.properties.batch_mode:
        ignored |= _own(["batch-size"], "consumer.batch-mode is false")
    if not has_letters:
        ignored |= _own(
            ("dlq-name", "dlq-partitions", "dlq-producer-properties"), "the binding has no dead-letter topic"
        )
    return ignored


def _own(keys: Iterable[str], reason: str) -> dict[str, str]:
    return {_OWN + key: reason for key in keys}
