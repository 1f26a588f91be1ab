"""Headers of the requests of 5.3's access control. The users and policies themselves are in bodies."""

from rocket_remoting.wire.ext_fields import Header

WITH_SECRETS = "withSecrets"
"""The field by which a slave asks its master for secret keys and passwords too; Apache's brokers always show them."""


class GetAclConfigRequestHeader(Header, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_CONFIG (54) of a slave of this project; tools send no header."""

    with_secrets: bool | None = None


class CreateUserRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_USER (3001): create a user; its password and kind are in the body (`UserInfo`)."""

    username: str | None = None


class UpdateUserRequestHeader(Header, kw_only=True):
    """AUTH_UPDATE_USER (3002): change what the body (`UserInfo`) has."""

    username: str | None = None


class DeleteUserRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_USER (3003): delete a user and its policies."""

    username: str | None = None


class GetUserRequestHeader(Header, kw_only=True):
    """AUTH_GET_USER (3004): return a user; no body if there is none."""

    username: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """AUTH_LIST_USER (3005): return the users whose names contain a text; no body if there is none.

    Attributes:
        with_secrets: Whether a slave of this project asks, which needs the passwords.
    """

    filter: str | None = None
    with_secrets: bool | None = None


class CreateAclRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_ACL (3006): add to the policies of a subject what the body (`AclInfo`) has."""

    subject: str | None = None


class UpdateAclRequestHeader(Header, kw_only=True):
    """AUTH_UPDATE_ACL (3007): the same as AUTH_CREATE_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_ACL (3008): delete the entry for a resource; without a resource, all policies of the subject.

    Attributes:
        policy_type: The policy with the entry, ``Custom`` or ``Default``; Custom if it is missing.
    """

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(Header, kw_only=True):
    """AUTH_GET_ACL (3009): return the policies of a subject; no body if there are none."""

    subject: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """AUTH_LIST_ACL (3010): return the policies of the subjects and resources that contain the texts."""

    subject_filter: str | None = None
    resource_filter: str | None = None
