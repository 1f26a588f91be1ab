"""Properties that a broker adds to each message of a producer: they say where the message came from."""

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.wire.properties import PROPERTY_CLUSTER, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

__all__ = ["ORIGIN_PROPERTIES", "origin_properties"]

ORIGIN_PROPERTIES = frozenset({PROPERTY_CLUSTER, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH})


def origin_properties(settings: BrokerSettings) -> dict[str, str]:
    """Return the broker's cluster and region, and whether the message's consumers must not write traces.

    Apache's brokers store the region from 5.0 on, and consumers of 5.3 write no trace of a message without it. They
    read TRACE_ON, which Apache's brokers always store, only to find ``false``, so it is not stored otherwise.
    """
    properties = {PROPERTY_CLUSTER: settings.broker_cluster_name, PROPERTY_MSG_REGION: settings.region_id}
    if not settings.trace_on:
        properties[PROPERTY_TRACE_SWITCH] = "false"
    return properties
