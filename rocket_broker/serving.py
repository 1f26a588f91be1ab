"""What the name server and the broker do alike: listen, and call the handler of a request's code."""

import errno
import logging
from collections.abc import Callable, Mapping

from rocket_broker.errors import AddressInUse, StartError
from rocket_broker.refusal import Refusal
from rocket_broker.store.errors import NO_ROOM
from rocket_remoting.buffers import BufferBudget
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection, Handler
from rocket_remoting.limits import Limits
from rocket_remoting.transport import Server, Transport

__all__ = ["dispatch_by_code", "limits", "listen"]

_log = logging.getLogger(__name__)


def dispatch_by_code(
    server: str, handlers: Mapping[int, Handler], *, admit: Callable[[int], None] = lambda code: None
) -> Handler:
    """Return the handler that calls the one of the request's code.

    An unknown code is answered as such, and a full disk as the store answers it.

    Args:
        server: What this is, for people.
        handlers: Request code -> handler.
        admit: Raises a `Refusal` of a request, by its code, that is not to be handled now.
    """
    find = handlers.get

    def dispatch(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        handler = find(command.code)
        if handler is None:
            return RemotingCommand.response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request type {command.code} not supported by this {server}",
            )
        try:
            admit(command.code)
            return handler(connection, command)
        except Refusal as refusal:
            return refusal.answer(command)
        except OSError as e:
            if e.errno not in NO_ROOM:
                raise
            _log.error("request %d is refused: %s", command.code, e)
            remark = "service not available now: there is no room on the disk for what would have to be noted"
            return RemotingCommand.response(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)

    return dispatch


def limits(
    idle_seconds: int, pending_bytes: int = 0, *, address_percent: int, buffers: BufferBudget
) -> Limits:
    """Return what clients may do, from settings in which 0 means no limit or the usual one."""
    usual = Limits()
    return Limits(
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
        AddressInUse: Somebody else does.
        StartError: The address is not this machine's, or not to be had without privileges.
    """
    address = f"{host}:{port}"
    try:
        return await transport.serve(
            host, port, handler, on_connect=on_connect, on_close=on_close, limits=client_limits
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise AddressInUse(address, "listenPort") from e
        raise StartError(address, f"cannot listen on {address}: {e.strerror or e}") from e
