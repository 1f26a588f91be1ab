"""The two kinds of messages that are stored together: those of a batch, and those of consecutive requests."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rocket_broker.writing.batch_head import BatchHead
from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.record import HOST_FLAGS, host_flags, pack_host

if TYPE_CHECKING:
    from rocket_native import PlainBatch, PlainSends, Run

__all__ = ["BatchRun", "SendsRun"]

_packed_host = lru_cache(maxsize=4096)(pack_host)


@lru_cache(maxsize=4096)
def _born_host(address: str, store_host: Host) -> tuple[bytes, int]:
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

    __slots__ = ("_head", "_messages", "_store_host", "longest_body", "tags_codes", "targets")

    def __init__(self, messages: "PlainBatch", head: BatchHead, store_host: Host) -> None:
        self._messages = messages
        self._head = head
        self._store_host = store_host
        self.longest_body = messages.longest_body
        self.targets = ((head.topic, head.queue_id),)
        self.tags_codes = (messages.tags_codes,)

    def pack(self, queue_offsets: list[int], commit_log_offset: int, now: int) -> "Run":
        """As in `MessageRun`."""
        head = self._head
        (queue_offset,) = queue_offsets
        return self._messages.run(
            topic=head.topic,
            queue_id=head.queue_id,
            properties=head.properties,
            sys_flag=head.sys_flag & ~HOST_FLAGS,
            host_flags=host_flags(head.born_host, self._store_host),
            born_timestamp=head.born_timestamp,
            born_host=_packed_host(head.born_host),
            store_host=_packed_host(self._store_host),
            reconsume_times=head.reconsume_times,
            store_timestamp=now,
            queue_offset=queue_offset,
            commit_log_offset=commit_log_offset,
        )


class SendsRun:
    """The messages of consecutive requests of connections.

    Args:
        messages: The messages.
        targets: The queues that get messages.
        received: The connections, each with what it has received.
        store_host: The broker's address.
    """

    __slots__ = ("_messages", "_received", "_store_host", "longest_body", "tags_codes", "targets")

    def __init__(
        self,
        messages: "PlainSends",
        targets: Sequence[tuple[str, int]],
        received: Sequence[tuple[Connection, object]],
        store_host: Host,
    ) -> None:
        self._messages = messages
        self._received = received
        self._store_host = store_host
        self.longest_body = messages.longest_body
        self.targets = targets
        self.tags_codes = messages.tags_codes

    def pack(self, queue_offsets: list[int], commit_log_offset: int, now: int) -> "Run":
        """As in `MessageRun`."""
        store = self._store_host
        return self._messages.run(
            queue_offsets=queue_offsets,
            commit_log_offset=commit_log_offset,
            store_timestamp=now,
            born_hosts=[_born_host(connection.remote_address, store) for connection, _ in self._received],
            store_host=_packed_host(store),
        )
