"""A call: one request to a peer, with the function that reads the response.

The asyncio client and the blocking client make the same calls; only their waiting differs. This module does no I/O.
"""

from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.ext_fields import Header

T = TypeVar("T")

_SUCCESS = frozenset({int(ResponseCode.SUCCESS)})


class Call(NamedTuple, Generic[T]):
    """A request without a body, with the function that reads its response.

    Attributes:
        code: The request code.
        header: The typed header.
        read: Converts a response into the call's result.
        answers: Response codes that `read` accepts; any other is a refusal.
    """

    code: RequestCode
    header: Header | None
    read: Callable[[RemotingCommand], T]
    answers: Collection[int] = _SUCCESS

    def result(self, response: RemotingCommand, address: str) -> T:
        """Return the result of the response that the peer at `address` sent.

        Raises:
            ResponseError: The peer refused the request.
        """
        if response.code not in self.answers:
            raise refusal(response, address, self.code)
        return self.read(response)


def refusal(response: RemotingCommand, address: str, request_code: int) -> ResponseError:
    """Return the error for a refused request, with the peer, the request, the code and the remark."""
    return ResponseError(response.code, response.remark, address=address, request_code=request_code)
