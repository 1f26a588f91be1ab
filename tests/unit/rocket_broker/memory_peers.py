"""Connections in memory under virtual time, for tests of the broker's tables."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocket_remoting import MemoryTransport
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.wire.command import RemotingCommand
from streamkit.testing.virtual_time import VirtualTime

T = TypeVar("T")

NEVER_IDLE = Limits(idle_timeout=None, first_request_timeout=None)


class Peers:
    """A server whose server-side connections the tests use; records the requests pushed to the clients."""

    def __init__(self, on_close: Callable[[Connection], None] = lambda connection: None) -> None:
        self.pushed: list[tuple[str, RemotingCommand]] = []
        self._on_close = on_close
        self._transport = MemoryTransport()
        self._accepted: list[Connection] = []

    async def connect(self, name: str, host: str = "127.0.0.1") -> tuple[Connection, Connection]:
        """Return both ends of a new connection: the broker's and that of the client ``name`` at the address."""
        if not self._accepted:
            self.server = await self._transport.serve(
                "127.0.0.1",
                1,
                lambda c, r: None,
                on_connect=self._accepted.append,
                on_close=self._on_close,
                limits=NEVER_IDLE,
            )
        client = await self._transport.at(host).connect(
            "127.0.0.1:1", handler=lambda c, r: self._note(name, r), limits=NEVER_IDLE
        )
        return self._accepted[-1], client

    def pushed_to(self, name: str) -> list[int]:
        """Return the codes of the requests pushed to the client."""
        return [command.code for who, command in self.pushed if who == name]

    def _note(self, name: str, command: RemotingCommand) -> None:
        self.pushed.append((name, command))


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine on a loop that advances its clock instead of waiting."""
    with VirtualTime() as time:
        return time.run(main())
