"""Sends messages that count only if a local transaction does.

::

    begin                  the half message is stored, nobody sees it
    … local transaction …
    commit                 consumers get the message
    rollback               nobody ever will
    unknown, a crash,      the broker asks a live producer of the group, any of them, again and again:
    a lost connection      its checker says commit, rollback, or unknown still

How a transaction ends is told one way: if that gets lost, the broker asks. So a checker must be able to tell
the fate of every transaction of its group, also of those that another process began.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import Enum
from typing import NamedTuple

from rocket_client.connection.client import cancel
from rocket_client.core.selectors import MessageQueueSelector
from rocket_client.core.send_result import SendResult, SendStatus
from rocket_client.errors import IllegalMessageError, SendError
from rocket_client.producing.producer import Producer
from rocket_client.settings import TransactionProducerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocket_remoting.wire.message import Message, MessageExt, MessageQueue
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    TIMER_PROPERTIES,
)
from rocket_remoting.wire.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

logger = logging.getLogger(__name__)


class LocalTransactionState(Enum):
    """How a local transaction ended."""

    COMMIT = "commit"
    """It counts, and so does its message."""
    ROLLBACK = "rollback"
    """It never happened, and its message never will."""
    UNKNOWN = "unknown"
    """Nobody can tell yet: the broker asks later."""

    @property
    def sys_flag(self) -> int:
        """The state as END_TRANSACTION tells it."""
        return _SYS_FLAGS[self]


_SYS_FLAGS = {
    LocalTransactionState.COMMIT: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: TRANSACTION_NOT,
}

TransactionChecker = Callable[[MessageExt], Awaitable[LocalTransactionState]]
"""Tells how the local transaction of a half message ended."""


class TransactionSendResult(NamedTuple):
    """Where the half message is, and how its local transaction ended."""

    send_result: SendResult
    state: LocalTransactionState


class Transaction:
    """A half message, and the transaction it belongs to. It ends once; what is told later is an error."""

    def __init__(self, producer: "TransactionProducer", message: Message, result: SendResult) -> None:
        self._producer = producer
        self.message = message
        """As it was sent, with its unique id."""
        self.send_result = result
        """Where the half message is."""
        self.state: LocalTransactionState | None = None
        """How it ended; None before."""

    def __repr__(self) -> str:
        state = self.state.value if self.state is not None else "open"
        return f"<Transaction {self.transaction_id} of {self._producer.group}, {state}>"

    @property
    def transaction_id(self) -> str:
        """The half message's unique id, which checks carry too."""
        return self.send_result.transaction_id or self.send_result.msg_id

    async def commit(self) -> None:
        """The broker was told to deliver the message. If that gets lost, it asks the checker."""
        await self.end(LocalTransactionState.COMMIT)

    async def rollback(self) -> None:
        """The broker was told to forget the message. If that gets lost, it asks the checker."""
        await self.end(LocalTransactionState.ROLLBACK)

    async def unknown(self) -> None:
        """The broker will ask the checker."""
        await self.end(LocalTransactionState.UNKNOWN)

    async def end(self, state: LocalTransactionState, cause: BaseException | None = None) -> None:
        """Tell the broker how the local transaction ended, and why it failed if it did.

        Raises:
            RuntimeError: It has ended.
        """
        if self.state is not None:
            raise RuntimeError(f"{self!r} has ended already: it cannot be told to {state.value}")
        self.state = state
        await self._producer.end_transaction(self, state, cause)


