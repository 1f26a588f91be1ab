"""Request 907: how far the slaves of this broker are."""

from rocket_broker.processors.broker_context import BrokerContext
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import HAConnectionRuntimeInfo, HARuntimeInfo, encode_body
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["ReplicationProcessor"]


class ReplicationProcessor:
    """Reports the replication to tools."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._slaves = context.slaves

    def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS (907): the slaves, and how far behind each is."""
        end, near = self._store.committed_end, self._settings.ha_slave_fallbehind_max
        slaves = [
            HAConnectionRuntimeInfo(
                addr=slave.address,
                slave_ack_offset=slave.reported,
                diff=end - slave.reported,
                in_sync=end - slave.reported < near,
                transferred_byte_in_second=slave.bytes_a_second,
                transfer_from_where=slave.sent,
            )
            for slave in (self._slaves.slaves if self._slaves is not None else ())
        ]
        info = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
        )
        return RemotingCommand.response(command, body=encode_body(info))
