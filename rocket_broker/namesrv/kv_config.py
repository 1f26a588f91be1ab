"""A small key-value store in namespaces, kept in Apache's ``kvConfig.json``.

Its one use inside RocketMQ is the namespace ``ORDER_TOPIC_CONFIG``: topics whose queues are listed by hand.
"""

from pathlib import Path

import msgspec

from rocket_broker.table_file import TableFile
from rocket_remoting.bodies import Body, decode_body, encode_body

__all__ = ["ORDER_TOPIC_CONFIG", "KVConfig"]

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class _Stored(Body):
    """``{"configTable": {namespace: {key: value}}}``"""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """The values; every change is on the disk before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = TableFile(path)
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, _Stored))
        if stored is not None:
            self._table = stored.config_table

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value, if there is one."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._save()

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace, or None when nothing was ever put into it."""
        return self._table.get(namespace)

    def _save(self) -> None:
        stored = _Stored(config_table=self._table)
        self._file.write(encode_body(stored))
