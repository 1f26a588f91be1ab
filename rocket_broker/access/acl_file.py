"""A file of accounts, ``plain_acl.yml``, in the format of RocketMQ 4.9: read with lines for errors, and rewritten.

::

    globalWhiteRemoteAddresses:
      - 10.10.103.*
    accounts:
      - accessKey: RocketMQ            more than 6 characters
        secretKey: "12345678"          more than 6 characters; without quotes it is the same text
        whiteRemoteAddress: 192.168.0.*
        admin: false
        defaultTopicPerm: DENY         DENY, PUB, SUB or PUB|SUB; without it DENY
        defaultGroupPerm: SUB
        topicPerms:
          - orders=PUB|SUB
        groupPerms:
          - kitchen=SUB
    dataVersion:                       written by changes that requests make
      - counter: 1
        timestamp: 1700000000000

A change keeps what is not understood here, except comments. No error and no log record has a secret key.
"""

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from rocket_broker.access.account import DENY, MIN_KEY, Account, parse_permission
from rocket_broker.access.remote_address import AddressPattern, NoAddress, parse_patterns
from rocket_broker.errors import AclFileError
from rocket_broker.settings.properties_file import replace_text
from rocket_remoting.wire.bodies import DataVersion
from rocket_remoting.wire.topics import retry_topic
from streamkit.yaml_bounds import YamlTooLargeError, check_bounds

__all__ = ["AclFile", "change_file", "read_file"]

logger = logging.getLogger(__name__)

MAX_FILE = 16 * 1024 * 1024
"""Maximum bytes of a file: some 50,000 accounts."""

_NULL = "tag:yaml.org,2002:null"
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_ACCOUNT_KEYS = (
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
    "groupPerms",
)  # fmt: skip
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class AclFile:
    """The contents of a file of accounts."""

    path: Path
    white_list: tuple[AddressPattern, ...] = ()
    accounts: tuple[Account, ...] = ()
    version: DataVersion = field(default_factory=lambda: DataVersion(timestamp=0, counter=0))


def read_file(path: Path) -> AclFile:
    """Return the contents of a file; an empty file has no accounts.

    Raises:
        AclFileError: The file cannot be read, is not YAML, or an entry is wrong.
    """
    return _contents(path, _compose(path, _read(path)))


def contents_of(path: Path, white_list: Sequence[str], accounts: Sequence[Mapping[str, object]]) -> AclFile:
    """Return the contents that a file with this white list and these accounts would have.

    Args:
        path: The file.
        white_list: The entries of `globalWhiteRemoteAddresses`.
        accounts: The values of each account by their names in the file.

    Raises:
        AclFileError: A value is wrong.
    """
    contents = {"globalWhiteRemoteAddresses": list(white_list), "accounts": [dict(account) for account in accounts]}
    return _contents(path, _compose(path, _dump(contents)))


def change_file(path: Path, change: Callable[[dict[str, object]], None], now_ms: int) -> None:
    """Change a file, or create it, and count the change in its version. Readers see the old file or the new one.

    Args:
        path: The file.
        change: Changes the contents: the lists of accounts and addresses, with all scalars as texts.
        now_ms: The time of the change.

    Raises:
        AclFileError: The file cannot be read or written, or would be wrong after the change. It is unchanged then.
    """
    root = _compose(path, _read(path)) if path.exists() else None
    version = _contents(path, root).version
    contents: dict[str, object] = {} if root is None else cast(dict[str, object], _texts(root))
    change(contents)
    contents["dataVersion"] = [{"counter": version.counter + 1, "timestamp": now_ms}]
    data = _dump(contents)
    _contents(path, _compose(path, data))
    try:
        replace_text(path, data.decode())
    except OSError as error:
        raise AclFileError(path, None, f"cannot be written: {error.strerror or error}") from error


