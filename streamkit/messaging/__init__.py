"""Messages and the channels they flow through.

Imports nothing of streamkit but its errors and its clock.
"""

from streamkit.messaging.channel import DirectChannel, PublishSubscribeChannel, SubscribableChannel
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.dispatcher import (
    BroadcastingDispatcher,
    LoadBalancingStrategy,
    MessageDispatcher,
    RoundRobin,
    UnicastingDispatcher,
)
from streamkit.messaging.handler import MessageHandler
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.interceptor import ChannelInterceptor, GlobalChannelInterceptors
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.messaging.message_channel import MessageChannel
from streamkit.messaging.message_converter import MessageConverter
from streamkit.messaging.mime import MimeType
from streamkit.messaging.portal import LoopPortal, Portal
from streamkit.messaging.queue_channel import QueueChannel

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
