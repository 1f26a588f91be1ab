"""Refusals of requests, with the code and the remark of Apache's brokers."""

from collections.abc import Callable

from rocket_broker.errors import BrokerError
from rocket_remoting.wire.bodies import Body, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.topics import validate_group, validate_topic

__all__ = [
    "MAX_CONFIGS",
    "MAX_CONFIG_SIZE",
    "SEE_FAQ",
    "Refusal",
    "check_config_count",
    "check_config_size",
    "check_group_name",
    "check_topic_name",
]

MAX_CONFIG_SIZE = 4096
"""Maximum bytes of a topic's or group's configuration in a table; enough for the longest names."""

MAX_CONFIGS = 2_000
"""Maximum number of topics or groups of one request. All of them are added in one step of the loop, of two microseconds
each. As Apache's tools encode them, no more fit into a request."""

SEE_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class Refusal(BrokerError):  # noqa: N818 - an answer, not a mistake of ours
    """The request cannot be served; the response gives the reason.

    Attributes:
        code: The response code, which clients act upon.
        remark: The reason, for people.
    """

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        """Return the response to the refused command."""
        return RemotingCommand.response(command, self.code, remark=self.remark)


def check_topic_name(topic: str) -> None:
    """Check that a topic's name is legal.

    Raises:
        Refusal: The name is illegal.
    """
    _check(validate_topic, topic)


def check_group_name(group: str) -> None:
    """Check that a group's name is legal.

    Raises:
        Refusal: The name is illegal.
    """
    _check(validate_group, group)


def check_config_count(kind: str, count: int) -> None:
    """Check that one request does not create too many topics or groups.

    Raises:
        Refusal: There are more than `MAX_CONFIGS`.
    """
    if count > MAX_CONFIGS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the request has {count} {kind}s; the limit is {MAX_CONFIGS}: send the others in further requests",
        )


def check_config_size(name: str, config: Body) -> None:
    """Check that a configuration is small enough to keep thousands of its size.

    Raises:
        Refusal: The configuration has more than `MAX_CONFIG_SIZE` bytes.
    """
    size = len(encode_body(config))
    if size > MAX_CONFIG_SIZE:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the configuration of {name} has {size} bytes; the limit is {MAX_CONFIG_SIZE}: shorten its attributes",
        )


def _check(validate: Callable[[str], None], name: str) -> None:
    try:
        validate(name)
    except ValueError as e:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(e)) from None
