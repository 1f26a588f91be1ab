"""Transactions: a transaction producer of `rocket_client` sends half messages and answers the brokers' checks."""

from binders.rocket.headers import from_message
from binders.rocket.producer import RocketProducerBinding, select_partition
from rocket_client import LocalTransactionState, Transaction, TransactionProducer
from rocket_client import TransactionChecker as RocketTransactionChecker
from rocket_remoting import RemotingError
from rocket_remoting.wire.message import MessageExt
from streamkit.binder.binder import TransactionalProducerBinding, TransactionChecker
from streamkit.messaging.headers import PARTITION, MessageHeaders
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

_STATES = {state: LocalTransactionState(state.value) for state in TransactionState}


class RocketTransactionalProducerBinding(RocketProducerBinding, TransactionalProducerBinding):
    """A binding that sends the messages of local transactions to one topic."""

    producer: TransactionProducer

    async def begin(self, message: Message[bytes]) -> Transaction:
        """Send a half message, and return the transaction that commits it or rolls it back.

        The end of the transaction is sent without an answer. If that request gets lost, the broker asks the checker.

        Raises:
            BinderError: The broker refused the message, no broker could be reached, or the message has a delay.
            UnsupportedCapability: The message asks for a delay that is not a delay level, and the brokers have no timer
                wheel.
        """
        rocket_message = self._to_rocket(message)
        partition = message.headers.get(PARTITION)
        selector = None if partition is None else select_partition
        try:
            return await self.producer.begin(rocket_message, selector=selector, argument=partition)
        except RemotingError as error:
            raise self._unsent(error) from error


def rocket_checker(checker: TransactionChecker) -> RocketTransactionChecker:
    """Return the framework's checker as a checker for `rocket_client`."""

    async def check(message: MessageExt) -> LocalTransactionState:
        headers = MessageHeaders.adopt(from_message(message))
        return _STATES[await checker(Message(bytes(message.body), headers))]

    return check
