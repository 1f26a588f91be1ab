"""Transactions: half messages of a channel, sent and answered for by a transaction producer of `rocket_client`."""

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
    """One open way to a topic for messages of transactions."""

    producer: TransactionProducer

    async def begin(self, message: Message[bytes]) -> Transaction:
        """Store a half message; how the transaction ends is told one way, and asked for when that gets lost.

        Raises:
            BinderError: The broker refused it or none could be reached, or it is delayed.
            UnsupportedCapability: It asks for a delay that is none of the broker's delay levels.
        """
        rocket_message = self._to_rocket(message)
        partition = message.headers.get(PARTITION)
        selector = None if partition is None else select_partition
        try:
            return await self.producer.begin(rocket_message, selector=selector, argument=partition)
        except RemotingError as error:
            raise self._unsent(error) from error


def rocket_checker(checker: TransactionChecker) -> RocketTransactionChecker:
    """The checker as `rocket_client` calls it."""

    async def check(message: MessageExt) -> LocalTransactionState:
        headers = MessageHeaders.adopt(from_message(message))
        return _STATES[await checker(Message(bytes(message.body), headers))]

    return check
