"""Producers and readers of the cluster that an admin administers."""

from typing import Any, Final

from rocket_client import Admin, ClientSettings, Producer, ProducerSettings, PullConsumer, PullConsumerSettings
from rocket_remoting.wire.topics import TOOLS_CONSUMER_GROUP

__all__ = ["TOOLS_GROUP", "producer_of", "reader_of"]

TOOLS_GROUP: Final = TOOLS_CONSUMER_GROUP
"""The group that reads for tools: every broker has it, and mqadmin reads as its member, too."""

_PRODUCER_GROUP: Final = "TOOLS_PRODUCER"


def producer_of(admin: Admin) -> Producer:
    """Return a producer for the admin's cluster, not started; names of topics are those that brokers know."""
    settings = ProducerSettings(**_settings(admin))
    return Producer(_PRODUCER_GROUP, settings, transport=admin.transport, clock=admin.clock)


def reader_of(admin: Admin) -> PullConsumer:
    """Return a consumer that reads any queue of the admin's cluster, not started; it commits no offsets by itself."""
    settings = PullConsumerSettings(**_settings(admin))
    return PullConsumer(TOOLS_GROUP, settings, transport=admin.transport, clock=admin.clock)


def _settings(admin: Admin) -> dict[str, Any]:
    # As for the admin, all names are those that brokers know.
    return {name: getattr(admin.settings, name) for name in ClientSettings.__struct_fields__ if name != "namespace"}
