"""RocketMQ's remoting protocol: a codec without I/O, and transports for asyncio beside it.

The codec: `command` (frames) and `frame_decoder`, `headers`, `bodies`, `record` (messages as stored and
pulled), `batch`, `properties`, `message_id`, `compression`. The transports: `tcp` and `memory`, with
`connection` at both ends and `tls` between. This package imports nothing else of this project.

Modules are imported when their names are first used: a program that needs only the codec does not load asyncio.
"""

from importlib import import_module

_NAMES_OF = {
    "wire.codes": ("RequestCode", "ResponseCode"),
    "wire.command": ("HeaderEncoding", "RemotingCommand"),
    "session.connection": ("Connection", "Handler"),
    "wire.errors": (
        "ConnectError",
        "ConnectionLost",
        "LocalProtocolError",
        "RemoteProtocolError",
        "RemotingError",
        "RequestTimeout",
        "ResponseError",
        "TlsError",
        "TooManyRequests",
    ),
    "session.limits": ("Limits",),
    "tls.settings": ("ClientCertificates", "ClientTls", "ServerTls", "TlsMode"),
    "transports.memory": ("MemoryTransport",),
    "wire.message": ("Message", "MessageExt", "MessageQueue"),
    "transports.tcp": ("TcpTransport",),
    "transports.transport": ("Server", "Transport"),
}

_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605  # the stub file names them for type checkers


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
