"""How a processor says no: with the code and the remark that Apache's brokers use."""

from collections.abc import Callable

from rocket_broker.errors import BrokerError
from rocket_remoting.wire.bodies import Body, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.topics import validate_group, validate_topic

__all__ = [
    "MAX_CONFIG_SIZE",
    "SEE_FAQ",
    "Refusal",
    "check_config_size",
    "check_group_name",
    "check_topic_name",
]

MAX_CONFIG_SIZE = 4096
"""Bytes of what a table keeps of one topic or group, beside the longest names."""

SEE_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class Refusal(BrokerError):  # noqa: N818 - an answer, not a mistake of ours
    """The request cannot be served; the peer is told why.

    Attributes:
        code: What clients act upon.
        remark: What people read.
    """

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        """Return the response to the command that was refused."""
        return RemotingCommand.response(command, self.code, remark=self.remark)


def check_topic_name(topic: str) -> None:
    """Return when the name is legal.

    Raises:
        Refusal: It is not.
    """
    _check(validate_topic, topic)


def check_group_name(group: str) -> None:
    """Return when the name is legal.

    Raises:
        Refusal: It is not.
    """
    _check(validate_group, group)


def check_config_size(name: str, config: Body) -> None:
    """Return when the configuration is of a size to be kept with thousands of others.

    Raises:
        Refusal: It is not.
    """
    size = len(encode_body(config))
    if size > MAX_CONFIG_SIZE:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the configuration of {name} has {size} bytes, at most {MAX_CONFIG_SIZE} are kept: shorten its attributes",
        )


def _check(validate: Callable[[str], None], name: str) -> None:
    try:
        validate(name)
    except ValueError as e:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(e)) from None
