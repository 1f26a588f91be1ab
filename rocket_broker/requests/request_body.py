"""Reading the JSON bodies of requests: of each no more than can be read in a step of the loop."""

from typing import TypeVar

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.bodies import Body, decode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["MAX_BODY", "MAX_HEARTBEAT", "MAX_QUEUES_BODY", "read_body"]

MAX_BODY = 256 * 1024
"""Bytes of a request's body: some 1,500 topics or groups. Nested lists in it take 30 ms to read, topics 10 ms."""

MAX_HEARTBEAT = 1024 * 1024
"""Bytes of a heartbeat: some 7,000 subscriptions, which take 10 ms to read; whatever is in it takes no more than 30."""

MAX_QUEUES_BODY = 1024 * 1024
"""Bytes of a list of queues to be locked or unlocked: some 10,000 queues, which take 10 ms to read."""

FORGIVING_UP_TO = 32 * 1024
"""Bytes of a body that is not quite the JSON Java clients write, such as the C++ client's heartbeat: 200 subscriptions.
Reading them takes 20 ms."""

B = TypeVar("B", bound=Body)


def read_body(command: RemotingCommand, type_: type[B], *, most: int = MAX_BODY) -> B:
    """Return the body of a request.

    Args:
        command: The request.
        type_: The body's class.
        most: Most bytes of it.

    Raises:
        Refusal: The body is longer.
        RemoteProtocolError: The body cannot be read.
    """
    size = len(command.body)
    if size > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"{command.name} has a body of {size} bytes, at most {most} are read: make several requests of it",
        )
    return decode_body(command.body, type_, forgiving_up_to=FORGIVING_UP_TO)
