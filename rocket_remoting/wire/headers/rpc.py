"""Base classes of request headers, with the fields that many requests share."""

import msgspec

from rocket_remoting.wire.ext_fields import Header


class RpcRequestHeader(Header, kw_only=True):
    """Base of request headers: the fields that 5.x clients may add to any request.

    Attributes:
        namespace: The namespace of the topic and group names.
        namespaced: Whether the names already include the namespace.
        broker_name: The broker that the request is for.
        oneway: Whether the sender expects no response.
    """

    namespace: str | None = msgspec.field(name="ns", default=None)
    namespaced: bool | None = msgspec.field(name="nsd", default=None)
    broker_name: str | None = msgspec.field(name="bname", default=None)
    oneway: bool | None = msgspec.field(name="oway", default=None)


class TopicRequestHeader(RpcRequestHeader, kw_only=True):
    """Base of the headers of requests about a topic.

    Attributes:
        logical: Whether the queue id is a logical one of a static topic (5.x).
    """

    logical: bool | None = msgspec.field(name="lo", default=None)
