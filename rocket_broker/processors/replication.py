"""Request 907: how far slaves are."""

from typing import TYPE_CHECKING

from rocket_broker.processors.broker_context import BrokerContext
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo, encode_body
from rocket_remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocket_broker.replication.slave import Slave

__all__ = ["ReplicationProcessor"]


class ReplicationProcessor:
    """Reports the replication to tools."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._slaves = context.slaves
        self._slave = context.slave

    def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS (907): of a master the slaves, and how far behind each is; of a slave what it has."""
        info = self._of_slave(self._slave) if self._slave is not None else self._of_master()
        return RemotingCommand.response(command, body=encode_body(info))

    def _of_slave(self, slave: "Slave") -> HARuntimeInfo:
        copied = HAClientRuntimeInfo(
            master_addr=slave.connected_to,
            transferred_byte_in_second=slave.copied.last_second,
            max_offset=self._store.max_commit_log_offset,
            last_read_timestamp=slave.read_ms,
            last_write_timestamp=slave.reported_ms,
            is_activated=bool(slave.connected_to),
        )
        return HARuntimeInfo(
            master=False, master_commit_log_max_offset=0, in_sync_slave_nums=0, ha_client_runtime_info=copied
        )

    def _of_master(self) -> HARuntimeInfo:
        end, near = self._store.committed_end, self._settings.ha_slave_fallbehind_max
        slaves = [
            HAConnectionRuntimeInfo(
                addr=slave.address,
                slave_ack_offset=slave.reported,
                diff=end - slave.reported,
                in_sync=end - slave.reported < near,
                transferred_byte_in_second=slave.written.last_second,
                transfer_from_where=slave.sent,
            )
            for slave in (self._slaves.slaves if self._slaves is not None else ())
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
        )
