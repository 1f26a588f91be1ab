"""Requests 306 and 329 delete what has expired, now and not at the hour of ``deleteWhen``.

Nothing goes that a look at that hour would have left: a file of the commit log must be older than ``fileReservedTime``.
As on Apache's broker the answer says that the deletion has begun.
"""

import asyncio
import logging

from rocket_broker.store.message_store import MessageStore
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["CleaningProcessor"]

logger = logging.getLogger(__name__)


class CleaningProcessor:
    """Deletes expired files at a request."""

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store
        self._deleting: asyncio.Task[None] | None = None

    def delete_expired(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG (329): delete the expired files of the commit log, at most deleteFileBatchMax."""
        if self._deleting is None or self._deleting.done():
            logger.info("%s has old messages deleted", connection.remote_address, extra=connection.log_peer)
            self._deleting = asyncio.ensure_future(self._delete())
        return RemotingCommand.response(command)

    def clean_queues(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306): answer success, since entries of queues go with their messages."""
        return RemotingCommand.response(command)

    async def stop(self) -> None:
        """Leave the rest to the next time."""
        if self._deleting is not None:
            self._deleting.cancel()
            await asyncio.gather(self._deleting, return_exceptions=True)

    async def _delete(self) -> None:
        try:
            await self._store.delete_expired()
        except OSError as e:
            logger.error("old messages could not be deleted: %s", e)
