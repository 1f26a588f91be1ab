"""The sender of a producer whose sends are counted."""

from rocket_client.connection.client import RocketClient
from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.send_result import SendResult
from rocket_client.metrics import ProducerMeter
from rocket_client.producing.sending import ChooseQueue, Sender
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.message import MessageQueue

__all__ = ["MeteredSender"]


class MeteredSender(Sender):
    """Sends messages, and counts how long each send takes and which attempts fail."""

    def __init__(
        self, client: RocketClient, settings: ProducerSettings, outgoing: OutgoingMessages, meter: ProducerMeter
    ) -> None:
        super().__init__(client, settings, outgoing)
        self._meter = meter

    async def send(
        self,
        outgoing: Outgoing,
        choose: ChooseQueue | None,
        limit: float,
        *,
        sync: bool,
        first: MessageQueue | None = None,
    ) -> SendResult:
        """Send a message, as `Sender.send` does."""
        begun, topic = self._now(), self._outgoing.namespace.unwrap(outgoing.topic)
        try:
            result = await super().send(outgoing, choose, limit, sync=sync, first=first)
        except Exception:
            self._meter.sent(topic, self._now() - begun, succeeded=False)
            raise
        self._meter.sent(topic, self._now() - begun, succeeded=True)
        return result

    def _note_failed_attempt(self, topic: str) -> None:
        self._meter.attempt_failed(self._outgoing.namespace.unwrap(topic))
