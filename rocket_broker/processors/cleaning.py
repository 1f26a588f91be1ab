"""Requests 306 and 329: delete expired files now instead of at the hour of ``deleteWhen``.

The rules are those of the daily deletion: a file of the commit log must be older than ``fileReservedTime``. As on
Apache's broker the answer is sent when the deletion begins.
"""

import asyncio
import logging

from rocket_broker.processors.broker_context import BrokerContext
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["CleaningProcessor"]

logger = logging.getLogger(__name__)


class CleaningProcessor:
    """Deletes expired files on request."""

    def __init__(self, context: BrokerContext) -> None:
        self._store = context.store
        self._deleting: asyncio.Task[None] | None = None

    def delete_expired(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG (329): delete the expired files of the commit log, at most deleteFileBatchMax."""
        if self._deleting is None or self._deleting.done():
            logger.info("%s asked to delete old messages", connection.remote_address, extra=connection.log_peer)
            self._deleting = asyncio.ensure_future(self._delete())
        return RemotingCommand.response(command)

    def clean_queues(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306): answer success only; queue entries are deleted with their messages."""
        return RemotingCommand.response(command)

    async def stop(self) -> None:
        """Cancel a deletion under way; the next deletion does the rest."""
        if self._deleting is not None:
            self._deleting.cancel()
            await asyncio.gather(self._deleting, return_exceptions=True)

    async def _delete(self) -> None:
        try:
            await self._store.delete_expired()
        except OSError as e:
            logger.error("could not delete old messages: %s", e)
