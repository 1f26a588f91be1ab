"""Bodies about masters and their slaves."""

import msgspec

from rocket_remoting.wire.bodies.json_body import Body


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """A slave that follows a master.

    Attributes:
        addr: The slave's address, ``host:port``.
        slave_ack_offset: The slave has the master's log up to here.
        diff: Bytes that the slave is behind.
        in_sync: Whether it is so near that SYNC_MASTER waits for it.
        transferred_byte_in_second: Bytes that were sent to the slave in the last second.
        transfer_from_where: The offset from which on the log is sent next.
    """

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transferred_byte_in_second: int
    transfer_from_where: int


class HAClientRuntimeInfo(Body, kw_only=True):
    """What a slave has copied of its master's log.

    Attributes:
        master_addr: The master's address for slaves; empty while the slave is not connected.
        transferred_byte_in_second: Bytes that were copied in the last second.
        max_offset: The end of the slave's log.
        last_read_timestamp: The time of the last bytes from the master.
        last_write_timestamp: The time of the last report to the master.
        master_flush_offset: The master's log is on its disk up to here; not known to slaves of 4.9.
        is_activated: Whether the slave is connected.
    """

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    is_activated: bool = False


class HARuntimeInfo(Body, kw_only=True):
    """The replication of a broker.

    Attributes:
        master: Whether the broker is a master.
        master_commit_log_max_offset: The end of the master's log.
        in_sync_slave_nums: Number of slaves in sync.
        ha_connection_info: The slaves.
        ha_client_runtime_info: What a slave has copied.
    """

    master: bool
    master_commit_log_max_offset: int
    in_sync_slave_nums: int
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
