"""Access control of a server: which requests are handled, by the rules of the files of accounts.

::

    white list of all files ──► any request
    access key ──► account ──► its white list ──► any request
                           └─► signature ──► administrator? ──► rights on topics and groups ──► handled

The files are ``plain_acl.yml``, and all ``*.yml`` and ``*.yaml`` files in the directory ``acl`` beside it. They are
read at the start, again when one has changed, and rewritten by requests of administrators. If a file is wrong then, the
rules stay as they were.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from rocket_broker.access.account import PUB, AccessRules, Account, Right
from rocket_broker.access.acl_file import AclFile, change_file, contents_of, read_file
from rocket_broker.access.needs import Needs, as_producer, on_topic, refused
from rocket_broker.access.remote_address import AddressPattern
from rocket_broker.access.signature import check_signature
from rocket_broker.errors import AclFileError, UnknownAccount
from rocket_remoting.clock import Clock
from rocket_remoting.file_stamp import FileStamp, file_stamp
from rocket_remoting.session.address import host_of
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.topics import is_retry_topic

__all__ = ["AccessControl"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds between two checks whether a file has changed, as in Apache's broker."""

MAX_FILES = 1024
"""Maximum number of files of accounts."""

Stamp = tuple[tuple[Path, FileStamp | None], ...]
"""The path of each file, and its `FileStamp`, which differs after the file has changed; None for a missing file."""


