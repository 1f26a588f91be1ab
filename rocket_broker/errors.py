"""The errors of a name server or a broker that cannot start or cannot be configured.

::

    BrokerError
    ├── DamagedTable           a table's file and its backup are both unreadable: path
    ├── TableUnreadable        the file system refuses to read a table's file: path
    ├── StoreUnusable          the file system refuses the store: path
    ├── AclFileError           a file of accounts is wrong: path
    ├── UnknownAccount         no account has the access key
    ├── SqlError               an SQL92 expression is invalid: line, column, reason (`rocket_broker.filter.sql`)
    ├── SettingError           a settings line is wrong: key, value, origin, problem
    │   ├── UnknownSetting     no version of Apache RocketMQ has this key: suggestion
    │   └── LocalSetting       a request may not change this setting, only the settings file
    └── StartError             the process cannot serve
        ├── AddressInUse       another process listens on the address
        ├── CannotListen       the operating system refuses to listen on the address
        ├── TlsUnusable        a certificate, a key or the trusted certificates cannot be used
        ├── TooFewFiles        the process may not open enough files to take connections
        └── AddressUnreachable the advertised address cannot be connected to

Errors of the wire are ``RemotingError`` (`rocket_remoting.wire.errors`), errors of the disk ``StoreError``
(`rocket_broker.store.errors`).
"""

import errno
import socket
from pathlib import Path

__all__ = [
    "LISTEN_PORT",
    "NO_ROOM",
    "OUT_OF_FILES",
    "AclFileError",
    "AddressInUse",
    "AddressUnreachable",
    "BrokerError",
    "CannotListen",
    "DamagedTable",
    "LocalSetting",
    "SettingError",
    "StartError",
    "StoreUnusable",
    "TableUnreadable",
    "TlsUnusable",
    "TooFewFiles",
    "UnknownAccount",
    "UnknownSetting",
]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The operating system's errors for a full disk."""
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""The operating system's errors for: the process, or the machine, may open no more files."""

LISTEN_PORT = "listenPort or --port"
"""How errors name the setting of the port: who has started a server without a settings file knows the option."""
_MORE_FILES = "Let the process open more files: ulimit -n 65536, or LimitNOFILE=65536 in the unit of systemd"
_OTHER_DIRECTORY = "give the broker another directory (storePathRootDir or --store, storePathCommitLog)"
_REMEDIES = {
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: "Close files of other processes, or raise what the machine allows (fs.file-max)",
    errno.ENOSPC: "Make room on the disk, or {other_directory}",
    errno.EDQUOT: "Make room within the quota, or {other_directory}",
    errno.EROFS: "See in the system's log why the file system is read-only, and mount it for writing",
    errno.EIO: "The disk fails, see the system's log: copy the store to a disk that works",
    errno.ENOMEM: "Let the process have more memory and maps (ulimit -v, vm.max_map_count)",
    errno.EACCES: "Let the user that runs the server read and write it, or {other_directory}",
    errno.EPERM: "Let the user that runs the server read and write it, or {other_directory}",
    errno.EISDIR: "Move the directory away: a file belongs there",
    errno.ENOTDIR: "Move the file away: a directory belongs there",
    errno.ENOLCK: "The file system has no locks: {other_directory} on a local disk",
}


_PASSING = (*NO_ROOM, *OUT_OF_FILES, errno.ENOMEM)
"""Errors of the operating system that may pass while settings and permissions stay as they are."""


class BrokerError(Exception):
    """Base class of the errors of a name server or a broker.

    Attributes:
        may_pass: Whether a later start may succeed although nobody has changed settings or permissions.
    """

    may_pass = False


def _remedy(error: OSError, other_directory: str) -> str:
    """Return the remedy for a file system error that keeps a server from starting."""
    remedy = _REMEDIES.get(error.errno or 0, "See the system's log, or {other_directory}")
    return remedy.format(other_directory=other_directory)


class DamagedTable(BrokerError):  # noqa: N818 - a state, not a mistake
    """A table's file and its backup are both unreadable.

    Attributes:
        path: The table's file.
    """

    def __init__(self, path: Path, problem: str, backup_problem: str) -> None:
        super().__init__(
            f"{path} cannot be read ({problem}), nor its backup ({backup_problem}). Restore one of them, "
            "or move both away to start with an empty table"
        )
        self.path = path


class TableUnreadable(BrokerError):  # noqa: N818 - a state, not a mistake
    """The file system refuses to read a table; the table itself may be intact.

    Attributes:
        path: The table's file.
        error: The error of the operating system.
    """

    def __init__(self, path: Path, error: OSError, other_directory: str = _OTHER_DIRECTORY) -> None:
        """Make the error.

        Args:
            path: The table's file.
            error: The error of the operating system.
            other_directory: The advice how to use another directory.
        """
        super().__init__(f"{path} cannot be read: {error.strerror or error}. {_remedy(error, other_directory)}")
        self.path = path
        self.error = error
        self.may_pass = error.errno in _PASSING


