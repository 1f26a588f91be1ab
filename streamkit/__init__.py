"""Spring Cloud Stream's programming model for Python.

    from streamkit import StreamApplication, send_to

    app = StreamApplication()

    @app.stream_listener("orders")
    @send_to("receipts")
    async def charge(order: Order) -> Receipt: ...

    app.run()

Each name is imported on first access (PEP 562), which keeps `import streamkit` fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers; `_MODULES` says the same at run time
    from streamkit.application import StreamApplication as StreamApplication
    from streamkit.binder.acknowledgment import Acknowledgment as Acknowledgment
    from streamkit.bridge import StreamBridge as StreamBridge
    from streamkit.errors import StreamkitError as StreamkitError
    from streamkit.listeners.binding_interfaces import Processor as Processor
    from streamkit.listeners.binding_interfaces import Sink as Sink
    from streamkit.listeners.binding_interfaces import Source as Source
    from streamkit.listeners.binding_interfaces import enable_binding as enable_binding
    from streamkit.listeners.binding_interfaces import input_channel as input_channel
    from streamkit.listeners.binding_interfaces import output_channel as output_channel
    from streamkit.listeners.function_declaration import function as function
    from streamkit.listeners.listener import Header as Header
    from streamkit.listeners.listener import Headers as Headers
    from streamkit.listeners.listener import Payload as Payload
    from streamkit.listeners.listener import error_listener as error_listener
    from streamkit.listeners.listener import send_to as send_to
    from streamkit.listeners.listener import stream_listener as stream_listener
    from streamkit.listeners.listener import transaction_listener as transaction_listener
    from streamkit.messaging.headers import MessageHeaders as MessageHeaders
    from streamkit.messaging.interceptor import ChannelInterceptor as ChannelInterceptor
    from streamkit.messaging.message import ErrorMessage as ErrorMessage
    from streamkit.messaging.message import Message as Message
    from streamkit.messaging.message_channel import MessageChannel as MessageChannel
    from streamkit.messaging.message_converter import MessageConverter as MessageConverter
    from streamkit.messaging.transaction import TransactionState as TransactionState
    from streamkit.settlement import Accept as Accept
    from streamkit.settlement import Reject as Reject
    from streamkit.settlement import Requeue as Requeue
    from streamkit.settlement import Settlement as Settlement

_MODULES = {
    "Accept": "streamkit.settlement",
    "Acknowledgment": "streamkit.binder.acknowledgment",
    "ChannelInterceptor": "streamkit.messaging.interceptor",
    "ErrorMessage": "streamkit.messaging.message",
    "Header": "streamkit.listeners.listener",
    "Headers": "streamkit.listeners.listener",
    "Message": "streamkit.messaging.message",
    "MessageChannel": "streamkit.messaging.message_channel",
    "MessageConverter": "streamkit.messaging.message_converter",
    "MessageHeaders": "streamkit.messaging.headers",
    "Payload": "streamkit.listeners.listener",
    "Processor": "streamkit.listeners.binding_interfaces",
    "Reject": "streamkit.settlement",
    "Requeue": "streamkit.settlement",
    "Settlement": "streamkit.settlement",
    "Sink": "streamkit.listeners.binding_interfaces",
    "Source": "streamkit.listeners.binding_interfaces",
    "StreamApplication": "streamkit.application",
    "StreamBridge": "streamkit.bridge",
    "StreamkitError": "streamkit.errors",
    "TransactionState": "streamkit.messaging.transaction",
    "enable_binding": "streamkit.listeners.binding_interfaces",
    "error_listener": "streamkit.listeners.listener",
    "function": "streamkit.listeners.function_declaration",
    "input_channel": "streamkit.listeners.binding_interfaces",
    "output_channel": "streamkit.listeners.binding_interfaces",
    "send_to": "streamkit.listeners.listener",
    "stream_listener": "streamkit.listeners.listener",
    "transaction_listener": "streamkit.listeners.listener",
}

__all__ = [
    "Accept",
    "Acknowledgment",
    "ChannelInterceptor",
    "ErrorMessage",
    "Header",
    "Headers",
    "Message",
    "MessageChannel",
    "MessageConverter",
    "MessageHeaders",
    "Payload",
    "Processor",
    "Reject",
    "Requeue",
    "Settlement",
    "Sink",
    "Source",
    "StreamApplication",
    "StreamBridge",
    "StreamkitError",
    "TransactionState",
    "enable_binding",
    "error_listener",
    "function",
    "input_channel",
    "output_channel",
    "send_to",
    "stream_listener",
    "transaction_listener",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
