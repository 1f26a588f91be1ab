"""The admin: all administrative requests in one object, the part of mqadmin that provisioning and tools need."""

from rocket_client.admin.brokers import BrokerAdminRequests
from rocket_client.admin.groups import GroupRequests
from rocket_client.admin.messages import MessageRequests
from rocket_client.admin.offsets import OffsetRequests

__all__ = ["Admin"]


class Admin(BrokerAdminRequests, GroupRequests, OffsetRequests, MessageRequests):
    """Sends administrative requests to name servers and brokers.

    As in mqadmin, all names are those that brokers know. The namespace of the settings is not applied; `Namespace.wrap`
    adds it.

    Every request raises a `ClientStateError` if the admin is not running, a `ResponseError` if a server refuses, and
    another `RemotingError` if a server cannot be reached or does not answer.

    Args:
        settings: Name servers and timeouts.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.
    """
