"""A request of a slave to its master."""

from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.headers import Header

__all__ = ["ask"]

ANSWER_SECONDS = 10.0


async def ask(connection: Connection, code: RequestCode, header: Header | None = None) -> bytes:
    """Return the body of the master's answer.

    Raises:
        ResponseError: The master refuses.
        RemotingError: It did not answer.
    """
    answer = await connection.invoke(code, header, timeout=ANSWER_SECONDS)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, address=connection.remote_address, request_code=code)
    return bytes(answer.body)
