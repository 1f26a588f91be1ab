"""What the name server and the broker do alike: listen, and call the handler of a request's code."""

import errno
import ipaddress
import logging
from collections.abc import Callable, Collection, Mapping
from typing import cast

from rocket_broker.errors import AddressInUse, CannotListen
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.requests.request_steps import RequestSteps, Steps
from rocket_broker.store.errors import NO_ROOM
from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.transport import Server, Transport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand

__all__ = [
    "Answer",
    "Dispatcher",
    "RequestHandler",
    "failure_answer",
    "limits",
    "listen",
    "warn_if_open",
]

logger = logging.getLogger(__name__)

MAX_HEADER = 256 * 1024
"""Bytes of a request's header. The longest that clients send has a message's properties, 32,767 bytes, and JSON may
write six bytes for one. Reading 256 KiB takes some 5 ms, whatever is in it."""

_NOT_NOTED = (*NO_ROOM, errno.EROFS)
"""Errors of a disk that takes nothing more, while what it holds can be served."""

MOST_READING = 16
"""Requests that read, worked on by turns: each may hold an unfinished answer of `MAX_ANSWER` bytes."""

MOST_STORING = 1024
"""Batches, worked on by turns: each holds its request, which counts among its connection's buffers."""


Answer = RemotingCommand | Steps | None
RequestHandler = Callable[[Connection, RemotingCommand], Answer]
"""Handles a request: returns the answer, None if it comes later or never, or the steps that lead to it."""


class Dispatcher:
    """Calls the handler of a request's code.

    An unknown code is answered as such, and a full or read-only disk as the store answers it. Requests that are
    handled in steps wait in two lines, so that what is stored does not wait for long listings.

    Args:
        server: What this is, for people.
        handlers: Request code -> handler.
        admit: Raises a `Refusal` of a request that is not to be handled now. It gets the request's code, and when the
            request was read, in seconds of the loop's time.
        storing: The codes of requests that store messages.
    """

    def __init__(
        self,
        server: str,
        handlers: Mapping[int, RequestHandler],
        *,
        admit: Callable[[int, float], None] = lambda code, read_at: None,
        storing: Collection[int] = (),
    ) -> None:
        self._server = server
        self._handlers = handlers
        self._admit = admit
        self._storing = frozenset(storing)
        self._stores = RequestSteps(failure_answer, most_begun=MOST_STORING, outlives_connection=True)
        self._reads = RequestSteps(failure_answer, most_begun=MOST_READING)

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Return the answer; None if there is none, or if it comes later."""
        code = command.code
        handler = self._handlers.get(code)
        if handler is None:
            return RemotingCommand.response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request type {code} not supported by this {self._server}",
            )
        began = Watchdog.clock()
        try:
            self._admit(code, connection.waiting_since)
            answer = handler(connection, command)
            if answer is None or answer.__class__ is RemotingCommand:
                return answer
            line = self._stores if code in self._storing else self._reads
            return line.begin(connection, command, cast(Steps, answer))
        except (Refusal, OSError) as error:
            return _refused(command, error)
        finally:
            Watchdog.check_request(began, connection, command)

    def stop(self) -> None:
        """Store what is being stored to its end, and drop the other requests that are under way."""
        self._reads.stop()
        self._stores.stop()

    def __len__(self) -> int:
        """Return how many requests are handled in steps now."""
        return len(self._reads) + len(self._stores)


def _refused(command: RemotingCommand, error: Refusal | OSError) -> RemotingCommand:
    """Return how a request is refused.

    Raises:
        OSError: The error is not that the disk is full or read-only.
    """
    if isinstance(error, Refusal):
        return error.answer(command)
    if error.errno not in _NOT_NOTED:
        raise error
    logger.error("request %d is refused: %s", command.code, error)
    why = "there is no room on the disk" if error.errno in NO_ROOM else "the file system is read-only"
    remark = f"service not available now: {why}, and the change would have to be noted"
    return RemotingCommand.response(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)


def failure_answer(
    connection: Connection, command: RemotingCommand, error: Exception
) -> RemotingCommand | None:
    """Return the answer to a request of which a step raised an error; None if it has been answered."""
    if isinstance(error, Refusal) or (isinstance(error, OSError) and error.errno in _NOT_NOTED):
        return _refused(command, error)
    connection.answer_failure(command, error)
    return None


def limits(
    idle_seconds: int, pending_bytes: int = 0, *, address_percent: int, buffers: BufferBudget
) -> Limits:
    """Return what clients may do, from settings in which 0 means no limit or the usual one."""
    usual = Limits()
    return Limits(
        max_header=MAX_HEADER,
        idle_timeout=idle_seconds or None,
        max_address_percent=address_percent,
        max_pending_bytes=pending_bytes or usual.max_pending_bytes,
        buffers=buffers,
    )


async def listen(
    transport: Transport,
    host: str,
    port: int,
    handler: Handler,
    *,
    on_connect: Callable[[Connection], None] | None = None,
    on_close: Callable[[Connection], None] | None = None,
    client_limits: Limits,
) -> Server:
    """Serve at the address.

    Raises:
        AddressInUse: Another process does.
        CannotListen: The address is not this machine's, needs privileges, or there are no files left for a socket.
    """
    address = f"{host}:{port}"
    try:
        return await transport.serve(
            host, port, handler, on_connect=on_connect, on_close=on_close, limits=client_limits
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise AddressInUse(address, "listenPort") from e
        raise CannotListen(address, e) from e


def warn_if_open(name: str, server: Server) -> None:
    """Warn if a server can be reached from other machines: nobody has to log in."""
    try:
        is_loopback = ipaddress.ip_address(server.host).is_loopback
    except ValueError:  # a name, in the transport in memory
        is_loopback = server.host == "localhost"
    if not is_loopback:
        logger.warning(
            "the %s listens on %s, and there is no access control: whoever reaches it may read, send and delete "
            "messages and change settings. Admit only trusted hosts (a firewall), or set bindAddress=127.0.0.1",
            name,
            server.address,
        )
