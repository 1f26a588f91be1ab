"""How a processor says no: with the code and the remark that Apache's brokers use."""

from rocket_broker.errors import BrokerError
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.topics import validate_group, validate_topic

__all__ = ["SEE_FAQ", "Refusal", "check_group_name", "check_topic_name"]

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
    try:
        validate_topic(topic)
    except ValueError as e:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(e)) from None


def check_group_name(group: str) -> None:
    """Return when the name is legal.

    Raises:
        Refusal: It is not.
    """
    try:
        validate_group(group)
    except ValueError as e:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(e)) from None
