"""The messages of a batch, stored together. Those of consecutive requests are `rocket_native.PlainSends`."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rocket_broker.store.state import IndexState, LogState, QueueState
from rocket_broker.writing.batch_head import BatchHead
from rocket_remoting.session.address import parse_address
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.record import HOST_FLAGS, host_flags, pack_host

if TYPE_CHECKING:
    from rocket_native import PlainBatch, Run

__all__ = ["BatchRun", "packed_born_host", "packed_host"]

packed_host = lru_cache(maxsize=4096)(pack_host)


@lru_cache(maxsize=4096)
def packed_born_host(address: str, store_host: Host) -> tuple[bytes, int]:
    """Return a producer's address as a record has it, and the bits of the system flag that say so."""
    born_host = parse_address(address)
    return pack_host(born_host), host_flags(born_host, store_host)


class BatchRun:
    """The messages of a batch, or of a part of one.

    Args:
        messages: The messages.
        head: What they have in common; its properties have no zero byte.
        store_host: The broker's address.
    """

    __slots__ = ("_head", "_messages", "_store_host", "longest_body", "tags_codes", "targets", "topics")

    def __init__(self, messages: "PlainBatch", head: BatchHead, store_host: Host) -> None:
        self._messages = messages
        self._head = head
        self._store_host = store_host
        self.longest_body = messages.longest_body
        self.targets = ((head.topic, head.queue_id),)
        self.topics = (head.topic,)
        self.tags_codes = (messages.tags_codes,)

    def pack(self, log: LogState, queues: Sequence[QueueState], index: IndexState | None, now: int) -> "Run":
        """As in `MessageRun`."""
        head = self._head
        (queue,) = queues
        return self._messages.run(
            topic=head.topic,
            queue_id=head.queue_id,
            properties=head.properties,
            sys_flag=head.sys_flag & ~HOST_FLAGS,
            host_flags=host_flags(head.born_host, self._store_host),
            born_timestamp=head.born_timestamp,
            born_host=packed_host(head.born_host),
            store_host=packed_host(self._store_host),
            reconsume_times=head.reconsume_times,
            store_timestamp=now,
            queue_offset=queue.max_offset,
            commit_log_offset=log.end,
        )
