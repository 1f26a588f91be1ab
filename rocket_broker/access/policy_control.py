"""Access control as RocketMQ 5.3 has it: users with passwords, and policies about what each user may do.

::

    authenticationEnabled   access key ──► user, enabled? ──► signature ──┐
    authorizationEnabled    super user? ──► policies of the user ─────────┴─► handled

Requests name the user as their access key, and are signed with the user's password. Users and policies are in tables of
the broker's store. Each request is checked anew: Apache's stateful strategies remember decisions for a minute instead.
"""

from collections.abc import Iterable, Mapping

from rocket_broker.access.account import PUB
from rocket_broker.access.needs import AccessRefusal, Needs, access_to, as_producer, on_topic, refused
from rocket_broker.access.policies import (
    OWN_CLUSTER,
    Access,
    Action,
    Decision,
    Policies,
    Resource,
    ResourceType,
    UserStatus,
    UserType,
)
from rocket_broker.access.signature import check_signature
from rocket_broker.access.user_directory import UserDirectory
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.session.address import host_of
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import UserInfo
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY

__all__ = ["PolicyControl"]

_GROUP = f"{ResourceType.GROUP}:"


class PolicyControl:
    """Checks requests by the users and policies in the broker's store.

    Attributes:
        needs_scope: Whether signatures that do not cover the request's code are refused.
        version: Another object after each change of a user or a policy.
    """

    def __init__(self, settings: BrokerSettings, directory: UserDirectory) -> None:
        self._users = directory.users
        self._acls = directory.acls
        self._authenticates = settings.authentication_enabled
        self._authorizes = settings.authorization_enabled
        self.needs_scope = settings.require_signed_code
        self._unauthenticated = _codes(settings.authentication_whitelist)
        self._unauthorized = _codes(settings.authorization_whitelist)
        self._cluster = Resource(ResourceType.CLUSTER, settings.broker_cluster_name)
        self._policies: dict[str, Policies] = {}
        self._producer_groups: frozenset[str] | None = None
        self._acls.on_change.append(self._acls_have_changed)
        self.version: object = object()
        for table in (self._users, self._acls):
            table.on_change.append(self._changed)

    def _changed(self) -> None:
        self.version = object()

    def secret_key(self, access_key: str) -> str:
        """Return the password of a user, which exists."""
        return self._users.configs()[access_key].password or ""

    def check(self, connection: Connection, command: RemotingCommand, needs: Needs) -> bool:
        """Check a request before it is handled; return whether a user has signed it.

        Raises:
            AccessRefusal: The sender may not send the request; the remark is Apache's.
            RemoteProtocolError: The request cannot be read.
        """
        if not needs.account:
            return False
        code, fields = str(command.code), command.ext_fields
        name = fields.get(ACCESS_KEY)
        is_signed = self._authenticates and code not in self._unauthenticated
        if is_signed:
            self._authenticate(name, command, fields)
        connection.mark_known()
        if self._authorizes and code not in self._unauthorized:
            try:
                self._authorize(name, host_of(connection.remote_address), needs.accesses(command))
            except AccessRefusal as refusal:
                refusal.is_signed = is_signed
                raise
        return is_signed

    def may_check(self, connection: Connection, access_key: str | None, topic: str, group: str) -> bool:
        """Return whether a client, whose heartbeat a user has signed, may be asked about transactions."""
        user = self._users.get(access_key or "")
        if user is None:
            return not self._authenticates and not self._authorizes
        if user.user_status == UserStatus.DISABLE:
            return False
        if not self._authorizes or user.user_type == UserType.SUPER:
            return True
        policies, host = self._policies_of(user), host_of(connection.remote_address)
        accesses = map(access_to, (*on_topic(topic, PUB), *as_producer(group)))
        return policies is not None and all(
            self._decide(policies, access, host) is Decision.ALLOW for access in accesses
        )

    def _decide(self, policies: Policies, access: Access, host: str) -> Decision | None:
        resource, actions = access
        if (
            resource.type is ResourceType.GROUP
            and actions == (Action.PUB,)
            and not self._is_of_producers(resource.name)
        ):
            return Decision.ALLOW
        return policies.decide(access, host)

    def _authenticate(self, name: str | None, command: RemotingCommand, fields: Mapping[str, str]) -> None:
        if not name:
            raise refused("username cannot be null.")
        user = self._users.get(name)
        if user is None:
            raise refused(f"User:{name} is not found.")
        if user.user_status == UserStatus.DISABLE:
            raise refused(f"User:{name} is disabled.")
        password, remark = user.password or "", "check signature failed."
        check_signature(command, fields, password, remark, needs_scope=self.needs_scope)

    def _authorize(self, name: str | None, host: str, accesses: Iterable[Access]) -> None:
        policies: Policies | None = None
        for number, access in enumerate(accesses):
            if not number:  # a request without accesses needs no user, as on Apache's broker
                user = self._authorized_user(name)
                if user.user_type == UserType.SUPER:
                    return
                policies = self._policies_of(user)
            resource = self._cluster if access.resource is OWN_CLUSTER else access.resource
            decision = (
                self._decide(policies, access._replace(resource=resource), host) if policies is not None else None
            )
            if decision is not Decision.ALLOW:
                reason = "no matched policies." if decision is None else "the decision is deny."
                raise refused(f"User:{name} has no permission to access {resource} from {host}, {reason}")

    def _is_of_producers(self, group: str) -> bool:
        """Return whether a user has the action Pub on a group by the group's name."""
        if self._producer_groups is None:
            self._producer_groups = frozenset(
                resource.removeprefix(_GROUP)
                for acl in map(self._acls.get, self._acls)
                for policy in (acl.policies if acl is not None else None) or ()
                for entry in policy.entries or ()
                if entry.decision == Decision.ALLOW
                and Action.PUB in (entry.actions or ())
                and (resource := entry.resource or "").startswith(_GROUP)
            )
        return group in self._producer_groups

    def _acls_have_changed(self) -> None:
        self._policies.clear()
        self._producer_groups = None

    def _authorized_user(self, name: str | None) -> UserInfo:
        if not name:
            raise refused("Authorization failed. Please verify your access rights and try again.")
        user = self._users.get(name)
        if user is None:
            raise refused(f"User:{name} not found.")
        if user.user_status == UserStatus.DISABLE:
            raise refused(f"User:{name} is disabled.")
        return user

    def _policies_of(self, user: UserInfo) -> Policies | None:
        subject = f"User:{user.username}"
        policies = self._policies.get(subject)
        if policies is None:
            acl = self._acls.get(subject)
            if acl is None:
                return None
            policies = self._policies[subject] = Policies(acl)
        return policies

    def __repr__(self) -> str:
        return f"<PolicyControl: {len(self._users)} users>"


def _codes(white_list: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, white_list.split(","))))
