"""RocketMQ's remoting protocol: a codec without I/O, and transports for asyncio beside it.

The codec: `command` (frames) and `frame_decoder`, `headers`, `bodies`, `record` (messages as stored and
pulled), `batch`, `properties`, `message_id`, `compression`. The transports: `tcp` and `memory`, with
`connection` at both ends. This package imports nothing else of this project.
"""

from rocket_remoting.codes import RequestCode, ResponseCode
from rocket_remoting.command import HeaderEncoding, RemotingCommand
from rocket_remoting.connection import Connection, Handler, Limits
from rocket_remoting.errors import (
    ConnectError,
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeout,
    ResponseError,
    TooManyRequests,
)
from rocket_remoting.memory import MemoryTransport
from rocket_remoting.message import Message, MessageExt, MessageQueue
from rocket_remoting.tcp import TcpTransport
from rocket_remoting.transport import Server, Transport

__all__ = [
    "ConnectError",
    "Connection",
    "ConnectionLost",
    "Handler",
    "HeaderEncoding",
    "Limits",
    "LocalProtocolError",
    "MemoryTransport",
    "Message",
    "MessageExt",
    "MessageQueue",
    "RemoteProtocolError",
    "RemotingCommand",
    "RemotingError",
    "RequestCode",
    "RequestTimeout",
    "ResponseCode",
    "ResponseError",
    "Server",
    "TcpTransport",
    "TooManyRequests",
    "Transport",
]
