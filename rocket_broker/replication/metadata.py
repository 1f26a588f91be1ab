"""The slave's copy of its master's tables: topics, groups, consumer offsets, delay levels, timers and accounts.

As Apache's SlaveSynchronize (4.9.7), the slave asks for all of them every ten seconds. They are not part of the log, so
after a promotion up to ten seconds of consumers' progress are consumed again.

Offsets are taken over when the slave's log has reached the master's end at the time of their answer. A failed message
is stored again for its redelivery, or a delayed one in its topic, before the offset passes it: with the offset and
without that message, it would be lost after a promotion. So it is with the progress of the timers: what they have
delivered must be in the log.

The message of a topic that the slave does not know makes it ask at once. Until it has the answer, it has an entry of
its own for the topic: the master may be lost by then, and the message must be found after a promotion.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from rocket_broker.replication.account_copy import AccountCopy
from rocket_broker.replication.asking import ask
from rocket_broker.replication.master_address import MasterAddress
from rocket_broker.schedule.delay_service import DelayService
from rocket_broker.schedule.timer_checkpoint import TimerCheckpoint, TimerProgress
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import RemotingError, ResponseError

__all__ = ["SECONDS_BETWEEN_COPIES", "Metadata"]

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_COPIES = 10.0
RETRY_SECONDS = 1.0
ANSWER_SECONDS = 10.0
CATCH_UP_SECONDS = 5.0
"""Longest wait for the log before offsets are taken over; a slave that is farther behind tries again later."""


class Metadata:
    """Copies the tables of the master.

    Attributes:
        copies: How often all tables have been copied.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        master: MasterAddress,
        transport: Transport,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        delays: DelayService,
        timers: TimerCheckpoint | None,
        accounts: AccountCopy,
    ) -> None:
        self.copies = 0
        self._settings = settings
        self._master = master
        self._transport = transport
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._accounts = accounts
        self._is_failing = False
        self._wake = asyncio.Event()

    def messages_arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Make an entry for an unknown topic, and ask the master for its own; the store's arrival listener."""
        if topic not in self._topics:
            self._topics.create_for_copied(topic, queue_id)
            self._wake.set()

    async def run(self) -> None:
        """Copy the tables every `SECONDS_BETWEEN_COPIES` until cancelled."""
        while True:
            await self._master.known()
            self._wake.clear()
            try:
                await self._copy()
            except (OSError, RemotingError, ValueError, KeyError) as e:
                if not self._is_failing:  # a master that stays away is logged once
                    logger.warning("topics, groups and offsets of the master are not copied now: %s", e)
                self._is_failing = True
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._is_failing = False
                self.copies += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(SECONDS_BETWEEN_COPIES):
                        await self._wake.wait()

    async def _copy(self) -> None:
        timeout = self._settings.connect_timeout_millis / 1000
        connection = await self._transport.connect(
            self._master.clients, timeout=timeout, tls=self._settings.client_tls()
        )
        try:
            connection.sign_with(self._settings.credentials)
            # Topics and groups come first: there are no offsets in what does not exist.
            await self._topics.take_over(await ask(connection, RequestCode.GET_ALL_TOPIC_CONFIG))
            await self._groups.take_over(await ask(connection, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            offsets = await ask(connection, RequestCode.GET_ALL_CONSUMER_OFFSET)
            delays = await ask(connection, RequestCode.GET_ALL_DELAY_OFFSET)
            timers = await self._timer_progress(connection)
            if await self._is_copied(await ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO)):
                await self._offsets.take_over(offsets)
                self._delays.take_over(delays)
                if self._timers is not None and timers is not None:
                    await asyncio.to_thread(self._timers.write, timers)
            await self._accounts.copy(connection)
        finally:
            await connection.close()

    async def _timer_progress(self, connection: Connection) -> TimerProgress | None:
        """Return the progress of the master's timers, as a slave keeps it; None if it has no timers."""
        try:
            masters = TimerProgress.decode(await ask(connection, RequestCode.GET_TIMER_CHECK_POINT))
        except ResponseError:  # as brokers of 4.9
            return None
        # The slave itself has made no timers.
        return TimerProgress(moment=masters.moment, masters_queue_offset=masters.queue_offset)

    async def _is_copied(self, runtime_info: bytes) -> bool:
        """Return whether the log reaches the end of the master's, as its figures have it, within some seconds."""
        end = int(decode_body(runtime_info, KVTable).table["commitLogMaxOffset"])
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._store.max_commit_log_offset < end:  # noqa: ASYNC110 - looked at once in ten seconds
                    await asyncio.sleep(0.05)
        return self._store.max_commit_log_offset >= end
