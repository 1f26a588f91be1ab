"""Request and reply over messages: the consumer of a request message sends a reply to the requesting client.

::

    request   an ordinary message with CORRELATION_ID, REPLY_TO_CLIENT (this client's id) and TTL
    reply     SEND_REPLY_MESSAGE to <cluster>_REPLY_TOPIC with the same three; the broker pushes it to the client
              over its connection (PUSH_REPLY_MESSAGE_TO_CLIENT), so it must be sent to a broker that knows the client

A reply that comes after the request's timeout is logged and dropped.
"""

import asyncio
import logging
from uuid import uuid4

from rocket_client.errors import IllegalMessageError
from rocket_remoting.wire.headers import ReplyMessageRequestHeader
from rocket_remoting.wire.message import Message, MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_MESSAGE_TTL,
    PROPERTY_MESSAGE_TYPE,
    decode_properties,
)
from rocket_remoting.wire.topics import REPLY_TOPIC_POSTFIX

logger = logging.getLogger(__name__)

REPLY = "reply"


class Replies:
    """The requests of one client that wait for a reply."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __repr__(self) -> str:
        return f"<Replies: {len(self._waiting)} awaited>"

    def expect(self, request: Message, client_id: str, timeout: float) -> tuple[str, asyncio.Future[MessageExt]]:
        """Mark a message as a request; return its correlation id and a future of the reply.

        Args:
            request: The message; it gets the properties of a request.
            client_id: The id of this client, which gets the reply.
            timeout: Seconds until the reply, for the property TTL.
        """
        correlation_id = str(uuid4())
        request.properties |= {
            PROPERTY_CORRELATION_ID: correlation_id,
            PROPERTY_MESSAGE_REPLY_TO_CLIENT: client_id,
            PROPERTY_MESSAGE_TTL: str(round(timeout * 1000)),
        }
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the reply."""
        self._waiting.pop(correlation_id, None)

    def take(self, header: ReplyMessageRequestHeader, body: bytes) -> None:
        """Set a reply as the result of its request's future; a compressed body stays compressed."""
        properties = decode_properties(header.properties or "")
        future = self._waiting.pop(properties.get(PROPERTY_CORRELATION_ID, ""), None)
        if future is None or future.done():
            logger.info("dropped a reply on %s: its request has timed out or is unknown: %s", header.topic, properties)
            return
        future.set_result(
            MessageExt(
                header.topic,
                body,
                properties=properties,
                flag=header.flag,
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                store_timestamp=header.store_timestamp,
                reconsume_times=header.reconsume_times or 0,
            )
        )


def reply_to(request: MessageExt, body: bytes, properties: dict[str, str]) -> Message:
    """Return the reply message for a received request.

    Raises:
        IllegalMessageError: The message does not have the properties of a request that a broker has stored.
    """
    theirs = request.properties
    missing = [
        name
        for name in (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if name not in theirs
    ]
    if missing:
        raise IllegalMessageError(
            request.topic, f"it is not a request message: it has no property {', '.join(missing)}"
        )
    carried = (PROPERTY_CORRELATION_ID, PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_MESSAGE_TTL)
    return Message(
        f"{theirs[PROPERTY_CLUSTER]}_{REPLY_TOPIC_POSTFIX}",
        body,
        properties=properties
        | {name: theirs[name] for name in carried if name in theirs}
        | {PROPERTY_MESSAGE_TYPE: REPLY},
    )
