"""The part that a broker takes in replication, in the words of Apache's ``brokerRole``."""

import enum

__all__ = ["BrokerRole"]


class BrokerRole(enum.Enum):
    """Master or slave, and the moment at which a master's sender gets its answer."""

    ASYNC_MASTER = "as soon as the master has the message"
    SYNC_MASTER = "when a slave has the message as well"
    SLAVE = "never: a slave copies the messages of its master"
