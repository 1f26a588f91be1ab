"""Message endpoints between channels: filter, router, splitter, aggregator, transformer, bridge, gateway, poller.

All except the gateway and the poller are handlers, which are subscribed to a channel and send to others::

    app.channel("orders").subscribe(MessageFilter(is_large, app.channel("large"), discards=app.channel("small")))

They receive messages as they are on the channel: on the channel of an input binding payloads are bytes; on a channel
inside the application, such as ``app.channel("internal")``, payloads are what was sent.
"""

from streamkit.integration.aggregator import Aggregator
from streamkit.integration.endpoints import Bridge, MessageFilter, Router, Splitter, Transformer
from streamkit.integration.gateway import MessagingGateway, reply_channel
from streamkit.integration.poller import Poller

__all__ = [
    "Aggregator",
    "Bridge",
    "MessageFilter",
    "MessagingGateway",
    "Poller",
    "Router",
    "Splitter",
    "Transformer",
    "reply_channel",
]
