"""Answers with long lists: encoded in steps, and refused if clients could not read them."""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.request_steps import Steps
from rocket_remoting.wire.bodies import LongBody, encode_in_pieces
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME

__all__ = ["MAX_ANSWER", "long_answer", "too_long"]

MAX_ANSWER = DEFAULT_MAX_FRAME - 64 * 1024
"""Maximum bytes of an answer's body. Apache's clients, and ours, close the connection at a frame of more than 16 MiB;
64 KiB are left for the answer's header."""


def long_answer(
    command: RemotingCommand,
    body: LongBody,
    *,
    instead: str,
    standard_json: bool = False,
    remark: str | None = None,
) -> Steps:
    """Encode the answer to a request in steps.

    Args:
        command: The request.
        body: The answer's body.
        instead: The request to use instead if the body is too long, for the remark of the refusal.
        standard_json: Whether to write standard JSON, as in `encode_body`.
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
    """Return the refusal of a request whose answer would have more than `MAX_ANSWER` bytes."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"the answer has more than {MAX_ANSWER} bytes, which clients do not read: {instead}",
    )
