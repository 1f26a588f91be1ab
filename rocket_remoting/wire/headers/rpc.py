"""What all requests of a kind share, since 5.0 in part."""

import msgspec

from rocket_remoting.wire.ext_fields import Header


class RpcRequestHeader(Header, kw_only=True):
    """Fields that 5.x clients may add to a request.

    Attributes:
        namespace: The namespace its names belong to.
        namespaced: Whether the names carry the namespace already.
        broker_name: The broker the request is meant for, when topics are mapped onto several.
        oneway: Whether no answer is wanted.
    """

    namespace: str | None = msgspec.field(name="ns", default=None)
    namespaced: bool | None = msgspec.field(name="nsd", default=None)
    broker_name: str | None = msgspec.field(name="bname", default=None)
    oneway: bool | None = msgspec.field(name="oway", default=None)


class TopicRequestHeader(RpcRequestHeader, kw_only=True):
    """A request about a topic; `logical` says that its queue is a logical one of a static topic."""

    logical: bool | None = msgspec.field(name="lo", default=None)