class StoreUnusable(BrokerError):  # noqa: N818 - a state, not a mistake
    """The file system refuses to read or write the store.

    Attributes:
        path: The store's directory.
        error: The error of the operating system.
    """

    def __init__(self, path: Path, error: OSError, other_directory: str = _OTHER_DIRECTORY) -> None:
        """Make the error; the arguments are those of `TableUnreadable`, with the store's directory."""
        reason = f"{error.filename or path}: {error.strerror or error}"
        super().__init__(f"the store in {path} cannot be used: {reason}. {_remedy(error, other_directory)}")
        self.path = path
        self.error = error
        self.may_pass = error.errno in _PASSING


class AclFileError(BrokerError):
    """A file of accounts is wrong; the text names the file and the line.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {problem}")
        self.path = path


class UnknownAccount(BrokerError):  # noqa: N818 - a state, not a mistake
    """No account has the access key."""


class SettingError(BrokerError):
    """A setting has a value that is not allowed.

    Attributes:
        key: The setting, as Apache's files spell it.
        value: The value as written.
        origin: Where it was written: ``broker.conf:12``, ``option -n``, ``environment variable NAMESRV_ADDR``.
        problem: What is wrong, and what was expected.
    """

    def __init__(self, key: str, value: str, origin: str, problem: str) -> None:
        super().__init__(f"{origin}: {key}={value}: {problem}")
        self.key = key
        self.value = value
        self.origin = origin
        self.problem = problem


class UnknownSetting(SettingError):  # noqa: N818 - a state, not a mistake
    """No version of Apache RocketMQ has the key.

    Attributes:
        suggestion: The most similar key that exists; None if no key is similar.
    """

    def __init__(self, key: str, value: str, origin: str, suggestion: str | None) -> None:
        hint = f"did you mean {suggestion}?" if suggestion else "no key of RocketMQ 4.9 or 5.3 has a similar name"
        super().__init__(key, value, origin, f"unknown key; {hint}")
        self.suggestion = suggestion


class LocalSetting(SettingError):  # noqa: N818 - a state, not a mistake
    """A request tries to change a setting that only the settings file may change."""


class StartError(BrokerError):
    """The process cannot start serving.

    Attributes:
        address: The ``host:port`` that the error is about.
    """

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class AddressInUse(StartError):  # noqa: N818 - a state, not a mistake
    """Another process listens on the address."""

    may_pass = True

    def __init__(self, address: str, setting: str) -> None:
        super().__init__(
            address, f"{address} is in use by another process: stop it or choose another port with {setting}"
        )


class CannotListen(StartError):  # noqa: N818 - a state, not a mistake
    """The operating system refuses to listen on an address that is not in use."""

    def __init__(self, address: str, error: OSError, host: str = "bindAddress", port: str = LISTEN_PORT) -> None:
        remedy = _listening(error, host, port)
        super().__init__(address, f"cannot listen on {address}: {error.strerror or error}{remedy}")
        self.may_pass = error.errno in _PASSING


def _listening(error: OSError, host: str, port: str) -> str:
    """Return the remedy for an error of listening, as the end of a sentence; `host` and `port` are the settings."""
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f". Set {host} to an address of this machine"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f". Set {port} to 1024 or more, or let the process bind ports below (CAP_NET_BIND_SERVICE)"
    return f". {_REMEDIES[error.errno]}" if error.errno in OUT_OF_FILES else ""


class TlsUnusable(StartError):  # noqa: N818 - a state, not a mistake
    """A certificate, a key or the file of trusted certificates cannot be used."""

    def __init__(self, address: str, error: Exception, attempt: str = "serve") -> None:
        super().__init__(address, f"cannot {attempt} TLS at {address}: {error}")


class TooFewFiles(StartError):  # noqa: N818 - a state, not a mistake
    """The process has opened nearly all the files that it may open, so it cannot accept connections."""

    may_pass = True

    def __init__(self, address: str) -> None:
        super().__init__(
            address,
            f"no client could connect to {address}: this process has nearly reached its limit of open files. "
            f"{_MORE_FILES}",
        )


class AddressUnreachable(StartError):  # noqa: N818 - a state, not a mistake
    """The advertised address cannot be connected to, so no client could reach the broker."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            address,
            f"the advertised address {address}, where clients would be sent, cannot be reached ({reason}). "
            "Set brokerIP1 to an address of this machine that they can reach, and bindAddress to "
            "one that accepts it (0.0.0.0 accepts all)",
        )
