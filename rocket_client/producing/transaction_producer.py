"""The producer of transactional messages: consumers get a message only if its local transaction commits.

::

    begin                  the broker stores the half message; no consumer sees it
    … local transaction …
    commit                 consumers get the message
    rollback               the broker discards the half message
    unknown, a crash,      the broker repeatedly asks a connected producer of the group, any one of them;
    a lost connection      the producer's checker returns commit, rollback, or again unknown

END_TRANSACTION is a oneway request: if it is lost, the broker asks later. So a checker must know the outcome of every
transaction of its group, also of those that another process began.
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
    """The local transaction has committed: deliver the message."""
    ROLLBACK = "rollback"
    """The local transaction was rolled back: discard the message."""
    UNKNOWN = "unknown"
    """The outcome is not known yet: the broker asks again later."""

    @property
    def sys_flag(self) -> int:
        """The state's bits in the field ``commitOrRollback`` of END_TRANSACTION."""
        return _SYS_FLAGS[self]

    @property
    def java_name(self) -> str:
        """The state's name in message traces."""
        return _JAVA_NAMES[self]


_JAVA_NAMES = {
    LocalTransactionState.COMMIT: "COMMIT_MESSAGE",
    LocalTransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    LocalTransactionState.UNKNOWN: "UNKNOW",
}

_SYS_FLAGS = {
    LocalTransactionState.COMMIT: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: TRANSACTION_NOT,
}

TransactionChecker = Callable[[MessageExt], Awaitable[LocalTransactionState]]
"""Returns the state of the local transaction that belongs to a half message."""


class TransactionSendResult(NamedTuple):
    """The result of sending the half message, and the state of its local transaction."""

    send_result: SendResult
    state: LocalTransactionState


class Transaction:
    """A half message and its local transaction. It ends once; ending it again raises a RuntimeError."""

    def __init__(self, producer: "TransactionProducer", message: Message, result: SendResult) -> None:
        self._producer = producer
        self.message = message
        """The half message as it was sent, with its `unique_key`."""
        self.send_result = result
        """The result of sending the half message."""
        self.state: LocalTransactionState | None = None
        """The state that the transaction ended with; None while it is open."""

    def __repr__(self) -> str:
        state = self.state.value if self.state is not None else "open"
        return f"<Transaction {self.transaction_id} of {self._producer.group}, {state}>"

    @property
    def transaction_id(self) -> str:
        """The half message's unique id; the broker's checks carry it too."""
        return self.send_result.transaction_id or self.send_result.msg_id

    async def commit(self) -> None:
        """Commit the transaction: the broker delivers the message. If the request is lost, it asks the checker.

        Raises:
            RuntimeError: The transaction has ended already.
        """
        await self.end(LocalTransactionState.COMMIT)

    async def rollback(self) -> None:
        """Roll the transaction back: the broker discards the message. If the request is lost, it asks the checker.

        Raises:
            RuntimeError: The transaction has ended already.
        """
        await self.end(LocalTransactionState.ROLLBACK)

    async def unknown(self) -> None:
        """Leave the transaction open, for its outcome is not known; the broker asks the checker later.

        Raises:
            RuntimeError: The transaction has ended already.
        """
        await self.end(LocalTransactionState.UNKNOWN)

    async def end(self, state: LocalTransactionState, cause: BaseException | None = None) -> None:
        """End the transaction and tell the broker.

        Args:
            state: The outcome of the local transaction.
            cause: The exception that made the local transaction fail; it is logged.

        Raises:
            RuntimeError: The transaction has ended already.
        """
        if self.state is not None:
            raise RuntimeError(f"{self!r} has already ended: {state.value} is not possible")
        # Before the first await, so that a second end is refused while this one is under way.
        self.state = state
        await self._producer.end_transaction(self, state, cause)


