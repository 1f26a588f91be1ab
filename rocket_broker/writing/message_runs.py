"""The two kinds of messages that are stored together: those of a batch, and those of consecutive requests."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rocket_broker.writing.batch_head import BatchHead
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.record import HOST_FLAGS, host_flags, pack_host

if TYPE_CHECKING:
    from rocket_native import PlainBatch, PlainSends, Run

__all__ = ["BatchRun", "SendsRun"]

_packed_host = lru_cache(maxsize=4096)(pack_host)


class BatchRun:
    """The messages of a batch, or of a part of one.

    Args:
        messages: The messages.
        head: What they have in common; its properties have no zero byte.
        store_host: The broker's address.
    """

    __slots__ = ("_head", "_messages", "_store_host", "tags_codes", "targets")

    def __init__(self, messages: "PlainBatch", head: BatchHead, store_host: Host) -> None:
        self._messages = messages
        self._head = head
        self._store_host = store_host
        self.targets = ((head.topic, head.queue_id),)
        self.tags_codes = (messages.tags_codes,)

    @property
    def longest_body(self) -> int:
        """As in `MessageRun`."""
        return self._messages.longest_body

    @property
    def longest_properties(self) -> int:
        """As in `MessageRun`."""
        return self._messages.longest_properties + len(self._head.properties)

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
        born_hosts: The producer's address of each connection.
        store_host: The broker's address.
    """

    __slots__ = ("_born_hosts", "_messages", "_store_host", "tags_codes", "targets")

    def __init__(self, messages: "PlainSends", born_hosts: Sequence[Host], store_host: Host) -> None:
        self._messages = messages
        self._born_hosts = born_hosts
        self._store_host = store_host
        self.targets = messages.targets
        self.tags_codes = messages.tags_codes

    @property
    def longest_body(self) -> int:
        """As in `MessageRun`."""
        return self._messages.longest_body

    @property
    def longest_properties(self) -> int:
        """As in `MessageRun`."""
        return self._messages.longest_properties

    def pack(self, queue_offsets: list[int], commit_log_offset: int, now: int) -> "Run":
        """As in `MessageRun`."""
        store = self._store_host
        return self._messages.run(
            queue_offsets=queue_offsets,
            commit_log_offset=commit_log_offset,
            store_timestamp=now,
            born_hosts=[(_packed_host(born), host_flags(born, store)) for born in self._born_hosts],
            store_host=_packed_host(store),
        )
