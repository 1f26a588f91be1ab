"""What comes back from a send."""

from enum import Enum
from typing import NamedTuple

from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.message import MessageQueue


class SendStatus(Enum):
    """How safely the message is stored; in each of these cases it is."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The broker flushes synchronously, and the flush did not end in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """The broker replicates synchronously, and the slave did not confirm in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """The broker replicates synchronously, and has no slave near enough."""


STATUS_OF_RESPONSE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where the message is now."""

    status: SendStatus
    msg_id: str
    """The id this client gave it; of a batch the ids, separated by commas."""
    offset_msg_id: str
    """The id that tells where the record lies; of a batch likewise."""
    message_queue: MessageQueue
    queue_offset: int
    """Its place in the queue; of a batch the first one's."""
    transaction_id: str | None = None