class AccessControl:
    """Checks requests, and follows and changes the files of accounts.

    Args:
        directory: The directory with ``plain_acl.yml`` and ``acl``.
        clock: The time of changes.
        needs_scope: Whether signatures that do not cover the request's code are refused.

    Attributes:
        needs_scope: As given.
        rules: The rules that hold now.
        default_file: ``plain_acl.yml``.
    """

    def __init__(self, directory: Path, clock: Clock, *, needs_scope: bool = False) -> None:
        self.default_file = directory / "plain_acl.yml"
        self.rules = AccessRules()
        self._acl_directory = directory / "acl"
        self._tools_file = directory / "tools.yml"
        self._clock = clock
        self.needs_scope = needs_scope
        self._stamp: Stamp = ()

    # Checks

    @property
    def version(self) -> object:
        """The rules in force: another object after each change, because rules are replaced as a whole."""
        return self.rules

    def secret_key(self, access_key: str) -> str:
        """Return the key that signs the requests of an account, which exists."""
        return self.rules.accounts[access_key].secret_key

    def check(self, connection: Connection, command: RemotingCommand, needs: Needs) -> bool:
        """Check a request before it is handled; return whether an account has signed it.

        The client is known as soon as one of its requests comes from an account, or from an address of a white list.
        Requests that need no account, or come from an address of a white list, are not verified.

        Raises:
            AccessRefusal: The sender may not send the request; the remark is Apache's.
            RemoteProtocolError: The request cannot be read.
        """
        if not needs.account:
            return False
        rules, host = self.rules, host_of(connection.remote_address)
        if _matches(rules.white_list, host):
            connection.mark_known()
            return False
        account = self._sender(rules, host, command)
        connection.mark_known()
        if account is None:
            return False
        if needs.admin and not account.admin:
            raise refused(
                f"Need admin permission for request code={command.code}, but accessKey={account.access_key} is not",
                is_signed=True,
            )
        for right in needs.rights(command):
            if not _allows(rules, account, right):
                raise refused(f"No default permission for {right}", is_signed=True)
        return True

    def may_check(self, connection: Connection, access_key: str | None, topic: str, group: str) -> bool:
        """Return whether a client, whose heartbeat an account has signed, may be asked about transactions."""
        rules, host = self.rules, host_of(connection.remote_address)
        if _matches(rules.white_list, host):
            return True
        account = rules.accounts.get(access_key) if access_key is not None else None
        if account is None:
            return False
        if _matches(account.white_list, host):
            return True
        return all(_allows(rules, account, right) for right in (*on_topic(topic, PUB), *as_producer(group)))

    def _sender(self, rules: AccessRules, host: str, command: RemotingCommand) -> Account | None:
        """Return the account that has signed a request; None if the account trusts the host.

        Raises:
            AccessRefusal: There is no such account, or the signature is not that of the account.
        """
        fields = command.ext_fields
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise refused("No accessKey is configured")
        account = rules.accounts.get(access_key)
        if account is None:
            raise refused(f"No acl config for {access_key}")
        if _matches(account.white_list, host):
            return None
        remark = f"Check signature failed for accessKey={access_key}"
        check_signature(command, fields, account.secret_key, remark, needs_scope=self.needs_scope)
        return account

    # Files

    def load(self) -> None:
        """Read all files.

        Raises:
            AclFileError: A file cannot be read, or an entry is wrong. The rules stay as they were.
        """
        paths = list(self._paths())
        stamp = _stamp(paths)
        self.rules = _merged([read_file(path) for path in paths])
        self._stamp = stamp
        if not self.rules.accounts and not self.rules.white_list:
            logger.warning(
                "access control is on, and neither %s nor the files in %s have an account: requests are refused",
                self.default_file,
                self._acl_directory,
            )

    async def follow_files(self) -> None:
        """Read the files again when one has changed, until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Read the files again if one has changed. If one is wrong, log that once, and keep the rules."""
        known, rules = self._stamp, self.rules
        found = await asyncio.to_thread(self._changed_since, known)
        if found is None or self._stamp is not known:  # a request has changed a file meanwhile, and has read it
            return
        self._stamp, changed = found
        if isinstance(changed, AccessRules):
            self.rules = changed
            logger.info("read the accounts again: %d of %d files", len(changed.accounts), len(changed.versions))
        else:
            logger.error("the accounts stay as they were, %d of them: %s", len(rules.accounts), changed)

    def _changed_since(self, known: Stamp) -> tuple[Stamp, AccessRules | AclFileError] | None:
        try:
            paths = list(self._paths())
            stamp = _stamp(paths)
        except AclFileError as error:
            failed: Stamp = ((Path(str(error)), None),)
            return None if failed == known else (failed, error)
        if stamp == known:
            return None
        try:
            return stamp, _merged([read_file(path) for path in paths])
        except AclFileError as error:
            return stamp, error

    def _paths(self) -> Iterator[Path]:
        """Yield the files; of an access key in several files, the first file's account counts.

        Raises:
            AclFileError: There are too many files.
        """
        found: list[Path] = []
        for directory, subdirectories, names in os.walk(self._acl_directory):
            subdirectories.sort()
            found += [Path(directory) / name for name in sorted(names) if name.endswith((".yml", ".yaml"))]
            if len(found) > MAX_FILES:
                raise AclFileError(self._acl_directory, None, f"more than {MAX_FILES} files of accounts")
        yield from (path for path in found if path != self._tools_file)
        if self.default_file.exists():
            yield self.default_file

    # Changes

    def update_account(self, access_key: str, values: Mapping[str, object]) -> None:
        """Change an account in its file, or add it to the default file.

        Args:
            access_key: The account.
            values: New values by their names in the file; values that are missing stay as they are.

        Raises:
            AclFileError: A value is wrong, or the file cannot be changed.
        """

        def change(contents: dict[str, object]) -> None:
            accounts = _list_in(contents, "accounts")
            for account in accounts:
                if isinstance(account, dict) and account.get("accessKey") == access_key:
                    account.update(values)
                    return
            accounts.append({"accessKey": access_key, **values})

        self._change(self.rules.files.get(access_key, self.default_file), change)

    def delete_account(self, access_key: str) -> None:
        """Delete an account from its file.

        Raises:
            UnknownAccount: There is no such account.
            AclFileError: The file cannot be changed.
        """
        path = self.rules.files.get(access_key)
        if path is None:
            raise UnknownAccount(f"no account has the access key {access_key}")

        def change(contents: dict[str, object]) -> None:
            contents["accounts"] = [
                account
                for account in _list_in(contents, "accounts")
                if not (isinstance(account, dict) and account.get("accessKey") == access_key)
            ]

        self._change(path, change)

    def update_white_list(self, addresses: Sequence[str], path: Path | None) -> None:
        """Replace the white list of a file.

        Args:
            addresses: The new entries.
            path: The file; the default file if None.

        Raises:
            AclFileError: The file is not a file of accounts, an address is wrong, or the file cannot be changed.
        """
        known = {self.default_file, *self._paths()}
        chosen = next((file for file in known if path is not None and file.resolve() == path.resolve()), None)
        if path is not None and chosen is None:
            names = ", ".join(sorted(map(str, known)))
            raise AclFileError(path, None, f"is not a file of accounts; these are: {names}")

        def change(contents: dict[str, object]) -> None:
            contents["globalWhiteRemoteAddresses"] = list(addresses)

        self._change(chosen or self.default_file, change)

    def take_over(self, white_list: Sequence[str], accounts: Sequence[Mapping[str, object]]) -> bool:
        """Replace all accounts and white lists by those of a master; return whether they differ from the present ones.

        ``plain_acl.yml`` gets them, and the other files have none any more.

        Args:
            white_list: The addresses of all white lists.
            accounts: The values of each account by their names in the file.

        Raises:
            AclFileError: A value is wrong, or a file cannot be changed.
        """
        taken = _merged([contents_of(self.default_file, white_list, accounts)])
        rules = self.rules
        if taken.accounts == rules.accounts and set(taken.white_list) == set(rules.white_list):
            return False

        def change(contents: dict[str, object]) -> None:
            contents["globalWhiteRemoteAddresses"] = list(white_list)
            contents["accounts"] = [dict(account) for account in accounts]

        def empty(contents: dict[str, object]) -> None:
            contents["globalWhiteRemoteAddresses"] = contents["accounts"] = []

        now_ms = self._clock.now_ms()
        change_file(self.default_file, change, now_ms)  # first: a kill before the next file loses no account
        for path in self._paths():
            if path != self.default_file:
                change_file(path, empty, now_ms)
        self.load()
        return True

    def _change(self, path: Path, change: Callable[[dict[str, object]], None]) -> None:
        change_file(path, change, self._clock.now_ms())
        self.load()

    def __repr__(self) -> str:
        return f"<AccessControl {self.default_file}: {len(self.rules.accounts)} accounts>"


