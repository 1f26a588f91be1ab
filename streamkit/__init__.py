"""Spring Cloud Stream's programming model for Python.

    from streamkit import StreamApplication, send_to

    app = StreamApplication()

    @app.stream_listener("orders")
    @send_to("receipts")
    async def charge(order: Order) -> Receipt: ...

    app.run()

Names are imported when they are first used (PEP 562), so that `import streamkit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what type checkers see; `_MODULES` says the same to the interpreter
    from streamkit.binder.acknowledgment import Acknowledgment as Acknowledgment
    from streamkit.errors import Reject as Reject
    from streamkit.errors import Requeue as Requeue
    from streamkit.errors import StreamkitError as StreamkitError
    from streamkit.messaging.channel import MessageChannel as MessageChannel
    from streamkit.messaging.converter import MessageConverter as MessageConverter
    from streamkit.messaging.headers import MessageHeaders as MessageHeaders
    from streamkit.messaging.interceptor import ChannelInterceptor as ChannelInterceptor
    from streamkit.messaging.message import ErrorMessage as ErrorMessage
    from streamkit.messaging.message import Message as Message

_MODULES = {
    "Acknowledgment": "streamkit.binder.acknowledgment",
    "ChannelInterceptor": "streamkit.messaging.interceptor",
    "ErrorMessage": "streamkit.messaging.message",
    "Message": "streamkit.messaging.message",
    "MessageChannel": "streamkit.messaging.channel",
    "MessageConverter": "streamkit.messaging.converter",
    "MessageHeaders": "streamkit.messaging.headers",
    "Reject": "streamkit.errors",
    "Requeue": "streamkit.errors",
    "StreamkitError": "streamkit.errors",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
