"""The keeper of one output binding: it keeps what cannot be sent, and sends it when the messaging system is back.

::

    send ─┬─ a message of its key is kept ──────────▶ keep behind it; if that fails, the send fails
          ├─ the system is away, the rule allows ──▶ keep; if that fails, try to send
          └─ else: send ── BinderUnavailable ──────▶ keep if the rule allows, else the send fails as without a store

    kept ─▶ rounds, after `retry-interval`, doubled up to `max-retry-interval` while nothing gets through
              sent                        removed from the store
              BinderUnavailable           stays, and what is behind it under its key
              another error, `max-age`    given up: the error channel, and the signal `send_failed`
"""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import Final

from streamkit.binder.binder import Health, HealthStatus, ProducerBinding
from streamkit.binder.keeping import KeptOutput, MessageKeeper, MessageKept, UnboundProducer
from streamkit.clock import Clock
from streamkit.config.durations import format_duration
from streamkit.errors import BinderError, BinderUnavailable
from streamkit.events import message_sent, notify
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.message import NO_PAYLOAD, Message
from streamkit.patterns.local_store.kept_message import KeptMessage, decoded, encoded_headers, order_key, size_of
from streamkit.patterns.local_store.local_store import LocalStore

__all__ = ["KeeperLimits", "LocalKeeper"]

logger = logging.getLogger(__name__)

_CHUNK: Final = 50
"""The number of kept messages that are sent and then removed together: up to this many may be sent twice if the process
is killed."""
_FAILURES: Final = 3
"""The number of failed messages in a row after which a round ends."""

Rule = Callable[[Message[bytes]], bool]


@dataclass(frozen=True, slots=True)
class KeeperLimits:
    """The limits of a keeper.

    Attributes:
        max_count: The most messages in the store, of all bindings.
        max_size: Their most bytes.
        max_age: How long a message is kept.
        rate: The most kept messages that are sent per second.
        retry_interval: The pause before the first round, in seconds.
        max_retry_interval: The longest pause between two rounds, in seconds.
    """

    max_count: int
    max_size: int
    max_age: timedelta
    rate: int
    retry_interval: float
    max_retry_interval: float