class TransactionProducer(Producer):
    """A member of a producer group that sends half messages and answers for them.

    Args:
        group: Its name; used for nothing but transactions, all members with the same checker.
        settings: Name servers, timeouts, and how many checks at once.
        checker: Tells how a local transaction ended. An exception of it is UNKNOWN, and logged.
        topics: Topics whose brokers may ask this producer before it has sent anything: those it sent to before a crash.
        transport: TCP unless given.
        clock: Where birth stamps come from; the machine's unless given.
    """

    settings: TransactionProducerSettings

    def __init__(
        self,
        group: str,
        settings: TransactionProducerSettings,
        checker: TransactionChecker,
        *,
        topics: Iterable[str] = (),
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, settings, transport=transport, clock=clock)
        self._checker = checker
        self._topics = dict.fromkeys((*map(self._namespace.wrap, topics), settings.create_topic_key))
        self._waiting: deque[tuple[Connection, CheckTransactionStateRequestHeader, MessageExt]] = deque()
        self._checking: set[asyncio.Task[None]] = set()

    # Life

    async def start(self) -> None:
        """The producer can send, and brokers can ask it.

        Raises:
            ClientStateError: It was started before.
            GroupInUseError: Another producer of the group has the same `instance_name`.
        """
        await super().start()
        await self._client.routes.refresh_all(self._topics)
        await self._client.heartbeat()

    async def _leave(self) -> None:
        """Leave the transactions that are open to the group's others."""
        self._waiting.clear()
        await cancel(self._checking)
        await super()._leave()

    def publish_topics(self) -> Collection[str]:
        """Topics it sends to, or sent to in a former life."""
        return self._topics | self._sender.topics

    # Sending

    async def begin(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout: float | None = None,
    ) -> Transaction:
        """The half message is stored; it will be delivered when the transaction commits.

        Args:
            message: What to send; it has a `unique_key` afterwards.
            queue: Where to, instead of round robin.
            selector: Chooses the queue.
            argument: The selector's third argument.
            timeout: Seconds for the send; `send_timeout` unless given.

        Raises:
            IllegalMessageError: The message cannot be sent as it is, or is delayed.
            SendError: No broker took it, or not safely: then nobody will see it.
        """
        if message.delay_level or not TIMER_PROPERTIES.isdisjoint(message.properties):
            raise IllegalMessageError(message.topic, "a message of a transaction cannot be delayed")
        properties = {
            **message.properties,
            PROPERTY_TRANSACTION_PREPARED: "true",
            PROPERTY_PRODUCER_GROUP: self.group,
        }
        half = Message(message.topic, message.body, properties=properties, flag=message.flag)
        outgoing, choose = self._prepare(half, queue, selector, argument)
        message.unique_key = half.unique_key
        outgoing = outgoing._replace(sys_flag=outgoing.sys_flag | TRANSACTION_PREPARED)
        result = await self._sender.send(outgoing, choose, self._limit(timeout), waits=True)
        transaction = Transaction(self, half, result)
        if result.status is not SendStatus.SEND_OK:
            await transaction.rollback()
            cause = RemotingError(
                f"the half message was stored with {result.status.value} and is rolled back"
            )
            raise SendError(message.topic, [result.message_queue.broker_name], [cause]) from cause
        return transaction

    async def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[Message], Awaitable[LocalTransactionState]],
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """The half message is stored, the local transaction was executed, and the broker told how it ended.

        Args:
            message: What to send.
            execute: The local transaction; it gets the half message. An exception of it is raised here after the
                broker was told UNKNOWN; cancelled, it tells the broker nothing, which is the same.
            timeout: Seconds for the send; `send_timeout` unless given.

        Raises:
            IllegalMessageError: The message cannot be sent as it is, or is delayed.
            SendError: No broker took it, or not safely; `execute` was not called.
        """
        transaction = await self.begin(message, timeout=timeout)
        try:
            state = await execute(transaction.message)
        except Exception as error:
            await transaction.end(LocalTransactionState.UNKNOWN, error)
            raise
        await transaction.end(state)
        return TransactionSendResult(transaction.send_result, state)

    async def end_transaction(
        self, transaction: Transaction, state: LocalTransactionState, cause: BaseException | None = None
    ) -> None:
        """Tell the broker how a transaction ended; if it cannot be told, that is logged, and it will ask."""
        result, topic = transaction.send_result, self._namespace.wrap(transaction.message.topic)
        _, _, offset = parse_offset_id(result.offset_msg_id)
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=state.sys_flag,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            broker_name=result.message_queue.broker_name,
        )
        if cause is not None:
            logger.info("%r: the local transaction failed", transaction, exc_info=cause)
        try:
            connection = await self._client.broker(
                result.message_queue.broker_name, topic, vip=self.settings.vip_channel_enabled
            )
            connection.invoke_oneway(RequestCode.END_TRANSACTION, header)
        except RemotingError as error:
            logger.warning("%r: the broker was not told, and will ask: %s", transaction, error)

    # Checks

    def check_transaction(
        self, connection: Connection, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """A broker asks how the transaction of this half message ended: the checker is called, and it is told."""
        if len(self._waiting) >= self.settings.check_request_hold_max:
            logger.warning("%r: too many checks wait; that of %s is asked again later", self, message.msg_id)
            return
        self._waiting.append((connection, header, message))
        if len(self._checking) < self.settings.check_concurrency:
            task = self._client.spawn(self._check_waiting(), "check transactions")
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)

    async def _check_waiting(self) -> None:
        while self._waiting:
            connection, header, message = self._waiting.popleft()
            topic, message.topic = message.topic, self._namespace.unwrap(message.topic)
            state = await self._checked(message)
            answer = EndTransactionRequestHeader(
                topic=topic,
                producer_group=self.group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state.sys_flag,
                from_transaction_check=True,
                msg_id=message.msg_id,
                transaction_id=header.transaction_id,
                broker_name=header.broker_name,
            )
            try:
                connection.invoke_oneway(RequestCode.END_TRANSACTION, answer)
            except RemotingError as error:
                logger.info("%r: the broker will ask for %s again: %s", self, message.msg_id, error)

    async def _checked(self, message: MessageExt) -> LocalTransactionState:
        unpacked = await self._bodies.unpack([message])
        try:
            if unpacked.error is not None:
                raise unpacked.error
            return await self._checker(unpacked.messages[0])
        except Exception:
            logger.exception(
                "%r: the checker failed with message %s of topic %s", self, message.msg_id, message.topic
            )
            return LocalTransactionState.UNKNOWN
        finally:
            self._bodies.release(unpacked.room)
