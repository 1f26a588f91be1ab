"""The inbox of one listener: it handles messages of the same key once.

::

    message ─▶ key ─▶ does a run in this process have the key?   wait for it, up to `wait`
                      claim the mark in the store ─┬─ done       accept; the event `message_duplicate`
                                                   ├─ busy       ask again until `wait` has passed, then Requeue
                                                   └─ claimed    call the listener, and send its results
                                                                     │ returns: commit the mark
                                                                     └ raises, or is cancelled: abandon it

Results are sent before the mark is committed. If the process is killed between the two, the message comes again, the
listener runs again, and its results are sent again with the same ids, by which the next inbox knows them. The other
order would lose results.

Waiting holds a permit of the binding, but no thread and no connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from itertools import count
from typing import Final
from uuid import UUID

from streamkit.binder.batch import Batch
from streamkit.clock import current_clock
from streamkit.config.durations import format_duration
from streamkit.config.pattern_properties import InboxProperties
from streamkit.errors import ConfigurationError
from streamkit.events import message_duplicate, notify
from streamkit.listeners.advice import AdvisedListener, ListenerCall
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.headers import ID
from streamkit.messaging.message import Message
from streamkit.patterns.inbox.marks import Claim, Mark, MarkStore
from streamkit.patterns.inbox.message_key import MessageKey
from streamkit.settlement import ACCEPT, Reject, Requeue

__all__ = ["Inbox", "InboxSession"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two claims of a busy mark: the first pause, doubled up to the longest."""


@dataclass(frozen=True, slots=True)
class InboxSession:
    """Marks the parameter that takes the session of the inbox: ``Annotated[AsyncSession, InboxSession()]``.

    What the listener does in this session is committed together with the mark of its message. The listener must neither
    commit nor roll back.
    """


@dataclass(slots=True)
class _Run:
    """A call of the listener within its claim."""

    claim: Claim
    mark: Mark | None
    results: "count[int]" = field(default_factory=count)


_IDS: Final = frozenset({ID})
_run: Final[ContextVar[_Run]] = ContextVar("streamkit_inbox_run")