class TransactionProducer(Producer):
    """A member of a producer group that sends half messages and answers the broker's checks of transactions.

    Args:
        group: The group's name. Use the group for transactions only, with the same checker in all members.
        settings: Name servers, timeouts, and the number of concurrent checks.
        checker: Returns the state of a local transaction. Its exceptions are logged and count as UNKNOWN.
        topics: Topics whose brokers may ask this producer before it has sent anything, such as the topics that it sent
            to before a crash.
        transport: The transport of connections; TCP by default.
        clock: The clock of birth timestamps; the system clock by default.
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
        """Start the producer, and register it at the brokers of `topics`, which may ask it from now on.

        Raises:
            ClientStateError: The producer was started before.
            GroupInUseError: Another producer of the group has the same `instance_name`.
            NameServersUnreachableError: The addresses of the name servers could not be fetched.
        """
        await super().start()
        await self._client.routes.refresh_all(self._topics)
        await self._client.heartbeat()

    async def _leave(self) -> None:
        """Stop checking: brokers ask other members of the group about the open transactions."""
        self._waiting.clear()
        await cancel(self._checking)
        await super()._leave()

    def publish_topics(self) -> Collection[str]:
        """Return the topics that messages were sent to, and those given to the constructor."""
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
        """Send the half message and wait until a broker has stored it. Consumers get it when the transaction commits.

        The arguments are those of `send`.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed, too large or delayed, or `queue` is of another topic.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the half message; or its status is not SEND_OK, and it has been rolled back.
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
        sending = self._sender.send(outgoing, choose, self._limit(timeout), sync=True)
        result = await (sending if self._traces is None else self._traced([half], sending, self._traces))
        transaction = Transaction(self, half, result)
        # If the broker loses the half message, no check ever asks for the outcome: a local transaction that committed
        # would have no message. Apache's client rolls such half messages back as well.
        if result.status is not SendStatus.SEND_OK:
            await transaction.rollback()
            cause = RemotingError(f"the half message was stored with {result.status.value} and is rolled back")
            raise SendError(message.topic, [result.message_queue.broker_name], [cause]) from cause
        return transaction

    async def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[Message], Awaitable[LocalTransactionState]],
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Send the half message, execute the local transaction, and tell the broker its outcome.

        Args:
            message: The message; the send sets its `unique_key`.
            execute: The local transaction, called with the half message. If it raises, the broker is told UNKNOWN and
                the exception is raised here. If it is cancelled, the broker is told nothing and asks later.
            timeout: Seconds for all attempts to send; `send_timeout` by default.

        Raises:
            ClientStateError: The producer is not running.
            IllegalMessageError: The message is malformed, too large or delayed.
            TopicNotFoundError: The topic does not exist, and brokers do not create it.
            SendError: No broker stored the half message safely; `execute` was not called.
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
        """Send END_TRANSACTION to the broker; if that fails, log a warning: the broker asks later."""
        result, topic = transaction.send_result, self._namespace.wrap(transaction.message.topic)
        # The broker finds the half message by its offset in the commit log, which only the offset id has, and
        # compares the group and the queue offset with it (EndTransactionProcessor.checkPrepareMessage).
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
            if self._traces is not None:
                self._traces.ended(transaction.message, result, state.java_name)
        except RemotingError as error:
            logger.warning(
                "%r: could not send the outcome; the broker will check the transaction: %s",
                transaction,
                error,
            )

    # Checks

    def check_transaction(
        self, connection: Connection, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """Handle a broker's check of a half message: call the checker and send its answer to the broker.

        At most `check_concurrency` checkers run at once. Beyond `check_request_hold_max` waiting checks, a check is
        logged and dropped; the broker asks again later.
        """
        if len(self._waiting) >= self.settings.check_request_hold_max:
            logger.warning(
                "%r: too many checks wait; dropped that of %s, which the broker repeats",
                self,
                message.msg_id,
            )
            return
        self._waiting.append((connection, header, message))
        if len(self._checking) < self.settings.check_concurrency:
            task = self._client.spawn(self._run_checks(), "check transactions")
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)

    async def _run_checks(self) -> None:
        while self._waiting:
            connection, header, message = self._waiting.popleft()
            # The checker gets the topic without the namespace; the answer names it as the broker did.
            topic, message.topic = message.topic, self._namespace.unwrap(message.topic)
            state = await self._state_of(message)
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
                if self._traces is not None:
                    self._traces.ended_by_check(message, message.msg_id, header.transaction_id, state.java_name)
            except RemotingError as error:
                logger.info(
                    "%r: could not answer the check of %s; the broker repeats it: %s",
                    self,
                    message.msg_id,
                    error,
                )

    async def _state_of(self, message: MessageExt) -> LocalTransactionState:
        unpacked = await self._bodies.unpack([message])
        try:
            if unpacked.error is not None:
                raise unpacked.error
            return await self._checker(unpacked.messages[0])
        except Exception:
            logger.exception("%r: the checker failed with message %s of topic %s", self, message.msg_id, message.topic)
            return LocalTransactionState.UNKNOWN
        finally:
            self._bodies.release(unpacked.reserved)
