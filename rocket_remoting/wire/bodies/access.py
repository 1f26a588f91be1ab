"""Bodies of the requests of 5.3's access control, which mqadmin and consoles send: users and their policies."""

from rocket_remoting.wire.bodies.json_body import Body


class UserInfo(Body, kw_only=True):
    """A user; its repr has no password.

    Attributes:
        password: The secret key with which the user's requests are signed.
        user_type: ``Super`` or ``Normal``.
        user_status: ``enable`` or ``disable``.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(Body, kw_only=True):
    """An entry of a policy.

    Attributes:
        resource: Such as ``Topic:orders``, ``Group:kitchen-*``, ``Cluster:DefaultCluster`` or ``*``.
        actions: Such as ``Pub`` and ``Sub``; ``All`` is all of them.
        source_ips: Addresses and networks of clients; None for all.
        decision: ``Allow`` or ``Deny``.
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, kw_only=True):
    """A policy; its type is ``Custom`` or ``Default``."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body, kw_only=True):
    """The policies of one subject, such as ``User:alice``."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
