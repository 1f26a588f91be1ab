"""The objects that the parts of one running consumer share."""

from collections.abc import Mapping

import msgspec

from rocket_client.connection.client import RocketClient
from rocket_client.consuming.metered_listener import Arrivals
from rocket_client.consuming.offsets import OffsetStore
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_client.namespace import Namespace
from rocket_client.settings import ConsumerSettings, MessageModel
from rocket_remoting.wire.bodies import SubscriptionData

UNLIMITED_SPAN = 1 << 62


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a consumer group."""

    client: RocketClient
    group: str
    namespace: Namespace
    """The namespace of the group and its topics. All names and queues below include it."""
    settings: ConsumerSettings
    offsets: OffsetStore
    subscriptions: Mapping[str, SubscriptionData]
    """The current subscriptions by topic; a live view."""
    gate: PullGate
    """Decides which queues may be pulled now."""
    max_span: int = UNLIMITED_SPAN
    """Maximum distance between the first and the last unsettled offset of a queue; beyond, the queue is not pulled.
    Only concurrent consumption, which settles out of order, needs the limit."""
    polls: bool = False
    """Whether the application polls and decides what is committed; then pulls carry no commit."""
    posts_subscription: bool = False
    """Whether each pull carries the subscription; otherwise brokers use the one of the last heartbeat."""
    arrivals: Arrivals | None = None
    """Counts what arrives; None if nothing is counted."""
    bodies: UnpackedBodies
    """Decompresses bodies within the consumer's limit of memory."""
    unreachable: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """Errors of unreachable brokers by broker name, so that each is logged once and not for each queue."""

    @property
    def clustering(self) -> bool:
        """Whether the group's members share the messages."""
        return self.settings.message_model is MessageModel.CLUSTERING

    @property
    def client_id(self) -> str:
        """The member's id."""
        return self.client.client_id
