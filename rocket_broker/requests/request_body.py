"""Decoding of the JSON bodies of requests, limited to a size that one step of the loop can decode."""

from typing import TypeVar

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.bodies import Body, decode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["MAX_BODY", "MAX_HEARTBEAT", "MAX_QUEUES_BODY", "read_body"]

MAX_BODY = 256 * 1024
"""Bytes of a request's body: some 1,500 topics or groups. Decoding takes 10 ms for topics, 30 ms for nested lists."""

MAX_HEARTBEAT = 1024 * 1024
"""Bytes of a heartbeat: some 7,000 subscriptions. Decoding takes 10 ms for them, at most 30 ms for any content."""

MAX_QUEUES_BODY = 1024 * 1024
"""Bytes of a list of queues to lock or unlock: some 10,000 queues, which take 10 ms to decode."""

LENIENT_UP_TO = 32 * 1024
"""Bytes of a body that differs from the JSON of Java's clients, such as the C++ client's heartbeat: 200 subscriptions,
which take 20 ms to decode."""

B = TypeVar("B", bound=Body)


def read_body(command: RemotingCommand, type_: type[B], *, most: int = MAX_BODY) -> B:
    """Return the decoded body of a request.

    Args:
        command: The request.
        type_: The body's class.
        most: Maximum number of bytes.

    Raises:
        Refusal: The body is longer than ``most`` bytes.
        RemoteProtocolError: The body cannot be decoded.
    """
    size = len(command.body)
    if size > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"{command.name} has a body of {size} bytes, at most {most} are read: split it into several requests",
        )
    return decode_body(command.body, type_, forgiving_up_to=LENIENT_UP_TO)
