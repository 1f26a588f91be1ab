"""The terms of a messaging system that a binder in memory keeps when it stands in for a binder of that system."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from streamkit.binder.capabilities import Capability
from streamkit.binder.delivery import DEFAULT_DELAY_LEVELS, ConsumerModel, ProducerModel

__all__ = ["StandIn"]


class StandIn(msgspec.Struct, frozen=True):
    """What a binder in memory needs to know of the binder that it stands in for.

    The settings of single bindings are in the models: :class:`~streamkit.binder.delivery.ExtendedConsumerProperties`
    and :class:`~streamkit.binder.delivery.ExtendedProducerProperties` return their portable meaning.

    Attributes:
        consumer_properties: The model of the extended consumer settings.
        producer_properties: The model of the extended producer settings.
        capabilities: The capabilities that some system of the type has; others are refused in memory, too.
        delay_levels: The table of delay levels; level 1 is the first entry.
        producer_group: The producer group of bindings whose settings name none; None for their destination.
    """

    consumer_properties: ConsumerModel
    producer_properties: ProducerModel
    capabilities: frozenset[Capability] = frozenset(Capability)
    delay_levels: Sequence[timedelta] = DEFAULT_DELAY_LEVELS
    producer_group: str | None = None
