"""Message endpoints between channels: filter, router, splitter, aggregator, transformer, bridge, gateway, poller.

Each but the gateway and the poller is a handler to subscribe to a channel, and sends to others::

    app.channel("orders").subscribe(MessageFilter(is_large, app.channel("large"), discards=app.channel("small")))

They see messages as the channel carries them: on the channel of an input binding payloads are bytes, as they came; on a
channel of the application's own, such as ``app.channel("internal")``, whatever was sent.
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
