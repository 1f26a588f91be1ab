"""The errors of a broker and a name server that cannot start or be configured.

::

    BrokerError
    ├── DamagedTable           a table's file and its backup are unreadable: path
    ├── StoreUnusable          the file system refuses the store: path
    ├── SqlError               an expression is none: line, column, reason (`rocket_broker.filter.sql`)
    ├── SettingError           a settings line is wrong: key, value, origin, problem
    │   ├── UnknownSetting     no version of Apache RocketMQ has this key: suggestion
    │   └── LocalSetting       a request may not change this setting, only the settings file
    └── StartError             the process cannot serve
        ├── AddressInUse       somebody else listens on the address
        └── AddressUnreachable the address that clients would be told cannot be connected to

What goes wrong on the wire is a ``RemotingError`` (`rocket_remoting.errors`), what goes wrong on the disk a
``StoreError`` (`rocket_broker.store.errors`).
"""

from pathlib import Path

__all__ = [
    "AddressInUse",
    "AddressUnreachable",
    "BrokerError",
    "DamagedTable",
    "LocalSetting",
    "SettingError",
    "StartError",
    "StoreUnusable",
    "UnknownSetting",
]


class BrokerError(Exception):
    """A name server or broker cannot do what was asked of it."""


class DamagedTable(BrokerError):  # noqa: N818 - a state, not a mistake
    """A table of the broker cannot be read, nor its backup.

    Attributes:
        path: The table's file.
    """

    def __init__(self, path: Path, problem: str, backup_problem: str) -> None:
        super().__init__(
            f"{path} cannot be read ({problem}), nor its backup ({backup_problem}). Restore one of them, "
            "or move both away to start with an empty table"
        )
        self.path = path


class StoreUnusable(BrokerError):  # noqa: N818 - a state, not a mistake
    """The file system refuses to read or write the store.

    Attributes:
        path: The store's directory.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"the store in {path} cannot be used: {error.filename or path}: {error.strerror or error}. "
            "Give the broker a directory that it may write to (storePathRootDir)"
        )
        self.path = path


class SettingError(BrokerError):
    """A setting has a value that it cannot have.

    Attributes:
        key: The setting, as Apache's files spell it.
        value: What was written.
        origin: Where: ``broker.conf:12``, ``option -n``, ``environment variable NAMESRV_ADDR``.
        problem: What is wrong and what was expected.
    """

    def __init__(self, key: str, value: str, origin: str, problem: str) -> None:
        super().__init__(f"{origin}: {key}={value}: {problem}")
        self.key = key
        self.value = value
        self.origin = origin
        self.problem = problem


class UnknownSetting(SettingError):  # noqa: N818 - a state, not a mistake
    """No version of Apache RocketMQ knows the key.

    Attributes:
        suggestion: The nearest key that exists, if one is near.
    """

    def __init__(self, key: str, value: str, origin: str, suggestion: str | None) -> None:
        hint = f"did you mean {suggestion}?" if suggestion else "no key of RocketMQ 4.9 or 5.3 is like it"
        super().__init__(key, value, origin, f"unknown key; {hint}")
        self.suggestion = suggestion


class LocalSetting(SettingError):  # noqa: N818 - a state, not a mistake
    """A request asks for a change that only somebody who starts the server may make, or nobody."""


class StartError(BrokerError):
    """The process cannot start serving.

    Attributes:
        address: ``host:port`` that is the trouble.
    """

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class AddressInUse(StartError):  # noqa: N818 - a state, not a mistake
    """Somebody else listens on the address."""

    def __init__(self, address: str, setting: str) -> None:
        super().__init__(
            address, f"{address} is in use by another process: stop it or choose another port with {setting}"
        )


class AddressUnreachable(StartError):  # noqa: N818 - a state, not a mistake
    """The address this broker would be known by cannot be connected to, so no client could reach it."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            address,
            f"the advertised address {address}, where clients would be sent, cannot be reached ({reason}). "
            "Set brokerIP1 to an address of this machine that they can reach, and bindAddress to "
            "one that accepts it (0.0.0.0 accepts all)",
        )
