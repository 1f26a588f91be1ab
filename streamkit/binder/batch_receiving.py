"""The receiver of a binding in batch mode: one call of the listener handles several messages.

::

    binder ─▶ BatchMessageReceiver ─▶ input channel ─▶ listener(list)
                  │ a message cannot be converted      this message alone fails: error handler, then dead letter
                  │ the listener returns settlements   one for each message
                  │ the listener raises                further attempts call it with the messages that are not
                  │                                    settled; then the error handler gets each message, and
                  │                                    each is requeued or rejected by its own redeliveries
                  ▼
              a settlement for each message
"""

from collections.abc import Sequence

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.binder import Binder, ConsumerBinding, ConsumerDestination
from streamkit.binder.delivered import DeliveredBatch
from streamkit.binder.receiving import MessageReceiver, closing
from streamkit.events import message_received, notify
from streamkit.messaging.message import Message
from streamkit.settlement import Settlement

__all__ = ["BatchMessageReceiver"]


class BatchMessageReceiver(MessageReceiver):
    """Calls a binding's listener with batches and returns a settlement for each message."""

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Bind this receiver to a destination, for batches.

        Raises:
            BinderUnavailable: The binder's system cannot be reached.
            BinderError: The binder's system refused.
        """
        return await binder.bind_batch_consumer(destination, self)

    async def receive_batch(self, messages: Sequence[Message[bytes]], redeliveries: Sequence[int]) -> list[Settlement]:
        """Handle one delivery of several messages.

        Args:
            messages: The messages, in their order.
            redeliveries: The number of earlier redeliveries of each message.

        Returns:
            The settlement of each message, in their order.

        Raises:
            CancelledError: The call is cancelled; its messages stay unsettled.
        """
        if message_received.receivers:
            for message in messages:
                notify(message_received, self._owner, binding=self._binding, message=message)
        acknowledgment = Acknowledgment() if self._manual else None
        delivered = DeliveredBatch(messages, redeliveries, acknowledgment)
        running = self._attempts.run(delivered, self._calls.make, self._permits.sleep, self._conclude)
        return await (running if acknowledgment is None else closing(acknowledgment, running))

    def _conclude(self, delivered: DeliveredBatch) -> list[Settlement]:
        return [self._attempts.conclude(each) for each in delivered.messages]
