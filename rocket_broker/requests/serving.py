"""Listening, and dispatch of requests to their handlers, for the name server and the broker."""

import errno
import ipaddress
import logging
from collections.abc import Callable, Collection, Mapping
from typing import cast

from rocket_broker.errors import LISTEN_PORT, NO_ROOM, AddressInUse, CannotListen, TlsUnusable
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.requests.request_steps import RequestSteps, Steps
from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection, FramesHandler, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.tls.settings import ServerTls
from rocket_remoting.transports.transport import Server, Transport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import TlsError

__all__ = ["UNWRITABLE", "Answer", "Dispatcher", "RequestHandler", "failure_answer", "limits", "listen", "warn_if_open"]

logger = logging.getLogger(__name__)

MAX_HEADER = 256 * 1024
"""Maximum bytes of a request's header. The longest that clients send holds a message's properties, 32,767 bytes, each
of which JSON may write as six bytes. Decoding 256 KiB takes some 5 ms for any content."""

UNWRITABLE = (*NO_ROOM, errno.EROFS)
"""Errors of a disk that cannot be written, while the data on it can still be served."""

MOST_READING = 16
"""Reading requests that are handled in turn, since each may hold an unfinished answer of `MAX_ANSWER` bytes."""

MOST_STORING = 1024
"""Batches that are stored in turn; each holds its request, which counts among its connection's buffers."""


Answer = RemotingCommand | Steps | None
RequestHandler = Callable[[Connection, RemotingCommand], Answer]
"""Handles a request. It returns the answer, the steps that lead to the answer, or None if the answer is sent later or
never. It raises `Refusal` for a request that cannot be served."""


class Dispatcher:
    """Calls the handler of a request's code.

    An unknown code is answered with REQUEST_CODE_NOT_SUPPORTED, and a change that a full or read-only disk prevents
    with SERVICE_NOT_AVAILABLE. Storing and reading requests are handled in steps in two separate lines, so that
    messages are stored without waiting for long listings.

    Args:
        server: Name of the server, for remarks.
        handlers: The handler of each request code.
        admit: Raises a `Refusal` for a request that is not to be handled now. It gets the request's code, and when the
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
        # A batch is stored to its end even if its producer is gone; otherwise half of it would stay in the
        # log.
        self._stores = RequestSteps(failure_answer, most_begun=MOST_STORING, outlives_connection=True)
        self._reads = RequestSteps(failure_answer, most_begun=MOST_READING)

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Handle a request; return the answer, or None if there is none or it is sent later."""
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
        """Finish the requests that store messages, and drop the other unfinished requests."""
        self._reads.stop()
        self._stores.stop()

    def __len__(self) -> int:
        """Return the number of requests that are being handled in steps."""
        return len(self._reads) + len(self._stores)


def _refused(command: RemotingCommand, error: Refusal | OSError) -> RemotingCommand:
    """Return the answer to a refused request.

    Raises:
        OSError: The error is not one of a full or read-only disk.
    """
    if isinstance(error, Refusal):
        return error.answer(command)
    if error.errno not in UNWRITABLE:
        raise error
    logger.error("request %d is refused: %s", command.code, error)
    why = "there is no space on the disk" if error.errno in NO_ROOM else "the file system is read-only"
    remark = f"service not available now: {why}, and the change cannot be written"
    return RemotingCommand.response(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)


def failure_answer(connection: Connection, command: RemotingCommand, error: Exception) -> RemotingCommand | None:
    """Return the answer to a request whose step raised an error; None if the connection has answered already."""
    if isinstance(error, Refusal) or (isinstance(error, OSError) and error.errno in UNWRITABLE):
        return _refused(command, error)
    connection.answer_failure(command, error)
    return None


def limits(
    idle_seconds: int,
    pending_bytes: int = 0,
    *,
    address_percent: int,
    buffers: BufferBudget,
    knows_by_handler: bool = False,
) -> Limits:
    """Return the limits of clients from settings in which 0 means no limit (idle time) or the default (bytes).

    Args:
        idle_seconds: Seconds after which an idle connection is closed; 0 for never.
        pending_bytes: Bytes that may wait to be written to a connection; 0 for the default.
        address_percent: Percentage of the connections that one address may have.
        buffers: The budget of buffered bytes of all connections.
        knows_by_handler: Whether a client is known from its first request on that access control accepts.
    """
    usual = Limits()
    return Limits(
        max_header=MAX_HEADER,
        idle_timeout=idle_seconds or None,
        max_address_percent=address_percent,
        max_address_unknown_percent=max(1, address_percent // 2),
        knows_by_handler=knows_by_handler,
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
    frames_handler: FramesHandler | None = None,
    tls: ServerTls | None = None,
) -> Server:
    """Listen at the address, and serve requests.

    Raises:
        TlsUnusable: A file of TLS cannot be used.
        AddressInUse: Another process listens there.
        CannotListen: The address is not this machine's, needs privileges, or the process may open no more files.
    """
    address = f"{host}:{port}"
    try:
        return await transport.serve(
            host,
            port,
            handler,
            on_connect=on_connect,
            on_close=on_close,
            limits=client_limits,
            frames_handler=frames_handler,
            tls=tls,
        )
    except TlsError as e:
        raise TlsUnusable(address, e) from e
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise AddressInUse(address, LISTEN_PORT) from e
        raise CannotListen(address, e) from e


def warn_if_open(name: str, server: Server) -> None:
    """Warn if a server without access control can be reached from other machines."""
    try:
        is_loopback = ipaddress.ip_address(server.host).is_loopback
    except ValueError:  # a name: the in-memory transport
        is_loopback = server.host == "localhost"
    if not is_loopback:
        logger.warning(
            "the %s listens on %s, and there is no access control: whoever reaches it may read, send and delete "
            "messages and change settings. Set aclEnable=true, admit only trusted hosts (a firewall), or set "
            "bindAddress=127.0.0.1",
            name,
            server.address,
        )
