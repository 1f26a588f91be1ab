"""The relay of one topic: it sends the rows of an outbox through an output binding, while that is bound.

::

    round      claim lanes and read their rows     one transaction
               send the rows                       at once; those of one key one after the other
               record the answers, give lanes up   one transaction, for lanes that still have the claim's token

The relay starts no send after half of its lease, by the loop's clock, which goes on while a process is stopped. Whoever
takes a lane over therefore repeats at most the sends that were under way. A relay that is killed between sends and
record leaves at most one round to be sent again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from sqlalchemy import Connection

from streamkit.binder.binder import Health, HealthStatus
from streamkit.binder.binding import OutputBinding
from streamkit.clock import SystemClock, current_clock
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError
from streamkit.patterns.outbox.claims import Claim, ClaimedRow, add_lanes, claim_rows, database_time, seconds_until_due
from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.listening import Listening
from streamkit.patterns.outbox.message_row import message_of
from streamkit.patterns.outbox.results import Results, Retries
from streamkit.patterns.outbox.settings import OutboxProperties
from streamkit.patterns.outbox.upkeep import Upkeep

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["Relay"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ROUNDS: Final = 10
"""The number of rounds with messages in a row after which a relay does its other work, too."""
_QUIET_POLL: Final = 60
"""The pause of a relay that commits notify, as a multiple of `poll-interval`."""
_MEMORY_POLL: Final = 3600
"""The same for a database in memory, which only this process can change: tests let hours pass."""


class Relay:
    """Sends the rows of one topic; started and stopped with the output binding.

    Attributes:
        topic: The output binding's name.
    """

    def __init__(
        self, app: "StreamApplication", topic: str, database: Database, properties: OutboxProperties, upkeep: Upkeep
    ) -> None:
        self.topic = topic
        self._app = app
        self._database = database
        self._properties = properties
        self._retries = Retries(
            _milliseconds(properties.backoff.total_seconds()),
            _milliseconds(properties.max_backoff.total_seconds()),
            properties.max_send_times,
        )
        self._upkeep = upkeep
        self._work: asyncio.Task[None] | None = None
        self._listening: Listening | None = None
        self._woken, self._stopped = asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failures = 0
        self._trouble: str | None = None

    async def start(self) -> None:
        """Begin to relay.

        Raises:
            ConfigurationError: A send of the binding does not tell whether the message was stored.
        """
        self._refuse_unconfirmed_sends()
        self._loop = asyncio.get_running_loop()
        self._woken, self._stopped = asyncio.Event(), asyncio.Event()
        self._work = self._loop.create_task(self._run(), name=f"relay the outbox of {self.topic}")

    def _refuse_unconfirmed_sends(self) -> None:
        binding = self._app.binding(self.topic)
        assert isinstance(binding, OutputBinding)
        extended = binding.destination.extended
        because: Sequence[str] = extended.unconfirmed_by()
        if binding.destination.properties.error_channel_enabled:
            because = ["error-channel-enabled"]
        elif extended.transaction() is not None:
            because = ["transactional"]
        if because:
            raise ConfigurationError(
                f"binding {self.topic!r} of an outbox must report to the sender whether a message was stored, and its "
                f"setting producer.{because[0]} prevents that: remove the setting"
            )

    async def stop(self, timeout: float) -> None:
        """Finish the round under way within `timeout` seconds; after that cancel it."""
        self._stopped.set()
        self._woken.set()
        work, self._work = self._work, None
        if work is None:
            return
        await asyncio.wait([work], timeout=max(timeout, 0.0))
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await self._database.close_memory()

    def wake(self) -> None:
        """Look for rows now; callable from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._woken.set)

    def health(self) -> Health:
        """Return whether the last round worked."""
        if self._trouble is None:
            return Health(HealthStatus.UP)
        return Health(HealthStatus.DOWN, {"error": self._trouble})

    async def _run(self) -> None:
        async with Listening.on(self._database, self.topic, self._woken.set, self._properties) as self._listening:
            is_ready, is_more, rounds = False, False, 0
            while not self._stopped.is_set():
                self._woken.clear()
                try:
                    if not is_ready:
                        await self._database.run(lambda connection: add_lanes(connection, self.topic))
                        is_ready = True
                    rounds = rounds + 1 if await self._round() else 0
                    if rounds % _ROUNDS == 0:
                        is_more = await self._upkeep.run(await self._at_database(lambda _, now: now))
                    if rounds or is_more:
                        self._failures, self._trouble = 0, None
                        continue
                    wait, seconds = self._woken, await self._idle_time()
                    self._failures, self._trouble = 0, None
                except Exception as error:  # of the database's driver, of the binder: both come back
                    wait, seconds = self._stopped, self._after_failure(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await wait.wait()

    def _after_failure(self, error: Exception) -> float:
        """Note the failure and return the seconds to wait."""
        self._failures += 1
        self._trouble = f"{type(error).__name__}: {error}"
        pause = self._retries.pause(self._failures) / 1000
        logger.warning(
            "The rows of outbox %r cannot be sent, which is tried again in %g s: %s", self.topic, pause, self._trouble
        )
        logger.debug("The error of the outbox of %r", self.topic, exc_info=error)
        return pause

    async def _idle_time(self) -> float:
        """Return the seconds to wait for a wake-up."""
        poll = self._properties.poll_interval.total_seconds()
        wait = await self._at_database(lambda connection, now: seconds_until_due(connection, self.topic, now))
        if wait is not None and wait <= 0:
            return poll  # another relay has these rows, or had them when it was killed
        if self._database.is_in_memory:
            poll *= _MEMORY_POLL
        elif self._listening is not None and self._listening.is_active:
            poll *= _QUIET_POLL
        return min(each for each in (poll, wait, self._upkeep.pause) if each is not None)

    async def _at_database(self, work: Callable[[Connection, int], T]) -> T:
        """Call `work` in a transaction with its time: of the database's server, which all relays share.

        In tests, and where the database is a file, it is the time of the application.
        """
        clock = current_clock()

        def with_time(connection: Connection) -> T:
            now = database_time(connection) if isinstance(clock, SystemClock) else None
            return work(connection, clock.now_ms() if now is None else now)

        return await self._database.run(with_time)

    async def _round(self) -> bool:
        """Claim rows, send them and record the answers; return whether there were any.

        Raises:
            BinderError: The system accepts no messages at present.
        """
        loop, lease = asyncio.get_running_loop(), self._properties.lease.total_seconds()
        begun, token, topic = loop.time(), str(uuid4()), self.topic
        limit, milliseconds = self._properties.batch_size, _milliseconds(lease)
        claim: Claim = await self._at_database(
            lambda connection, now: claim_rows(connection, topic, token, now=now, lease=milliseconds, limit=limit)
        )
        if not claim.rows:
            return False
        results, trouble = await self._send(claim.rows, begun + lease / 2)
        lost = await self._at_database(
            lambda connection, now: results.record(connection, topic, token, now, self._retries)
        )
        if lost:
            logger.warning(
                "The outbox of %r was claimed by another relay meanwhile; %d message(s) may be sent twice: %s",
                topic,
                len(lost),
                ", ".join(row.msgid for row in lost[:10]),
            )
        if trouble is not None:
            raise trouble
        return True

    async def _send(self, rows: Sequence[ClaimedRow], deadline: float) -> tuple[Results, BinderError | None]:
        """Send rows; return their results, and an error if the system cannot be reached, whatever the message."""
        chains: dict[object, list[ClaimedRow]] = {}
        for row in rows:
            chains.setdefault(row.id if row.message_key is None else row.message_key, []).append(row)
        results, errors = Results(), list[tuple[ClaimedRow, BinderError]]()
        await asyncio.gather(*(self._send_in_order(chain, deadline, results, errors) for chain in chains.values()))
        if not errors:
            return results, None
        unavailable = (error for _, error in errors if isinstance(error, BinderUnavailable))
        away: BinderError | None = next(unavailable, None)
        if away is None and not results.sent and not await self._is_system_up():
            away = errors[0][1]
        if away is None:
            results.refused += [(row, str(error)) for row, error in errors]
        return results, away

    async def _is_system_up(self) -> bool:
        return (await self._app.binding(self.topic).binder.binder.health()).status is HealthStatus.UP

    async def _send_in_order(
        self,
        chain: Sequence[ClaimedRow],
        deadline: float,
        results: Results,
        errors: list[tuple[ClaimedRow, BinderError]],
    ) -> None:
        """Send the rows of one key until one fails, or time is over."""
        channel, loop = self._app.channel(self.topic), asyncio.get_running_loop()
        for row in chain:
            if loop.time() > deadline or self._stopped.is_set():
                return
            try:
                is_accepted = await channel.asend(message_of(row))
            except BinderError as error:
                errors.append((row, error))
                return
            except Exception as error:  # of the message itself, or of an interceptor
                results.refused.append((row, f"{type(error).__name__}: {error}"))
                return
            if not is_accepted:
                results.refused.append((row, "an interceptor stopped the message"))
                return
            results.sent.append(row)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
