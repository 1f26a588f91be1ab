"""Requests 306 and 329: delete messages that are older than they are kept, now and not at ``deleteWhen``.

The entries of consume queues go with the files they lead to, so both requests do the same. As on Apache's
broker the answer says that the deletion has begun.
"""

import asyncio
import logging

from rocket_broker.settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore
from rocket_remoting.clock import Clock
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection

__all__ = ["CleaningProcessor"]

_log = logging.getLogger(__name__)

HOUR_MS = 3_600_000


class CleaningProcessor:
    """Deletes old files when people ask for it."""

    def __init__(self, *, settings: BrokerSettings, store: MessageStore, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._deleting: asyncio.Task[None] | None = None

    def delete_expired(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306) and DELETE_EXPIRED_COMMITLOG (329)."""
        if self._deleting is None or self._deleting.done():
            _log.info("%s has old messages deleted", connection.remote_address, extra=connection.log_peer)
            self._deleting = asyncio.ensure_future(self._delete())
        return RemotingCommand.response(command)

    async def stop(self) -> None:
        """Leave the rest to the next time."""
        if self._deleting is not None:
            self._deleting.cancel()
            await asyncio.gather(self._deleting, return_exceptions=True)

    async def _delete(self) -> None:
        try:
            await self._store.delete_before(
                self._clock.now_ms() - self._settings.file_reserved_time * HOUR_MS
            )
        except OSError as e:
            _log.error("old messages could not be deleted: %s", e)
