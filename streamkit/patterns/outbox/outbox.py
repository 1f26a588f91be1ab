"""The outbox of an application: messages are rows of the application's own transaction, and are sent after its commit.

::

    outbox = Outbox(app, engine, "orders")

    async with outbox.transaction() as session:
        session.add(OrderRow(order))
        outbox.send("orders", order, id=order.number, key=order.customer)

With a synchronous engine write `with` instead of `async with`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sqlalchemy import Engine, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from streamkit.binder.binder import Health, HealthStatus
from streamkit.clock import current_clock
from streamkit.listeners.listener import BindingName, Header, name_of
from streamkit.messaging.converter import PayloadWriter
from streamkit.messaging.message import Message
from streamkit.patterns.outbox.compensation import Compensation
from streamkit.patterns.outbox.database import Database, clock_held, engine_in_memory
from streamkit.patterns.outbox.enlistment import Enlistment
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.message_row import row_of
from streamkit.patterns.outbox.reconciliation import CHECK, Reconciliation, answers_to
from streamkit.patterns.outbox.relay import Relay
from streamkit.patterns.outbox.settings import OUTBOX, OutboxProperties
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, ProducerMessage
from streamkit.patterns.outbox.upkeep import Upkeep

if TYPE_CHECKING:
    from streamkit.application import StreamApplication
    from streamkit.binder.binding import Feeder
    from streamkit.config.environment import Environment

__all__ = ["Outbox"]

F = TypeVar("F", bound=Callable[..., Any])


class Outbox:
    """Keeps messages in the application's database until the messaging system has stored them.

    Attributes:
        outputs: The output bindings whose messages are kept; each is the topic of its rows.
    """

    def __init__(self, app: "StreamApplication", engine: Engine | AsyncEngine, *outputs: BindingName) -> None:
        """Make an outbox; nothing is read or connected until the application starts.

        Args:
            app: The application. It sends the rows while it runs, unless `streamkit.outbox.relay=false`.
            engine: The database, with the tables that `streamkit outbox schema` prints.
            outputs: The output bindings.

        Raises:
            ValueError: No output is given.
        """
        if not outputs:
            raise ValueError("an outbox has at least one output binding: Outbox(app, engine, 'orders')")
        self.outputs = tuple(map(name_of, outputs))
        self._app = app
        self._database = Database(engine)
        self._relays: dict[str, Relay] = {}
        self._compensations: dict[str, Callable[..., Any]] = {}
        self._reconciled: set[str] = set()
        self._writers: dict[str, PayloadWriter] = {}
        self._read: tuple[Environment, OutboxProperties] | None = None
        self._current: ContextVar[Enlistment | None] = ContextVar("streamkit_outbox", default=None)
        for output in self.outputs:
            app.feed(output, lambda _, output=output: self._relay(output))  # type: ignore[misc]

    @property
    def engine(self) -> Engine | AsyncEngine:
        """The engine of the database; inside :meth:`in_memory` that of the memory."""
        return self._database.engine

    # Sending

    def transaction(self) -> "OutboxTransaction":
        """Return a context manager that opens a session and commits it at the end of the block.

        `async with` yields an `AsyncSession`, `with` a `Session`, as the engine is. An exception rolls back, and then
        nothing is sent.
        """
        return OutboxTransaction(self)

    def enlist(self, session: Session | AsyncSession) -> Enlistment:
        """Make :meth:`send` insert its rows by a session that the caller has, until the session's transaction ends.

        Returns:
            The enlistment; its own `send` does the same where :meth:`send` would not find the session, as on another
            thread.
        """
        enlistment = Enlistment.of(session.sync_session if isinstance(session, AsyncSession) else session, self)
        self._current.set(enlistment)
        return enlistment

    def send(
        self,
        output: BindingName,
        payload: object,
        headers: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Add a message to the current transaction; it is sent if that commits, and never otherwise.

        Args:
            output: The output binding.
            payload: The payload, or a message; it is converted now.
            headers: Headers of the payload; of a message they replace those of the same names.
            key: Messages with the same key are sent in the order of these calls.
            id: The business id, such as the number of the order; unique within the output. The message's own id if
                not given.

        Returns:
            The id.

        Raises:
            OutboxError: No transaction is open, or the message cannot be kept.
            MessageConversionError: The payload cannot be converted.
        """
        enlistment = self._current.get()
        if enlistment is None or enlistment.is_ended:
            raise OutboxError(
                "no transaction is open here: send inside `async with outbox.transaction()`, or call "
                "outbox.enlist(session) in the transaction first"
            )
        return enlistment.send(output, payload, headers, key=key, id=id)

    def row(
        self,
        output: BindingName,
        payload: object,
        headers: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> ProducerMessage:
        """Return the row of a message without adding it to a session; see :meth:`send`.

        Raises:
            OutboxError: The outbox does not have this output, or the message cannot be kept.
            MessageConversionError: The payload cannot be converted.
        """
        name = name_of(output)
        if name not in self.outputs:
            raise OutboxError(f"{name!r} is not an output of the outbox; it has: {', '.join(self.outputs)}")
        message: Message[object] = payload if isinstance(payload, Message) else Message(payload)
        if headers:
            message = message.with_headers(headers)
        now = self._app.clock.now_ms() if self._app.is_running else current_clock().now_ms()
        return row_of(name, message, self._writer(name), now, key=key, id_=id)

    def _writer(self, output: str) -> PayloadWriter:
        writer = self._writers.get(output)
        if writer is None:
            container = self._app.container
            content_type = container.settings().value.binding(output).content_type
            writer = container.converter().payload_writer(content_type, place=f"the outbox of {output!r}")
            self._writers[output] = writer
        return writer

    def wake(self, output: str) -> None:
        """Make the relay of an output look for rows now; callable from any thread."""
        relay = self._relays.get(output)
        if relay is not None:
            relay.wake()

    # Confirmations and roll-backs

    def reconcile(self, output: BindingName) -> None:
        """Ask the consumer of an output what became of old messages, and send again what it does not know.

        The answers arrive at the input binding `<output>-check`, for which the settings have a group. Call this before
        the application starts.
        """
        name = name_of(output)
        self._reconciled.add(name)

        async def take_answer(statuses: dict[str, str | None], asked: Annotated[int, Header(CHECK)]) -> None:
            await self._reconciliation(name).take(asked, statuses)
            self.wake(name)

        self._app.stream_listener(answers_to(name))(take_answer)

    def compensate(self, output: BindingName) -> Callable[[F], F]:
        """Return a decorator of the function that undoes the sender's work when an operator gives a message up.

        The function gets the payload, converted to the type of its first parameter, and the session of the transaction
        that marks the row: `async def undo(order: Order, session: AsyncSession)`; with a synchronous engine `def`. The
        consumer is not told.
        """

        def register(function: F) -> F:
            self._compensations[name_of(output)] = function
            return function

        return register

    # Running

    def _relay(self, output: str) -> "Feeder":
        properties = self._settings()
        if not properties.relay:
            return _NoRelay()
        function = self._compensations.get(output)
        compensation = None
        if function is not None:
            converter = self._app.container.converter()
            compensation = Compensation(output, function, self._database, converter).run
        upkeep = Upkeep(
            output,
            self._database,
            retention=round(properties.retention.total_seconds() * 1000),
            compensate=compensation,
            reconcile=self._reconciliation(output).ask if output in self._reconciled else None,
            check_interval=round(properties.check_after.total_seconds() * 1000),
        )
        self._relays[output] = Relay(self._app, output, self._database, properties, upkeep)
        return self._relays[output]

    def _reconciliation(self, output: str) -> Reconciliation:
        return Reconciliation(self._app, output, self._database, self._settings())

    @property
    def notifies(self) -> bool:
        """Whether commits notify the relays of other processes."""
        return self._settings().notify

    def _settings(self) -> OutboxProperties:
        """Return the settings `streamkit.outbox.*`, which are read once: each commit asks for them."""
        environment = self._app.environment
        if self._read is None or self._read[0] is not environment:
            self._read = environment, environment.bind(OUTBOX, OutboxProperties)
        return self._read[1]

    @contextmanager
    def in_memory(self, *tables: Table) -> Iterator[Engine | AsyncEngine]:
        """Use a database in memory inside the block, for tests: enter it before `app.test()`.

        Args:
            tables: The application's own tables. Those of the outbox exist.
        """
        own = self._database.engine
        made = (*PRODUCER_TABLES, *CONSUMER_TABLES, *tables)
        with engine_in_memory(*made, asynchronous=isinstance(own, AsyncEngine)) as engine:
            self._database.engine = engine
            try:
                yield engine
            finally:
                self._database.engine = own

    def __repr__(self) -> str:
        return f"<Outbox of {', '.join(self.outputs)}>"


class OutboxTransaction:
    """A session with an open transaction, in which the outbox can send."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._session: Session | None = None
        self._async_session: AsyncSession | None = None
        self._token: Token[Enlistment | None] | None = None

    def __enter__(self) -> Session:
        engine = self._outbox.engine
        if not isinstance(engine, Engine):
            raise OutboxError("the engine of the outbox is asynchronous: write `async with outbox.transaction()`")
        self._session = Session(engine, expire_on_commit=False)
        self._enlist(self._session)
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        assert session is not None
        try:
            if error is None:
                session.commit()
        finally:
            self._leave()
            session.close()

    async def __aenter__(self) -> AsyncSession:
        engine = self._outbox.engine
        if not isinstance(engine, AsyncEngine):
            raise OutboxError("the engine of the outbox is synchronous: write `with outbox.transaction()`")
        self._async_session = AsyncSession(engine, expire_on_commit=False)
        self._enlist(self._async_session.sync_session)
        return self._async_session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._async_session = self._async_session, None
        assert session is not None
        with clock_held():
            try:
                if error is None:
                    await session.commit()
            finally:
                self._leave()
                await session.close()

    def _enlist(self, session: Session) -> None:
        session.begin()
        self._token = self._outbox._current.set(Enlistment.of(session, self._outbox))

    def _leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._outbox._current.reset(token)


class _NoRelay:
    """Takes the relay's place where another process sends the rows."""

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, timeout: float) -> None:
        """Do nothing."""

    def health(self) -> Health:
        """Return that nothing is wrong."""
        return Health(HealthStatus.UP, {"relay": "another process"})