def _dump(contents: Mapping[str, object]) -> bytes:
    text: str = yaml.dump(contents, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text.encode()


class _Dumper(yaml.SafeDumper):
    """Writes texts without quotes where they were without quotes."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Plain(str):
    """A text that stands in the file without quotes, whatever YAML takes it for."""

    __slots__ = ("tag",)
    tag: str


_Dumper.add_representer(_Plain, lambda dumper, text: dumper.represent_scalar(text.tag, str(text)))


def _texts(node: Node) -> object:
    """Return a node as lists, dicts and texts, so that a change writes each scalar as it was."""
    if isinstance(node, MappingNode):
        return {_key(key): _texts(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_texts(item) for item in node.value]
    text = _Plain(node.value)
    text.tag = node.tag
    return text


def _key(node: Node) -> str:
    return node.value if isinstance(node, ScalarNode) else ""


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise AclFileError(path, None, f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE:
        raise AclFileError(path, None, f"has more than {MAX_FILE} bytes: divide it into files in the directory acl")
    return data


def _compose(path: Path, data: bytes) -> Node | None:
    try:
        check_bounds(data, _Loader)
        root = yaml.compose(io.BytesIO(data), Loader=_Loader)
    except YamlTooLargeError as error:
        raise AclFileError(path, error.line, str(error)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Not the error itself: it quotes the line, which may have a secret.
        raise AclFileError(path, None if mark is None else mark.line + 1, f"is not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeError):
        raise AclFileError(path, None, "is not YAML in UTF-8") from None
    return None if isinstance(root, ScalarNode) and root.tag == _NULL else root


def _contents(path: Path, root: Node | None) -> AclFile:
    if root is None:
        return AclFile(path=path)
    reading = _Reading(path)
    entries = reading.mapping(root, "the file", _KEYS)
    addresses = reading.sequence(entries.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
    accounts = reading.sequence(entries.get("accounts"), "accounts")
    return AclFile(
        path=path,
        white_list=tuple(pattern for node in addresses for pattern in reading.white_list(node)),
        accounts=tuple(map(reading.account, accounts)),
        version=reading.version(entries.get("dataVersion")),
    )


class _Reading:
    """Reads the nodes of one file; errors have the file and the line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def error(self, node: Node, problem: str) -> AclFileError:
        return AclFileError(self._path, node.start_mark.line + 1, problem)

    def mapping(self, node: Node, what: str, known: Sequence[str]) -> dict[str, Node]:
        if not isinstance(node, MappingNode):
            raise self.error(node, f"{what}: expected entries such as {known[0]}: …")
        entries: dict[str, Node] = {}
        for key, value in node.value:
            name = _key(key)
            if name not in known:
                logger.warning("%s:%d: %s has no effect here", self._path, key.start_mark.line + 1, name or "a list")
            entries[name] = value
        return entries

    def sequence(self, node: Node | None, what: str) -> list[Node]:
        if node is None or node.tag == _NULL:
            return []
        if not isinstance(node, SequenceNode):
            raise self.error(node, f"{what}: expected a list, a line with - for each entry")
        return list(node.value)

    def text(self, node: Node | None, what: str) -> str | None:
        if node is None or node.tag == _NULL:
            return None
        if not isinstance(node, ScalarNode):
            raise self.error(node, f"{what}: expected a text")
        # The text as it is written, whatever type YAML gives it: 12345678 is a secret key as well as "12345678".
        return str(node.value)

    def truth(self, node: Node | None, what: str) -> bool:
        text = (self.text(node, what) or "false").lower()
        if text not in _TRUE + _FALSE:
            assert node is not None
            raise self.error(node, f"{what}: expected true or false")
        return text in _TRUE

    def white_list(self, node: Node | None) -> tuple[AddressPattern, ...]:
        try:
            return parse_patterns(self.text(node, "an address"))
        except NoAddress as error:
            assert node is not None
            raise self.error(node, str(error)) from None

    def account(self, node: Node) -> Account:
        entries = self.mapping(node, "an account", _ACCOUNT_KEYS)
        access_key = self.text(entries.get("accessKey"), "accessKey")
        secret_key = self.text(entries.get("secretKey"), "secretKey")
        for name, key in (("accessKey", access_key), ("secretKey", secret_key)):
            if key is None or len(key) < MIN_KEY:
                raise self.error(entries.get(name, node), f"{name}: expected at least {MIN_KEY} characters")
        assert access_key is not None
        assert secret_key is not None
        rights = dict(self._rights(entries.get("groupPerms"), "groupPerms", retry_topic))
        rights |= self._rights(entries.get("topicPerms"), "topicPerms", str)
        return Account(
            access_key=access_key,
            secret_key=secret_key,
            white_list=self.white_list(entries.get("whiteRemoteAddress")),
            admin=self.truth(entries.get("admin"), "admin"),
            default_topic_permission=self._default(entries.get("defaultTopicPerm"), "defaultTopicPerm"),
            default_group_permission=self._default(entries.get("defaultGroupPerm"), "defaultGroupPerm"),
            rights=rights,
        )

    def version(self, node: Node | None) -> DataVersion:
        versions = self.sequence(node, "dataVersion")
        if not versions:
            return DataVersion(timestamp=0, counter=0)
        entries = self.mapping(versions[0], "dataVersion", ("counter", "timestamp", "stateVersion"))
        counter, timestamp = (self._whole(entries.get(name), name) for name in ("counter", "timestamp"))
        return DataVersion(timestamp=timestamp, counter=counter)

    def _whole(self, node: Node | None, what: str) -> int:
        text = self.text(node, what) or "0"
        if not text.isdecimal() or len(text) > 18:
            assert node is not None
            raise self.error(node, f"dataVersion: {what}: expected a whole number")
        return int(text)

    def _default(self, node: Node | None, what: str) -> int:
        text = self.text(node, what)
        return DENY if node is None or text is None else self._permission(node, text)

    def _rights(self, node: Node | None, what: str, resource_of: Callable[[str], str]) -> Mapping[str, int]:
        return dict(self._each_right(node, what, resource_of))

    def _each_right(self, node: Node | None, what: str, resource_of: Callable[[str], str]) -> Iterator[tuple[str, int]]:
        for item in self.sequence(node, what):
            text = self.text(item, what) or ""
            parts = [part for part in text.split("=") if part]
            if len(parts) != 2:
                raise self.error(item, f"{what}: expected name=permission, such as orders=PUB|SUB")
            yield resource_of(parts[0].strip()), self._permission(item, parts[1])

    def _permission(self, node: Node, text: str) -> int:
        permission = parse_permission(text)
        if permission is None:  # as in Apache's broker
            logger.warning(
                "%s:%d: %r is not a permission and counts as DENY; expected DENY, PUB, SUB or PUB|SUB",
                self._path, node.start_mark.line + 1, text.strip(),
            )  # fmt: skip
            return DENY
        return permission