def _allows(rules: AccessRules, account: Account, right: Right) -> bool:
    return account.has(right) or (right.is_of_producers and right.resource not in rules.producer_groups)


def _matches(patterns: Sequence[AddressPattern], host: str) -> bool:
    return any(pattern.matches(host) for pattern in patterns)


def _stamp(paths: Sequence[Path]) -> Stamp:
    return tuple((path, file_stamp(path)) for path in paths)  # a file that is not there: read_file says so


def _merged(files: Sequence[AclFile]) -> AccessRules:
    accounts: dict[str, Account] = {}
    places: dict[str, Path] = {}
    for file in files:
        for account in file.accounts:
            first = places.setdefault(account.access_key, file.path)
            if account.access_key in accounts:
                logger.warning(
                    "account %s is in %s and again in %s: the first one counts", account.access_key, first, file.path
                )
            else:
                accounts[account.access_key] = account
    return AccessRules(
        white_list=tuple(pattern for file in files for pattern in file.white_list),
        accounts=accounts,
        files=places,
        versions={file.path: file.version for file in files},
        producer_groups=frozenset(
            resource
            for account in accounts.values()
            for resource, permission in account.rights.items()
            if permission & PUB and is_retry_topic(resource)
        ),
    )


def _list_in(contents: dict[str, object], key: str) -> list[object]:
    """Return the list under a key of a file's contents; a new one if there is none."""
    found = contents.get(key)
    if not isinstance(found, list):
        found = contents[key] = []
    return cast(list[object], found)
