from rocket_client.admin import Admin as Admin
from rocket_client.allocation import AllocateMessageQueueStrategy as AllocateMessageQueueStrategy
from rocket_client.allocation import ByConfig as ByConfig
from rocket_client.allocation import ConsistentHash as ConsistentHash
from rocket_client.allocation import MachineRoom as MachineRoom
from rocket_client.allocation import MachineRoomNearby as MachineRoomNearby
from rocket_client.allocation import averagely as averagely
from rocket_client.allocation import averagely_by_circle as averagely_by_circle
from rocket_client.consuming.group_consumer import RebalanceListener as RebalanceListener
from rocket_client.consuming.listener import SUCCESS as SUCCESS
from rocket_client.consuming.listener import ConcurrentListener as ConcurrentListener
from rocket_client.consuming.listener import ConcurrentOutcome as ConcurrentOutcome
from rocket_client.consuming.listener import ConsumeContext as ConsumeContext
from rocket_client.consuming.listener import OrderlyListener as OrderlyListener
from rocket_client.consuming.listener import OrderlyOutcome as OrderlyOutcome
from rocket_client.consuming.listener import Reject as Reject
from rocket_client.consuming.listener import RetryLater as RetryLater
from rocket_client.consuming.listener import Room as Room
from rocket_client.consuming.listener import Success as Success
from rocket_client.consuming.listener import Suspend as Suspend
from rocket_client.consuming.lite_pull_consumer import LitePullConsumer as LitePullConsumer
from rocket_client.consuming.pull_consumer import PullConsumer as PullConsumer
from rocket_client.consuming.pull_consumer import PullResult as PullResult
from rocket_client.consuming.push_consumer import PushConsumer as PushConsumer
from rocket_client.core.pull_answer import PullStatus as PullStatus
from rocket_client.core.selectors import MessageQueueSelector as MessageQueueSelector
from rocket_client.core.selectors import select_by_hash as select_by_hash
from rocket_client.core.selectors import select_by_random as select_by_random
from rocket_client.core.send_result import SendResult as SendResult
from rocket_client.core.send_result import SendStatus as SendStatus
from rocket_client.core.state import ServiceState as ServiceState
from rocket_client.errors import BrokerNotFoundError as BrokerNotFoundError
from rocket_client.errors import ClientError as ClientError
from rocket_client.errors import ClientStateError as ClientStateError
from rocket_client.errors import GroupInUseError as GroupInUseError
from rocket_client.errors import IllegalMessageError as IllegalMessageError
from rocket_client.errors import IllegalOffsetError as IllegalOffsetError
from rocket_client.errors import MessageTooLargeError as MessageTooLargeError
from rocket_client.errors import NameServersUnreachableError as NameServersUnreachableError
from rocket_client.errors import NoBrokerError as NoBrokerError
from rocket_client.errors import QueueNotAssignedError as QueueNotAssignedError
from rocket_client.errors import ReplyTimeoutError as ReplyTimeoutError
from rocket_client.errors import SendError as SendError
from rocket_client.errors import SendRejectedError as SendRejectedError
from rocket_client.errors import SendTimeoutError as SendTimeoutError
from rocket_client.errors import TopicNotFoundError as TopicNotFoundError
from rocket_client.errors import UnreadableBodyError as UnreadableBodyError
from rocket_client.namespace import Namespace as Namespace
from rocket_client.producing.producer import Producer as Producer
from rocket_client.producing.transaction_producer import LocalTransactionState as LocalTransactionState
from rocket_client.producing.transaction_producer import Transaction as Transaction
from rocket_client.producing.transaction_producer import TransactionChecker as TransactionChecker
from rocket_client.producing.transaction_producer import TransactionProducer as TransactionProducer
from rocket_client.producing.transaction_producer import TransactionSendResult as TransactionSendResult
from rocket_client.settings import ClientSettings as ClientSettings
from rocket_client.settings import ConsumeFromWhere as ConsumeFromWhere
from rocket_client.settings import LitePullConsumerSettings as LitePullConsumerSettings
from rocket_client.settings import MessageModel as MessageModel
from rocket_client.settings import ProducerSettings as ProducerSettings
from rocket_client.settings import PullConsumerSettings as PullConsumerSettings
from rocket_client.settings import PushConsumerSettings as PushConsumerSettings
from rocket_client.settings import TransactionProducerSettings as TransactionProducerSettings
from rocket_remoting.wire.message import Message as Message
from rocket_remoting.wire.message import MessageExt as MessageExt
from rocket_remoting.wire.message import MessageQueue as MessageQueue

__all__ = [
    "SUCCESS",
    "Admin",
    "AllocateMessageQueueStrategy",
    "BrokerNotFoundError",
    "ByConfig",
    "ClientError",
    "ClientSettings",
    "ClientStateError",
    "ConcurrentListener",
    "ConcurrentOutcome",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "GroupInUseError",
    "IllegalMessageError",
    "IllegalOffsetError",
    "LitePullConsumer",
    "LitePullConsumerSettings",
    "LocalTransactionState",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageQueueSelector",
    "MessageTooLargeError",
    "NameServersUnreachableError",
    "Namespace",
    "NoBrokerError",
    "OrderlyListener",
    "OrderlyOutcome",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerSettings",
    "QueueNotAssignedError",
    "RebalanceListener",
    "Reject",
    "ReplyTimeoutError",
    "RetryLater",
    "Room",
    "SendError",
    "SendRejectedError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "ServiceState",
    "Success",
    "Suspend",
    "TopicNotFoundError",
    "Transaction",
    "TransactionChecker",
    "TransactionProducer",
    "TransactionProducerSettings",
    "TransactionSendResult",
    "UnreadableBodyError",
    "averagely",
    "averagely_by_circle",
    "select_by_hash",
    "select_by_random",
]
