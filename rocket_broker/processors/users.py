"""Requests 3001 to 3005: create, change, delete and list the users of 5.3's access control."""

import logging
from typing import TYPE_CHECKING

import msgspec

from rocket_broker.access.needs import refused
from rocket_broker.access.policies import MAX_NAME, UserStatus, UserType, named
from rocket_broker.access.secret_answers import HIDDEN, may_see_secrets
from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.request_body import read_body
from rocket_broker.tables.user_table import UserTable
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import UserInfo
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers import (
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetUserRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)

if TYPE_CHECKING:
    from rocket_broker.access.user_directory import UserDirectory

__all__ = ["UsersProcessor", "directory_of", "kind_in"]

logger = logging.getLogger(__name__)


class UsersProcessor:
    """Changes the users, and answers who they are; remarks are Apache's."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def create(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_USER (3001): create a user, enabled and normal unless the body says otherwise."""
        name = _name(command.header(CreateUserRequestHeader).username)
        info = _info(command)
        users = directory_of(self._context).users
        user_type = named(UserType, info.user_type)
        if user_type is UserType.SUPER and not self._is_super(command, users):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        _check_text("username", name)
        if not (info.password or "").strip():
            raise refused("password can not be blank")
        if name in users:
            raise refused("The user is existed")
        users.put(
            UserInfo(
                username=name,
                password=info.password,
                user_type=user_type or UserType.NORMAL,
                user_status=named(UserStatus, info.user_status) or UserStatus.ENABLE,
            )
        )
        logger.info("user %s created by %s", name, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_UPDATE_USER (3002): change a user; values that are left out stay."""
        name = _name(command.header(UpdateUserRequestHeader).username)
        info = _info(command)
        users = directory_of(self._context).users
        user_type = named(UserType, info.user_type)
        if user_type is UserType.SUPER and not self._is_super(command, users):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        old = users.get(name)
        if old is None:
            raise refused("The user is not exist")
        self._check_may_change(old, command, users)
        users.put(
            UserInfo(
                username=name,
                password=info.password if (info.password or "").strip() else old.password,
                user_type=user_type or old.user_type,
                user_status=named(UserStatus, info.user_status) or old.user_status,
            )
        )
        logger.info("user %s changed by %s", name, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_USER (3003): delete a user and its policies; it is no error if there is none."""
        name = command.header(DeleteUserRequestHeader).username or ""
        directory = directory_of(self._context)
        users = directory.users
        if not name.strip():
            raise refused("username can not be blank")
        old = users.get(name)
        if old is not None:
            self._check_may_change(old, command, users)
            directory.acls.delete(f"User:{name}")  # first: a later user of this name must not find them after a kill
            users.delete(name)
            logger.info("user %s deleted by %s", name, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def user(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_USER (3004): a user without its password; no body if there is none."""
        name = _name(command.header(GetUserRequestHeader).username)
        user = directory_of(self._context).users.get(name)
        return RemotingCommand.response(command, body=b"" if user is None else msgspec.json.encode(_shown(user)))

    def users(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_USER (3005): the users whose names contain the filter; no body if none does.

        With passwords only for a slave.
        """
        given = command.header(ListUsersRequestHeader).filter or ""
        part = given if given.strip() else ""
        users = directory_of(self._context).users.configs()
        show = (lambda user: user) if may_see_secrets(command, self._context.settings) else _shown
        found = [show(users[name]) for name in sorted(users) if part in name]
        return RemotingCommand.response(command, body=msgspec.json.encode(found) if found else b"")

    def _check_may_change(self, old: UserInfo, command: RemotingCommand, users: UserTable) -> None:
        if old.user_type == UserType.SUPER and not self._is_super(command, users):
            raise refused("The super user can only be update by super user")

    def _is_super(self, command: RemotingCommand, users: UserTable) -> bool:
        """Return whether a request may change super users: those of other users may not.

        Without a user, authentication is off, and nothing tells one sender from another.
        """
        name = command.ext_fields.get(ACCESS_KEY)
        if not name:
            return True
        user = users.get(name)
        if user is None:
            raise refused(f"User:{name} is not found")
        return user.user_type == UserType.SUPER


def directory_of(context: BrokerContext) -> "UserDirectory":
    """Return the users and their policies.

    Raises:
        Refusal: The broker keeps none.
    """
    if context.directory is None:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            "this broker keeps no users: set authenticationMetadataProvider and authorizationMetadataProvider",
        )
    return context.directory


def kind_in(command: RemotingCommand) -> list[str]:
    """Return the type and the status in the body of a request about a user, for the audit log."""
    info = _info(command)
    return [text for text in (info.user_type, info.user_status) if text]


def _name(name: str | None) -> str:
    if not (name or "").strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name or ""


def _info(command: RemotingCommand) -> UserInfo:
    try:
        info = read_body(command, UserInfo)
    except RemoteProtocolError:
        # Not the error itself: it may quote the body, which has a password.
        raise Refusal(ResponseCode.SYSTEM_ERROR, "the body is not a user: expected JSON") from None
    password = info.password or ""
    if password == HIDDEN:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"{HIDDEN} stands for a password in answers: give the password itself, or leave it out to keep it",
        )
    if len(password) > MAX_NAME:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the password has more than {MAX_NAME} characters")
    return info


def _check_text(what: str, text: str) -> None:
    if len(text) > MAX_NAME or not text.isprintable():
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the {what} must have at most {MAX_NAME} printable characters")


def _shown(user: UserInfo) -> UserInfo:
    return msgspec.structs.replace(user, password=HIDDEN)