class LocalKeeper(MessageKeeper):
    """Keeps the messages of one output binding in a local store."""

    def __init__(
        self,
        application: object,
        output: KeptOutput,
        open_store: Callable[[], LocalStore],
        *,
        rule: Rule,
        limits: KeeperLimits,
        clock: Clock,
    ) -> None:
        """Make a keeper; the store is opened when the binding is bound, or has its first message.

        Args:
            application: The application, for events.
            output: The output binding.
            open_store: Returns the application's store.
            rule: Returns whether a message may be kept.
            limits: The limits.
            clock: Wall-clock time.
        """
        self._application = application
        self._output = output
        self._open_store = open_store
        self._rule = rule
        self._limits = limits
        self._clock = clock
        self._store: LocalStore | None = None
        self._producer: ProducerBinding | None = None
        # Invariant: in the order of their numbers.
        self._kept: dict[int, KeptMessage] = {}
        # How many messages of each key are kept or being written.
        self._keys: Counter[str] = Counter()
        self.is_away = False
        self._is_full = False
        self._work = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    # Sending

    def producer(self, producer: ProducerBinding) -> ProducerBinding:
        """Return a producer that sends through ``producer``, or keeps a message and raises `MessageKept`.

        Raises:
            ConfigurationError: The store cannot be opened.
        """
        self._opened()
        if not isinstance(producer, UnboundProducer):
            self._producer = producer
        return _KeepingProducer(self, producer)

    def _opened(self) -> LocalStore:
        if self._store is None:
            self._store = self._open_store()
            for message in self._store.kept(self._output.binding):
                self._kept[message.number] = message
                if message.key is not None:
                    self._keys[message.key] += 1
        return self._store

    def is_behind(self, message: Message[bytes]) -> bool:
        """Return whether a message of the same key is kept."""
        key = order_key(message)
        return key is not None and key in self._keys

    def may_keep(self, message: Message[bytes]) -> bool:
        """Return whether the rule allows to keep a message; a rule that fails does not."""
        try:
            return self._rule(message)
        except Exception as error:  # of the user's function or expression
            logger.warning("The rule of binding %r failed: %s", self._output.binding, kind_and_text(error))
            return False

    async def keep(self, message: Message[bytes], reason: BinderError) -> bool:
        """Keep a message that could not be sent; return False if it may not or cannot be kept."""
        if not isinstance(reason, BinderUnavailable) or not self.may_keep(message):
            return False
        store = self._opened()
        try:
            headers = encoded_headers(message.headers)
        except (TypeError, ValueError, OverflowError) as error:
            logger.warning("Binding %r cannot keep message %s: %s", self._output.binding, message.headers.id, error)
            return False
        size = size_of(message.payload, headers)
        if store.count >= self._limits.max_count or store.size + size > self._limits.max_size:
            if not self._is_full:
                logger.error("The local store is full: binding %r keeps no more messages", self._output.binding)
            self._is_full = True
            return False
        self._is_full = False
        key = order_key(message)
        kept = KeptMessage(0, key, self._clock.now_ms(), size)
        payload = None if message.payload is NO_PAYLOAD else message.payload
        # A task of its own: a sender that is cancelled meanwhile must not leave a message that nobody knows.
        return await asyncio.shield(asyncio.create_task(self._add(store, kept, headers, payload)))

    async def _add(self, store: LocalStore, kept: KeptMessage, headers: bytes, payload: bytes | None) -> bool:
        if kept.key is not None:
            self._keys[kept.key] += 1
        try:
            kept.number = await store.add((self._output.binding, kept.key, kept.kept_ms, headers, payload))
        except Exception as error:  # of the file, of a value that it cannot hold, or of a store that is closed
            self._forget_key(kept)
            logger.error(
                "The local store cannot keep a message of binding %r: %s", self._output.binding, kind_and_text(error)
            )
            return False
        self._kept[kept.number] = kept
        self._work.set()
        return True

    def _forget_key(self, message: KeptMessage) -> None:
        if message.key is not None:
            self._keys[message.key] -= 1
            if not self._keys[message.key]:
                del self._keys[message.key]

    # Sending again

    async def start(self) -> None:
        """Begin to send what is kept."""
        if self._kept:
            self._work.set()
        self._sender = asyncio.create_task(self._send_kept(), name=f"send what {self._output.binding!r} has kept")

    async def stop(self, timeout: float) -> None:
        """Stop sending within ``timeout`` seconds; what is kept stays kept."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait([sender], timeout=timeout)
        self.is_away = False

    def health(self) -> Health:
        """Return how many messages are kept."""
        return Health(HealthStatus.UP, {"kept": str(len(self._kept))})

    async def _send_kept(self) -> None:
        limits = self._limits
        pause = limits.retry_interval
        while True:
            if not self._kept:
                self.is_away = False
                self._work.clear()
                await self._work.wait()
                pause = limits.retry_interval
            await asyncio.sleep(pause)
            try:
                progressed = await self._round()
            except Exception as error:  # of the file or the producer: what is kept stays kept, and is tried again
                logger.error(
                    "Binding %r cannot send what the local store keeps, and tries again: %s",
                    self._output.binding,
                    kind_and_text(error),
                )
                progressed = False
            pause = limits.retry_interval if progressed else min(2 * pause, limits.max_retry_interval)

    async def _round(self) -> bool:
        """Try to send each kept message in its order; return whether one was sent or given up."""
        failed: set[str | None] = set()
        failures = 0
        progressed = False
        waiting = list(self._kept.values())
        while waiting and failures < _FAILURES:
            chunk = [each for each in waiting[:_CHUNK] if each.key is None or each.key not in failed]
            waiting = waiting[_CHUNK:]
            while chunk and failures < _FAILURES:
                began = asyncio.get_running_loop().time()
                sent, error = await self._send_chunk(chunk)
                if sent:
                    progressed, failures, self.is_away = True, 0, False
                if error is None:
                    await self._keep_rate(began, len(sent))
                    break
                culprit = chunk[len(sent)]
                rest = chunk[len(sent) + 1 :]
                if isinstance(error, BinderUnavailable):
                    failures += 1
                    failed.add(culprit.key)
                    chunk = [each for each in rest if each.key is None or each.key != culprit.key]
                else:
                    progressed = True
                    await self._give_up(culprit, error)
                    chunk = rest
        if failures:
            self.is_away = not progressed or failures >= _FAILURES
        return progressed

    async def _keep_rate(self, began: float, count: int) -> None:
        wait = began + count / self._limits.rate - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _send_chunk(self, chunk: Sequence[KeptMessage]) -> tuple[Sequence[KeptMessage], Exception | None]:
        """Send messages, and remove those that were sent; return these, and the error of the one behind them."""
        producer, store = self._producer, self._opened()
        assert producer is not None, "the keeper is started after the binding has its producer"
        oldest = self._clock.now_ms() - self._limits.max_age // timedelta(milliseconds=1)
        fresh = list(takewhile(lambda each: each.kept_ms >= oldest, chunk))
        error: Exception | None = None
        if len(fresh) < len(chunk):
            age = format_duration(self._limits.max_age)
            error = BinderError(f"a message of binding {self._output.binding!r} was kept longer than {age}")
        now_ms = self._clock.now_ms()
        messages: list[Message[bytes]] = []
        for each, (headers, payload) in zip(fresh, await store.read(fresh), strict=True):
            try:
                messages.append(decoded(payload, headers, timedelta(milliseconds=max(0, now_ms - each.kept_ms))))
            except ValueError as damage:
                error = BinderError(f"the headers of a kept message of {self._output.binding!r} are damaged: {damage}")
                break
        # A stop may cancel this task in the middle: what is sent is removed all the same.
        sending = asyncio.create_task(self._send_all(producer, store, chunk, messages))
        sent, failure = await _finished(sending)
        return sent, failure or error

    async def _send_all(
        self,
        producer: ProducerBinding,
        store: LocalStore,
        chunk: Sequence[KeptMessage],
        messages: Sequence[Message[bytes]],
    ) -> tuple[Sequence[KeptMessage], Exception | None]:
        outcomes = await producer.send_all(messages) if messages else []
        failure = next((outcome for outcome in outcomes if outcome is not None), None)
        sent = [each for each, outcome in zip(chunk, outcomes, strict=False) if outcome is None]
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is None and message_sent.receivers:
                notify(message_sent, self._application, binding=self._output.binding, message=message)
        await self._remove(store, sent)
        return sent, failure

    async def _remove(self, store: LocalStore, messages: Sequence[KeptMessage]) -> None:
        if not messages:
            return
        try:
            await store.remove(messages)
        except sqlite3.Error as error:
            logger.error("Messages that were sent stay in the local store, and are sent again: %s", error)
        for each in messages:
            del self._kept[each.number]
            self._forget_key(each)

    async def _give_up(self, kept: KeptMessage, error: Exception) -> None:
        """Report a message that will not be sent, and forget it."""
        store = self._opened()
        [(headers, payload)] = await store.read([kept])
        try:
            message = decoded(payload, headers, timedelta())
        except ValueError:  # the reason to give it up
            message = Message(payload or b"")
        reason = error if isinstance(error, BinderError) else BinderError(kind_and_text(error))
        reason.add_note("The message was kept in the local store, and is given up.")
        await self._output.on_failure(message, reason)
        await self._remove(store, [kept])

    def __repr__(self) -> str:
        return f"<LocalKeeper {self._output.binding!r} of {len(self._kept)}>"


async def _finished(
    task: "asyncio.Task[tuple[Sequence[KeptMessage], Exception | None]]",
) -> tuple[Sequence[KeptMessage], Exception | None]:
    """Wait for a task, to its end even if the caller is cancelled; return its result."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class _KeepingProducer(ProducerBinding):
    """Sends through a producer, and keeps what cannot be sent now."""

    def __init__(self, keeper: LocalKeeper, producer: ProducerBinding) -> None:
        self._keeper = keeper
        self._producer = producer

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of the destination, or None to use the setting ``partition-count``."""
        return self._producer.partition_count

    async def send(self, message: Message[bytes]) -> None:
        """Send or keep a message.

        Raises:
            MessageKept: It is kept.
            BinderError: It was neither sent nor kept.
        """
        keeper = self._keeper
        behind = keeper.is_behind(message)
        if behind or keeper.is_away:
            reason = BinderUnavailable("messages before it are kept until the messaging system is back")
            if await keeper.keep(message, reason):
                raise MessageKept(reason)
            if behind:
                raise reason
        try:
            await self._producer.send(message)
        except BinderUnavailable as error:
            if not await keeper.keep(message, error):
                raise
            keeper.is_away = True
            raise MessageKept(error) from error
        keeper.is_away = False

    async def send_all(self, messages: Sequence[Message[bytes]]) -> "Sequence[Exception | None]":
        """Send or keep messages in their order, up to the first for which neither is possible."""
        if self._keeper.is_away or any(map(self._keeper.is_behind, messages)):
            return await self._each(messages)
        outcomes = list(await self._producer.send_all(messages))
        first = next((place for place, outcome in enumerate(outcomes) if outcome is not None), None)
        if first is None or not isinstance(outcomes[first], BinderUnavailable):
            return outcomes
        for place in range(first, len(outcomes)):
            error = outcomes[place]
            if error is None:
                continue
            if not isinstance(error, BinderUnavailable) or not await self._keeper.keep(messages[place], error):
                return outcomes
            self._keeper.is_away = True
            outcomes[place] = MessageKept(error)
        return outcomes

    async def _each(self, messages: Sequence[Message[bytes]]) -> "Sequence[Exception | None]":
        outcomes: list[Exception | None] = []
        for message in messages:
            try:
                await self.send(message)
                outcomes.append(None)
            except MessageKept as kept:
                outcomes.append(kept)
            except Exception as error:  # returned
                return [*outcomes, *[error] * (len(messages) - len(outcomes))]
        return outcomes

    async def stop(self) -> None:
        """Stop the producer."""
        await self._producer.stop()
