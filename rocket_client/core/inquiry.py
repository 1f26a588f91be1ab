"""A question to the name servers; the asyncio client and the blocking one share it. This module does no I/O."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from rocket_client.core.call import Call
from rocket_client.core.name_server_order import NameServerOrder
from rocket_client.errors import NameServersUnreachableError
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError, ResponseError

__all__ = ["Inquiry"]

T = TypeVar("T")


class Inquiry(Generic[T]):
    """One call, made to one name server after the other until one of them knows what is asked for.

    ::

        answers             its result is used
        knows nothing       (a result of None) the next one is asked, unless it has just failed: a name server that
                            was just started knows a broker only after the broker's next registration, and one that a
                            broker does not register with never
        does not answer     the next one is asked
        refuses             the refusal is raised, unless another one has answered that it knows nothing

    Apache's client asks one name server only, and believes it.

    Args:
        order: The order of the name servers.
        call: The call.
        now: Seconds of the clock that all inquiries of the order use.
    """

    __slots__ = ("_call", "_causes", "_now", "_order", "_results")

    def __init__(self, order: NameServerOrder, call: Call[T], now: float) -> None:
        self._order = order
        self._call = call
        self._now = now
        self._results: list[T] = []
        self._causes: list[Exception] = []

    def __iter__(self) -> Iterator[str]:
        """Yield the addresses to ask, until a name server knows."""
        for address in self._order.in_turn():
            if self._results and self._results[-1] is not None:
                return
            if not self._results or not self._order.is_silent(address, self._now):
                yield address

    def failed(self, address: str, error: RemotingError) -> None:
        """Note that the name server at the address could not be asked, or did not answer."""
        self._causes.append(error)
        self._order.failed(address, self._now)

    def answered(self, address: str, response: RemotingCommand) -> None:
        """Read the response of the name server at the address.

        Raises:
            ResponseError: It refused the call, and no other one has answered yet.
        """
        self._order.answered(address)
        try:
            self._results.append(self._call.result(response, address))
        except ResponseError:
            if not self._results:
                raise

    def result(self) -> T:
        """Return the result of a name server that knows what was asked for; None if none of them does.

        Raises:
            NameServersUnreachableError: No name server answered.
        """
        if self._results:
            return self._results[-1]
        raise NameServersUnreachableError(self._order.addresses, self._causes)

    def __repr__(self) -> str:
        return f"<Inquiry {self._call.code}: {len(self._results)} answers, {len(self._causes)} failures>"
