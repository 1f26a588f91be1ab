"""What the parts of one running push consumer share."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from rocket_client.client import RocketClient
from rocket_client.offsets import OffsetStore
from rocket_client.settings import MessageModel, PushConsumerSettings
from rocket_remoting.bodies import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One member of a consumer group."""

    client: RocketClient
    group: str
    settings: PushConsumerSettings
    orderly: bool
    """Whether the listener wants the messages of a queue in order."""
    offsets: OffsetStore
    subscriptions: Mapping[str, SubscriptionData]
    """By topic, as they are now."""
    resumed: asyncio.Event
    """Set unless the consumer is suspended."""

    @property
    def clustering(self) -> bool:
        """Whether the group's members share the messages."""
        return self.settings.message_model is MessageModel.CLUSTERING

    @property
    def client_id(self) -> str:
        """The member's id."""
        return self.client.client_id
