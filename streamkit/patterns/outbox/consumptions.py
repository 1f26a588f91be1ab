"""The consumer's side of confirmations: what became of each message, written in the listener's own transaction.

::

    consumptions = Consumptions(app, engine)

    @consumptions.listener("orders")
    async def reserve(order: Order, session: AsyncSession) -> None: ...

A message that is consumed is passed over when it comes again. Questions of senders are answered on `<topic>-check`.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sqlalchemy import Connection, Engine, Update, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from streamkit.clock import current_clock
from streamkit.events import message_settled
from streamkit.listeners.arguments import annotations_of
from streamkit.listeners.listener import BindingName, Header, name_of
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.message import Message
from streamkit.patterns.outbox.database import Database, clock_held
from streamkit.patterns.outbox.message_row import OUTBOX_ID
from streamkit.patterns.outbox.reconciliation import CHECK, answers_to
from streamkit.patterns.outbox.settings import OUTBOX, OutboxProperties
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import ConsumerMessage
from streamkit.settlement import Reject

if TYPE_CHECKING:
    from streamkit.application import StreamApplication

__all__ = ["Consumptions"]

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_MESSAGE = "outbox_message"
_AT_ONCE = 1000
"""The most old records that are deleted in a transaction."""
_LOOK_MS = 60_000
"""The milliseconds between two deletions of old records; after a deletion of the most records, the next message deletes
more."""


class Consumptions:
    """Records the statuses of the messages that listeners consume."""

    def __init__(self, app: "StreamApplication", engine: Engine | AsyncEngine) -> None:
        """Make a record.

        Args:
            app: The application of the listeners.
            engine: The database, with the table `consumer_msg` that `streamkit outbox schema` prints. With an
                asynchronous engine listeners are coroutines, with a synchronous one plain functions.
        """
        self._app = app
        self._database = Database(engine)
        self._topics: dict[str, str] = {}
        self._marking: set[asyncio.Task[None]] = set()
        self._next_look: dict[str, int] = {}
        message_settled.connect(self._settled, sender=app)

    def listener(
        self, binding: BindingName, topic: str | None = None, answers: BindingName | None = None
    ) -> Callable[[F], F]:
        """Return a decorator of the function that consumes each message once; the function returns nothing.

        Function and record share one transaction, whose session is the argument that is annotated with `Session` or
        `AsyncSession`. All other arguments are those of :func:`streamkit.stream_listener`.

        Args:
            binding: The input binding.
            topic: The name of the sender's output binding; that of the input if not given.
            answers: The output binding of the answers; `<topic>-check` if not given.
        """
        name = name_of(binding)
        self._topics[name] = topic = topic or name
        output = answers_to(topic) if answers is None else name_of(answers)

        def register(function: F) -> F:
            self._app.stream_listener(name, f"headers['{CHECK}'] == null")(self._recorded(function, topic))
            self._app.stream_listener(name, f"headers['{CHECK}'] != null")(self._answering(topic, output))
            return function

        return register

    def _recorded(self, function: Callable[..., Any], topic: str) -> Callable[..., Any]:
        """Return the listener that calls the function and records the status."""
        hints = annotations_of(function)
        parameters = dict(inspect.signature(function).parameters)
        sessions = [name for name in parameters if hints.get(name) in (Session, AsyncSession)]
        for name in sessions:
            del parameters[name]
        engine = self._database.engine

        async def consume(*arguments: object, outbox_message: Message[object], **named: object) -> None:
            assert isinstance(engine, AsyncEngine)
            id_ = _id_of(outbox_message)
            try:
                async with AsyncSession(engine) as session:
                    with clock_held():
                        is_new = await session.run_sync(lambda sync: _mark_consumed(sync.connection(), id_, topic))
                    if not is_new:
                        return
                    bound = _bound(parameters, arguments, named)
                    await function(**bound, **dict.fromkeys(sessions, session))
                    with clock_held():
                        await session.commit()
            except Exception:
                await self._database.run(lambda connection: mark(connection, id_, topic, _FAILED))
                raise
            with self._forgetting(topic) as delete_some:
                if delete_some is not None:
                    await self._database.run(delete_some)

        def consume_in_thread(*arguments: object, outbox_message: Message[object], **named: object) -> None:
            assert isinstance(engine, Engine)
            id_ = _id_of(outbox_message)
            try:
                with Session(engine) as session:
                    if not _mark_consumed(session.connection(), id_, topic):
                        return
                    bound = _bound(parameters, arguments, named)
                    function(**bound, **dict.fromkeys(sessions, session))
                    session.commit()
            except Exception:
                self._database.run_sync(lambda connection: mark(connection, id_, topic, _FAILED))
                raise
            with self._forgetting(topic) as delete_some:
                if delete_some is not None:
                    self._database.run_sync(delete_some)

        wrapper: Any = consume if isinstance(engine, AsyncEngine) else consume_in_thread
        # What the framework reads: the function's parameters, without the session and with the message.
        wrapper.__annotations__ = {name: hints.get(name, Any) for name in parameters} | {_MESSAGE: Message[object]}
        message = inspect.Parameter(_MESSAGE, inspect.Parameter.KEYWORD_ONLY)
        wrapper.__signature__ = inspect.Signature([*parameters.values(), message])
        wrapper.__name__, wrapper.__qualname__ = function.__name__, function.__qualname__
        wrapper.__module__ = function.__module__
        checked: Callable[..., Any] = wrapper
        return checked

    @contextmanager
    def _forgetting(self, topic: str) -> Iterator[Callable[[Connection], None] | None]:
        """Yield a function that deletes old records, or None if that is not due; an error in the block is logged."""
        now = current_clock().now_ms()
        if now < self._next_look.get(topic, 0):
            yield None
            return
        self._next_look[topic] = now + _LOOK_MS
        retention = self._app.environment.bind(OUTBOX, OutboxProperties).consumption_retention
        before = now - round(retention.total_seconds() * 1000)

        def delete_some(connection: Connection) -> None:
            if delete_old(connection, topic, before) == _AT_ONCE:
                self._next_look[topic] = 0

        try:
            yield delete_some
        except Exception as error:  # of the driver; the message is consumed
            reason = kind_and_text(error)
            logger.warning("Old records of topic %r could not be deleted; the next try comes later: %s", topic, reason)

    def _answering(self, topic: str, output: str) -> Callable[..., Any]:
        """Return the listener of questions."""

        async def answer(ids: list[str], asked: Annotated[str, Header(CHECK)]) -> None:
            statuses = await self._database.run(lambda connection: statuses_of(connection, topic, ids))
            await self._app.bridge.asend(output, statuses, {CHECK: asked})

        return answer

    def _settled(self, _: object, *, binding: str, message: Message[object], settlement: object) -> None:
        """Record that a message has been given up."""
        topic = self._topics.get(binding)
        if topic is None or not isinstance(settlement, Reject) or message.headers.get(CHECK) is not None:
            return
        id_ = _id_of(message)
        marking = asyncio.get_running_loop().create_task(
            self._database.run(lambda connection: mark(connection, id_, topic, _GIVEN_UP)),
            name=f"record that message {id_} is given up",
        )
        self._marking.add(marking)
        marking.add_done_callback(self._marked)

    def _marked(self, marking: "asyncio.Task[None]") -> None:
        self._marking.discard(marking)
        if not marking.cancelled() and marking.exception() is not None:
            logger.error("Could not record that a message was given up", exc_info=marking.exception())


_FAILED = MessageStatus.CONSUMPTION_FAILED
_GIVEN_UP = MessageStatus.CONSUMPTION_RETRIES_EXCEEDED


def delete_old(connection: Connection, topic: str, before: int) -> int:
    """Delete records of a topic that were made before a time; return their number, at most 1,000."""
    old = select(ConsumerMessage.msgid).where(ConsumerMessage.topic == topic, ConsumerMessage.create_time < before)
    ids = list(connection.scalars(old.order_by(ConsumerMessage.create_time).limit(_AT_ONCE)))
    if ids:
        # In one order for all consumers: they do not wait for each other's locks in turns.
        gone = delete(ConsumerMessage).where(ConsumerMessage.topic == topic, ConsumerMessage.msgid.in_(sorted(ids)))
        connection.execute(gone.where(ConsumerMessage.create_time < before))
    return len(ids)


def statuses_of(connection: Connection, topic: str, ids: Sequence[str]) -> Mapping[str, str | None]:
    """Return the statuses of messages by id; None for a message that is not known."""
    known = select(ConsumerMessage.msgid, ConsumerMessage.message_status).where(
        ConsumerMessage.topic == topic, ConsumerMessage.msgid.in_(ids)
    )
    statuses: dict[str, str | None] = dict.fromkeys(ids)
    statuses.update((row.msgid, row.message_status) for row in connection.execute(known))
    return statuses


def mark(connection: Connection, id_: str, topic: str, status: MessageStatus) -> None:
    """Record a status, unless the message is consumed."""
    if connection.execute(_changed(id_, topic, status)).rowcount:
        return
    try:
        with connection.begin_nested():
            connection.execute(_new(id_, topic, status))
    except IntegrityError:
        pass  # consumed, or recorded by another process at the same time


def _mark_consumed(connection: Connection, id_: str, topic: str) -> bool:
    """Record that a message is consumed, and return whether it was not before.

    Until the transaction ends, the record keeps others from consuming the message: they wait for it.

    Raises:
        IntegrityError: The message is being consumed elsewhere; it has to come again.
    """
    known = select(ConsumerMessage.message_status).where(ConsumerMessage.msgid == id_, ConsumerMessage.topic == topic)
    status = connection.scalar(known.with_for_update())
    if status is None:
        connection.execute(_new(id_, topic, MessageStatus.CONSUMED))
        return True
    return connection.execute(_changed(id_, topic, MessageStatus.CONSUMED)).rowcount == 1


def _new(id_: str, topic: str, status: MessageStatus) -> Any:
    now = current_clock().now_ms()
    return insert(ConsumerMessage).values(msgid=id_, topic=topic, create_time=now, message_status=str(status))


def _changed(id_: str, topic: str, status: MessageStatus) -> Update:
    unconsumed = update(ConsumerMessage).where(
        ConsumerMessage.msgid == id_,
        ConsumerMessage.topic == topic,
        ConsumerMessage.message_status != str(MessageStatus.CONSUMED),
    )
    return unconsumed.values(message_status=str(status))


def _id_of(message: Message[object]) -> str:
    return str(message.headers.get(OUTBOX_ID) or message.headers.id)


def _bound(
    parameters: Mapping[str, object], arguments: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """Return all arguments by name."""
    return dict(zip(parameters, arguments, strict=False)) | dict(named)
