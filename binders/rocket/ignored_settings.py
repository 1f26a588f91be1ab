"""The settings of consumers that have no effect on some of them, because they are for consumers of another kind."""

from collections.abc import Iterable, Mapping
from typing import Final

from binders.rocket.consumer_properties import ConsumeFromWhere, RocketConsumerProperties
from streamkit.binder.binder import ConsumerDestination

__all__ = ["settings_ignored_by_consumer"]

_OWN: Final = "rocketmq.consumer."
_LEVELS: Final = ("delay-level-when-next-consume", "push.delay-level-when-next-consume")
_SUSPENSIONS: Final = ("suspend-current-queue-time-millis", "push.suspend-current-queue-time-millis")


def settings_ignored_by_consumer(destination: ConsumerDestination, *, polled: bool) -> Mapping[str, str]:
    """Return the settings that a consumer ignores, each with the reason.

    Args:
        destination: The destination, with all settings.
        polled: Whether the application polls the consumer.
    """
    delivery = destination.delivery
    ignored = {"consumer.instance-count": "the members of a group share the queues, however many there are"}
    if not delivery.broadcast:
        ignored["consumer.instance-index"] = "only a broadcasting consumer keeps its offsets by its index"
    if polled:
        ignored |= _own(("push.consume-message-batch-max-size", "consume-max-span"), "the consumer is polled")
    else:
        ignored |= _own(("pull", "pull-timeout"), "the consumer is not polled")
    if not destination.properties.batch_mode:
        ignored |= _own(["push.consume-message-batch-max-size"], "consumer.batch-mode is false")
    if delivery.ordered:
        ignored |= _own([*_LEVELS, "consume-max-span"], "the consumer is ordered")
    else:
        ignored |= _own(_SUSPENSIONS, "the consumer is not ordered")
    if isinstance(destination.extended, RocketConsumerProperties):
        ignored |= _by_others(destination.extended)
    return ignored


def _by_others(extended: RocketConsumerProperties) -> Mapping[str, str]:
    """Return the settings that other settings of the same consumer override."""
    ignored: dict[str, str] = {}
    if extended.consume_from_where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        ignored |= _own(["consume-timestamp"], "consume-from-where is not CONSUME_FROM_TIMESTAMP")
    if extended.subscription is not None:
        ignored |= _own(("tags", "sql"), "subscription wins")
    elif extended.sql:
        ignored |= _own(["tags"], "sql wins")
    push = extended.push
    pairs = (
        ("orderly", push.orderly),
        ("suspend-current-queue-time-millis", push.suspend_current_queue_time_millis),
        ("delay-level-when-next-consume", push.delay_level_when_next_consume),
    )
    for key, newer in pairs:
        if newer is not None:
            ignored |= _own([key], f"push.{key} wins")
    return ignored


def _own(keys: Iterable[str], reason: str) -> dict[str, str]:
    return {_OWN + key: reason for key in keys}
