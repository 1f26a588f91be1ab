"""The result of a send."""

from enum import Enum
from typing import NamedTuple

from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.message import MessageQueue


class SendStatus(Enum):
    """How safely the message was stored. The master has stored it in each of these cases."""

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
    """The status of the sent message, its ids, and its place in a queue."""

    status: SendStatus
    msg_id: str
    """The unique id that this client gave the message; of a batch the ids, separated by commas."""
    offset_msg_id: str
    """The broker's id, made of its address and the record's commit log offset; of a batch separated by commas."""
    message_queue: MessageQueue
    queue_offset: int
    """The message's offset in the queue; of a batch that of the first message."""
    transaction_id: str | None = None
    region: str | None = None
    """The broker's region, for message traces; None if the broker wants none."""
