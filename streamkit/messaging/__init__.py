"""Messages and the channels they flow through.

Of streamkit, this package imports only the errors and the clock. Each name is imported on first access (PEP 562): a
program that only makes messages loads neither the channels nor the converters.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers; `_MODULES` says the same at run time
    from streamkit.messaging.channel import DirectChannel as DirectChannel
    from streamkit.messaging.channel import PublishSubscribeChannel as PublishSubscribeChannel
    from streamkit.messaging.channel import SubscribableChannel as SubscribableChannel
    from streamkit.messaging.converter import CompositeMessageConverter as CompositeMessageConverter
    from streamkit.messaging.dispatcher import BroadcastingDispatcher as BroadcastingDispatcher
    from streamkit.messaging.dispatcher import LoadBalancingStrategy as LoadBalancingStrategy
    from streamkit.messaging.dispatcher import MessageDispatcher as MessageDispatcher
    from streamkit.messaging.dispatcher import RoundRobin as RoundRobin
    from streamkit.messaging.dispatcher import UnicastingDispatcher as UnicastingDispatcher
    from streamkit.messaging.handler import MessageHandler as MessageHandler
    from streamkit.messaging.headers import MessageHeaders as MessageHeaders
    from streamkit.messaging.interceptor import ChannelInterceptor as ChannelInterceptor
    from streamkit.messaging.interceptor import GlobalChannelInterceptors as GlobalChannelInterceptors
    from streamkit.messaging.message import ErrorMessage as ErrorMessage
    from streamkit.messaging.message import Message as Message
    from streamkit.messaging.message_channel import MessageChannel as MessageChannel
    from streamkit.messaging.message_converter import MessageConverter as MessageConverter
    from streamkit.messaging.mime import MimeType as MimeType
    from streamkit.messaging.portal import LoopPortal as LoopPortal
    from streamkit.messaging.portal import Portal as Portal
    from streamkit.messaging.queue_channel import QueueChannel as QueueChannel

_MODULES = {
    "BroadcastingDispatcher": "streamkit.messaging.dispatcher",
    "ChannelInterceptor": "streamkit.messaging.interceptor",
    "CompositeMessageConverter": "streamkit.messaging.converter",
    "DirectChannel": "streamkit.messaging.channel",
    "ErrorMessage": "streamkit.messaging.message",
    "GlobalChannelInterceptors": "streamkit.messaging.interceptor",
    "LoadBalancingStrategy": "streamkit.messaging.dispatcher",
    "LoopPortal": "streamkit.messaging.portal",
    "Message": "streamkit.messaging.message",
    "MessageChannel": "streamkit.messaging.message_channel",
    "MessageConverter": "streamkit.messaging.message_converter",
    "MessageDispatcher": "streamkit.messaging.dispatcher",
    "MessageHandler": "streamkit.messaging.handler",
    "MessageHeaders": "streamkit.messaging.headers",
    "MimeType": "streamkit.messaging.mime",
    "Portal": "streamkit.messaging.portal",
    "PublishSubscribeChannel": "streamkit.messaging.channel",
    "QueueChannel": "streamkit.messaging.queue_channel",
    "RoundRobin": "streamkit.messaging.dispatcher",
    "SubscribableChannel": "streamkit.messaging.channel",
    "UnicastingDispatcher": "streamkit.messaging.dispatcher",
}

__all__ = [
    "BroadcastingDispatcher",
    "ChannelInterceptor",
    "CompositeMessageConverter",
    "DirectChannel",
    "ErrorMessage",
    "GlobalChannelInterceptors",
    "LoadBalancingStrategy",
    "LoopPortal",
    "Message",
    "MessageChannel",
    "MessageConverter",
    "MessageDispatcher",
    "MessageHandler",
    "MessageHeaders",
    "MimeType",
    "Portal",
    "PublishSubscribeChannel",
    "QueueChannel",
    "RoundRobin",
    "SubscribableChannel",
    "UnicastingDispatcher",
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
