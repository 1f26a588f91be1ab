"""The common fields of the messages of a batch."""

import msgspec

from rocket_remoting.wire.message import Host

__all__ = ["BatchHead"]


class BatchHead(msgspec.Struct, gc=False):
    """The common fields of the messages of a batch.

    Attributes:
        topic: Topic of the messages.
        queue_id: Queue of the topic.
        properties: Properties that follow those of each message, in wire form.
        sys_flag: Bits of `rocket_remoting.wire.sys_flag`.
        born_timestamp: Born time of the messages, in milliseconds since 1970.
        born_host: Address of the producer.
        reconsume_times: Number of redeliveries so far.
    """

    topic: str
    queue_id: int
    properties: bytes
    sys_flag: int
    born_timestamp: int
    born_host: Host
    reconsume_times: int