class Inbox:
    """The advice that handles messages of the same key once."""

    def __init__(
        self,
        application: object,
        listener: AdvisedListener,
        key: MessageKey,
        store: MarkStore,
        properties: InboxProperties,
    ) -> None:
        """Make the inbox of a listener.

        Args:
            application: The application, for events.
            listener: The listener.
            key: Finds the keys of messages.
            store: Keeps the marks.
            properties: The settings of all inboxes.

        Raises:
            ConfigurationError: The listener is an `async def`, and the store's transactions belong to threads.
        """
        if store.has_threads and listener.is_async:
            raise ConfigurationError(
                f"listener {listener.description} is an async def, but the transactions of {store!r} belong to "
                "threads: write the listener as a def"
            )
        self._application = application
        self._listener = listener
        self._binding = listener.binding
        self._scope = _scope(listener)
        self._key = key
        self._store = store
        self._wait = properties.wait.total_seconds()
        self._expiry_ms = properties.expiry // timedelta(milliseconds=1)
        self._clean_up_slice = properties.clean_up_slice
        self._clean_up_interval = properties.clean_up_interval.total_seconds()
        self._next_clean_up = 0.0
        # The marks that runs of this process have claimed, or are about to; the future is done at the run's end.
        self._running: dict[Mark, asyncio.Future[None]] = {}
        self._late: set[asyncio.Task[None]] = set()

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return the provider of the session for a parameter that `InboxSession` marks.

        Raises:
            ConfigurationError: The store has no sessions, or none for this kind of listener.
        """
        if not isinstance(marker, InboxSession) and marker is not InboxSession:
            return None
        if not self._store.has_sessions:
            raise ConfigurationError(
                f"listener {self._listener.description} takes the session of its inbox, but {self._store!r} has none: "
                "let streamkit.inbox.store name a SqlMarks"
            )
        if self._store.is_async is not self._listener.is_async:
            made = "async_sessionmaker" if self._listener.is_async else "sessionmaker"
            raise ConfigurationError(
                f"listener {self._listener.description} is {'an async def' if self._listener.is_async else 'a def'}, "
                f"so its session must come from SqlMarks({made}(engine))"
            )
        return lambda: _run.get().claim.session

    def results(self, messages: Sequence[Message[object]]) -> Sequence[Message[object]]:
        """Return results with ids that are the same in each run of the message, unless the listener has set ids."""
        run = _run.get()
        mark = run.mark
        if mark is None:  # of a batch, which may have other messages in its next run
            return messages
        return [
            Message(each.payload, each.headers.annotated(ID, _id(mark, number)))
            if _IDS.isdisjoint(each.headers._present)
            else each
            for each, number in zip(messages, run.results, strict=False)
        ]

    async def around(self, message: Message[object], call: ListenerCall) -> None:
        """Call the listener if the message was not handled before.

        Raises:
            Requeue: Another run of a message with this key has not ended.
            Reject: The message has no key.
            Exception: The listener failed, or the store.
        """
        if isinstance(message.payload, Batch):
            await self._around_batch(message, message.payload, call)
            return
        mark = Mark(self._scope, self._key(message))
        busy = await self._work([mark], lambda claim: self._once(claim, mark, message, call), call)
        if busy:
            raise self._again(mark)

    async def _once(self, claim: Claim, mark: Mark, message: Message[object], call: ListenerCall) -> Collection[Mark]:
        """Call the listener with one message; return the marks that become final."""
        if mark in claim.done:
            self._duplicate(message, mark)
        if mark not in claim.claimed:
            return ()
        await _called(_Run(claim, mark), call, message)
        return (mark,)

    async def _around_batch(self, message: Message[object], batch: Batch, call: ListenerCall) -> None:
        """Call the listener with those messages of a batch that were not handled before, in one claim."""
        marks: dict[int, Mark] = {}
        first: dict[Mark, int] = {}
        for place in batch.places:
            try:
                mark = Mark(self._scope, self._key(batch[place]))
            except Reject as rejected:
                batch.leave_out(place, rejected)
                continue
            marks[place] = mark
            if first.setdefault(mark, place) != place:
                self._leave_out(batch, place, mark)
        if not first:
            return

        async def work(claim: Claim) -> Collection[Mark]:
            for mark, place in first.items():
                if mark in claim.done:
                    self._leave_out(batch, place, mark)
                elif mark not in claim.claimed:
                    batch.leave_out(place, self._again(mark))
            if not claim.claimed:
                return ()
            await _called(_Run(claim, None), call, message)
            return [marks[place] for place in batch.places if batch.settlements.get(place, ACCEPT) is ACCEPT]

        for mark in await self._work(list(first), work, call):
            batch.leave_out(first[mark], self._again(mark))

    def _leave_out(self, batch: Batch, place: int, mark: Mark) -> None:
        batch.leave_out(place, ACCEPT)
        self._duplicate(batch[place], mark)

    async def _work(
        self, marks: Sequence[Mark], work: Callable[[Claim], Awaitable[Collection[Mark]]], call: ListenerCall
    ) -> Collection[Mark]:
        """Claim marks, do the work and commit the marks that it returns.

        Returns:
            The marks that other runs still had claimed after the time to wait.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait
        free = await self._turn(marks, deadline)
        if not free:
            return marks
        ended: asyncio.Future[None] = loop.create_future()
        self._running.update(dict.fromkeys(free, ended))
        try:
            claim = await self._claim(free, deadline)
            try:
                final = await work(claim)
            except BaseException:
                thread = call.thread
                if thread is None or thread.done():
                    await claim.abandon()
                else:  # a cancelled `def` listener works on, perhaps in the claim's session
                    self._abandon_later(claim, asyncio.wrap_future(thread), free, ended)
                    free = ()
                raise
            if claim.claimed:
                await claim.commit(final)
            else:
                await claim.abandon()
        finally:
            self._end(free, ended)
        await self._clean_up()
        return [mark for mark in marks if mark not in claim.claimed and mark not in claim.done]

    async def _turn(self, marks: Sequence[Mark], deadline: float) -> Sequence[Mark]:
        """Wait until no run of this process has the marks; return those that are free at the deadline."""
        loop = asyncio.get_running_loop()
        while others := {self._running[mark] for mark in marks if mark in self._running}:
            left = deadline - loop.time()
            if left <= 0:
                break
            await asyncio.wait(others, timeout=left)
        return [mark for mark in marks if mark not in self._running]

    async def _claim(self, marks: Sequence[Mark], deadline: float) -> Claim:
        """Claim marks, again and again until no other run has one of them, or the deadline has passed."""
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            now = current_clock().now_ms()
            claim = await self._store.claim(
                marks, now_ms=now, expired_ms=now - self._expiry_ms, threads=self._listener.threads
            )
            left = deadline - loop.time()
            if not claim.busy or left <= 0:
                return claim
            await claim.abandon()
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _end(self, marks: Sequence[Mark], ended: "asyncio.Future[None]") -> None:
        """End the runs of these marks, so that runs that wait for them begin."""
        for mark in marks:
            del self._running[mark]
        if marks:
            ended.set_result(None)

    def _abandon_later(
        self, claim: Claim, thread: "asyncio.Future[object]", marks: Sequence[Mark], ended: "asyncio.Future[None]"
    ) -> None:
        """Abandon a claim when the listener's thread has ended; until then its marks stay claimed."""

        async def abandon() -> None:
            try:
                await asyncio.wait([thread])
                if not thread.cancelled():
                    thread.exception()  # so that asyncio does not log that nobody has read it
                await claim.abandon()
            finally:
                self._end(marks, ended)

        task = asyncio.create_task(abandon(), name=f"end a cancelled call of {self._binding!r}")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _clean_up(self) -> None:
        """Delete some expired marks, if the last time is long enough ago; errors are logged."""
        now = asyncio.get_running_loop().time()
        if now < self._next_clean_up:
            return
        self._next_clean_up = now + self._clean_up_interval
        expired = current_clock().now_ms() - self._expiry_ms
        try:
            await self._store.clean_up(expired_ms=expired, limit=self._clean_up_slice, threads=self._listener.threads)
        except Exception as error:  # of any store; the message is handled
            logger.warning("Expired marks of binding %r could not be deleted: %s", self._binding, kind_and_text(error))

    def _duplicate(self, message: Message[object], mark: Mark) -> None:
        logger.debug("Binding %r leaves out message %s: %r was handled", self._binding, message.headers.id, mark.key)
        if message_duplicate.receivers:
            notify(message_duplicate, self._application, binding=self._binding, message=message, key=mark.key)

    def _again(self, mark: Mark) -> Requeue:
        waited = format_duration(timedelta(seconds=self._wait))
        return Requeue(f"another run handles the message with the key {mark.key!r}, and has not ended within {waited}")

    def __repr__(self) -> str:
        return f"<Inbox {self._scope!r} with {self._store!r}>"


async def _called(run: _Run, call: ListenerCall, message: Message[object]) -> None:
    call.executor = run.claim.executor
    token = _run.set(run)
    try:
        await call(message)
    finally:
        _run.reset(token)


def _scope(listener: AdvisedListener) -> str:
    """Return the listener's name among all that use the store, in any process."""
    scope = f"{listener.group or ''}/{listener.binding}"
    return f"{scope}/{getattr(listener.function, '__qualname__', '')}" if listener.shares_binding else scope


def _id(mark: Mark, number: int) -> str:
    """Return the id of a result: the same whenever the message is handled."""
    return str(UUID(bytes=sha256(f"{mark.digest}/{number}".encode()).digest()[:16], version=5))
