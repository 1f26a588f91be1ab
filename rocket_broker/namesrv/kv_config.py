"""A small key-value store in namespaces, kept in Apache's ``kvConfig.json``.

Its one use inside RocketMQ is the namespace ``ORDER_TOPIC_CONFIG``: topics whose queues are listed by hand.
"""

from pathlib import Path

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.bodies import Body, decode_body, encode_body
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_BYTES", "ORDER_TOPIC_CONFIG", "KVConfig"]

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

MAX_BYTES = 2 * 1024 * 1024
"""Bytes of all namespaces, keys and values in the file: every change writes all of them in one step of the loop, in
some four milliseconds, and the answer to each registration of a broker has those of one namespace. One address may
store at most a quarter of them."""
ENTRY_BYTES = 16
"""Bytes that a key or a namespace counts in addition, because many short ones take longer to write than a long one."""


class _Stored(Body):
    """``{"configTable": {namespace: {key: value}}}``"""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """The key-value configuration; every change is on the disk before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = TableFile(path)
        self._table: dict[str, dict[str, str]] = {}
        self._bytes = 0
        self._quota = OwnerQuota("bytes of the key-value configuration", lambda: MAX_BYTES)
        self._owners: dict[tuple[str, str], str] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, _Stored))
        if stored is not None:
            self._table = stored.config_table
            self._bytes = sum(
                _size(namespace) + sum(_size_of_entry(key, value) for key, value in values.items())
                for namespace, values in self._table.items()
            )

    def put(self, namespace: str, key: str, value: str, owner: str = "") -> None:
        """Set a value.

        Args:
            namespace: The namespace.
            key: The key.
            value: The value.
            owner: The address to whose quota key and value count.

        Raises:
            Refusal: There would be more than `MAX_BYTES`, or the owner would have more than its quota.
        """
        values = self._table.get(namespace)
        known = values.get(key) if values is not None else None
        of_namespace = _size(namespace) if values is None else 0
        before = _size_of_entry(key, known) if known is not None else 0
        after = _size_of_entry(key, value)
        if (
            # A change that makes the table smaller is always admitted, also when it is full.
            of_namespace + after > before and self._bytes + of_namespace + after - before > MAX_BYTES
        ):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value configuration has {self._bytes} bytes; the limit is {MAX_BYTES}",
            )
        former = self._owners.get((namespace, key), "")
        self._quota.check(of_namespace + after - (before if former == owner else 0), owner)
        self._quota.count(-before, former)
        self._quota.count(of_namespace + after, owner)  # a namespace remains when its last value is deleted
        self._owners[namespace, key] = owner
        self._bytes += of_namespace + after - before
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if there is one."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            size = _size_of_entry(key, value)
            self._quota.count(-size, self._owners.pop((namespace, key), ""))
            self._bytes -= size
            self._save()

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace, or None if it was never used."""
        return self._table.get(namespace)

    def _save(self) -> None:
        stored = _Stored(config_table=self._table)
        self._file.write(encode_body(stored))


def _size_of_entry(key: str, value: str) -> int:
    return _size(key) + _encoded(value)


def _size(name: str) -> int:
    return ENTRY_BYTES + _encoded(name)


def _encoded(text: str) -> int:
    """Return the bytes of a text in the file, without its quotes."""
    return len(msgspec.json.encode(text)) - 2
