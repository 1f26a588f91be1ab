"""Answers that list much: written in steps, and refused when clients could not read them."""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.request_steps import Steps
from rocket_remoting.wire.bodies import LongBody, encode_in_pieces
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME

__all__ = ["MAX_ANSWER", "long_answer", "too_long"]

MAX_ANSWER = DEFAULT_MAX_FRAME - 64 * 1024
"""Bytes of an answer's body. Apache's clients, and ours, close a connection on which a frame of more than 16 MiB comes;
64 KiB are left for the answer's header."""


def long_answer(
    command: RemotingCommand,
    body: LongBody,
    *,
    instead: str,
    standard_json: bool = False,
    remark: str | None = None,
) -> Steps:
    """Write the answer to a request in steps.

    Args:
        command: The request.
        body: The answer's body.
        instead: What to ask for if the body is too long.
        standard_json: As `encode_body` has it.
        remark: The answer's remark.

    Raises:
        Refusal: The body has more than `MAX_ANSWER` bytes.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in encode_in_pieces(body, standard_json=standard_json):
        if piece:
            pieces.append(piece)
            size += len(piece)
        if size > MAX_ANSWER:
            raise too_long(instead)
        yield
    return RemotingCommand.response(command, remark=remark, parts=pieces)


def too_long(instead: str) -> Refusal:
    """Return how an answer of more than `MAX_ANSWER` bytes is refused."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"the answer has more than {MAX_ANSWER} bytes, which clients do not read: {instead}",
    )
