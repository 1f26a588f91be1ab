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

__all__ = ["MAX_CHARACTERS", "ORDER_TOPIC_CONFIG", "KVConfig"]

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

MAX_CHARACTERS = 2 * 1024 * 1024
"""Characters of all namespaces, keys and values: every change writes all of them, and the answer to each registration
of a broker has those of one namespace. One address may store at most a quarter of them."""


class _Stored(Body):
    """``{"configTable": {namespace: {key: value}}}``"""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """The key-value configuration; every change is on the disk before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = TableFile(path)
        self._table: dict[str, dict[str, str]] = {}
        self._characters = 0
        self._quota = OwnerQuota("characters of the key-value configuration", lambda: MAX_CHARACTERS)
        self._owners: dict[tuple[str, str], str] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, _Stored))
        if stored is not None:
            self._table = stored.config_table
            self._characters = sum(
                len(namespace) + sum(len(key) + len(value) for key, value in values.items())
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
            Refusal: There would be more than `MAX_CHARACTERS`, or the owner would have more than its quota.
        """
        values = self._table.get(namespace)
        known = values.get(key) if values is not None else None
        of_namespace = len(namespace) if values is None else 0
        before = len(key) + len(known) if known is not None else 0
        after = len(key) + len(value)
        if (
            # A change that makes the table smaller is always admitted, also when it is full.
            of_namespace + after > before and self._characters + of_namespace + after - before > MAX_CHARACTERS
        ):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value configuration has {self._characters} characters; the limit is {MAX_CHARACTERS}",
            )
        former = self._owners.get((namespace, key), "")
        self._quota.check(of_namespace + after - (before if former == owner else 0), owner)
        self._quota.count(-before, former)
        self._quota.count(of_namespace + after, owner)  # a namespace remains when its last value is deleted
        self._owners[namespace, key] = owner
        self._characters += of_namespace + after - before
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if there is one."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._quota.count(-len(key) - len(value), self._owners.pop((namespace, key), ""))
            self._characters -= len(key) + len(value)
            self._save()

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace, or None if it was never used."""
        return self._table.get(namespace)

    def _save(self) -> None:
        stored = _Stored(config_table=self._table)
        self._file.write(encode_body(stored))
