"""What the name server and the broker do alike: listen, and call the handler of a request's code."""

import errno
from collections.abc import Callable, Mapping

from rocket_remoting.connection import Connection, Handler
from rocket_remoting.transport import Limits, Server, Transport

from rocket_broker.errors import AddressInUse, StartError
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand

__all__ = ["dispatch_by_code", "listen"]


def dispatch_by_code(server: str, handlers: Mapping[int, Handler]) -> Handler:
    """Return the handler that calls the one of the request's code; an unknown code is answered as such."""
    find = handlers.get

    def dispatch(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        handler = find(command.code)
        if handler is None:
            return RemotingCommand.response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request type {command.code} not supported by this {server}",
            )
        return handler(connection, command)

    return dispatch


async def listen(
    transport: Transport,
    host: str,
    port: int,
    handler: Handler,
    *,
    on_connect: Callable[[Connection], None] | None = None,
    on_close: Callable[[Connection], None] | None = None,
    limits: Limits,
) -> Server:
    """Serve at the address.

    Raises:
        AddressInUse: Somebody else does.
        StartError: The address is not this machine's, or not to be had without privileges.
    """
    address = f"{host}:{port}"
    try:
        return await transport.serve(
            host, port, handler, on_connect=on_connect, on_close=on_close, limits=limits
        )
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise AddressInUse(address, "listenPort") from e
        raise StartError(address, f"cannot listen on {address}: {e.strerror or e}") from e
