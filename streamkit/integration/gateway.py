"""The gateway: a call whose answer is sent to a channel."""

import asyncio
from typing import cast

from streamkit.errors import MessageDeliveryError
from streamkit.messaging.channel import DirectChannel
from streamkit.messaging.headers import REPLY_CHANNEL
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel

__all__ = ["MessagingGateway", "reply_channel"]


class MessagingGateway:
    """Sends requests to a channel and waits for answers at the channel in their header ``replyChannel``.

    Request and answer stay in this process: the handler that answers takes the channel from the request's headers, with
    :func:`reply_channel`.
    """

    def __init__(self, requests: MessageChannel, *, timeout: float | None = 1.0) -> None:
        """Make a gateway.

        Args:
            requests: The channel of requests.
            timeout: Seconds to wait for an answer; None: no limit.
        """
        self._requests = requests
        self._timeout = timeout

    async def ask(self, payload: object, headers: dict[str, object] | None = None) -> object:
        """Send a request and return the payload of the answer.

        Raises:
            MessageDeliveryError: No answer came in time.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()

        def settle(payload: object) -> None:
            if not answer.done():
                answer.set_result(payload)

        async def take(message: Message[object]) -> None:
            # Under a web framework's test client, the handler that answers runs on another loop.
            loop.call_soon_threadsafe(settle, message.payload)

        replies = DirectChannel("reply")
        replies.subscribe(take)
        request: Message[object] = Message(payload, {**(headers or {}), REPLY_CHANNEL: replies})
        try:
            async with asyncio.timeout(self._timeout):
                await self._requests.asend(request)
                return await answer
        except TimeoutError as error:
            raise MessageDeliveryError(f"no reply was received within {self._timeout:g} s", request) from error


def reply_channel(message: Message[object]) -> MessageChannel | None:
    """Return the channel for the answer to a message."""
    return cast("MessageChannel | None", message.headers.get(REPLY_CHANNEL))
