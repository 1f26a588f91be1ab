"""The calls to name servers. This module does no I/O."""

from rocket_client.core.call import Call
from rocket_remoting.wire.bodies import ClusterInfo, TopicList, TopicRouteData, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader

_KNOWN_OR_NOT = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.TOPIC_NOT_EXIST)})


def topic_route(topic: str) -> Call[TopicRouteData | None]:
    """Return the call for the topic's route; the result is None if the topic does not exist."""
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    return Call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, _route, _KNOWN_OR_NOT)


def _route(answer: RemotingCommand) -> TopicRouteData | None:
    if answer.code == ResponseCode.TOPIC_NOT_EXIST or not answer.body:
        return None
    return decode_body(answer.body, TopicRouteData)


def topics() -> Call[frozenset[str]]:
    """Return the call for all topics."""
    return Call(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        None,
        lambda answer: frozenset(decode_body(answer.body, TopicList).topic_list),
    )


def cluster_info() -> Call[ClusterInfo]:
    """Return the call for all brokers and their clusters."""
    return Call(RequestCode.GET_BROKER_CLUSTER_INFO, None, lambda answer: decode_body(answer.body, ClusterInfo))
