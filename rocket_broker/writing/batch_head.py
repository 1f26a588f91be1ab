"""What the messages of a batch have in common."""

import msgspec

from rocket_remoting.wire.message import Host

__all__ = ["BatchHead"]


class BatchHead(msgspec.Struct, gc=False):
    """What the messages of a batch have in common.

    Attributes:
        topic: Where they belong.
        queue_id: Queue of the topic.
        properties: What each gets at the end of its own, in wire form.
        sys_flag: Bits of `rocket_remoting.wire.sys_flag`.
        born_timestamp: When they were made.
        born_host: By whom.
        reconsume_times: Redeliveries so far.
    """

    topic: str
    queue_id: int
    properties: bytes
    sys_flag: int
    born_timestamp: int
    born_host: Host
    reconsume_times: int
