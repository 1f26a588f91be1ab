"""What the parts of one running consumer share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocket_client.connection.client import RocketClient
from rocket_client.consuming.offsets import OffsetStore
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.unpacked_bodies import UnpackedBodies
from rocket_client.namespace import Namespace
from rocket_client.settings import ConsumerSettings, MessageModel
from rocket_remoting.wire.bodies import SubscriptionData

UNLIMITED_SPAN = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One member of a consumer group."""

    client: RocketClient
    group: str
    namespace: Namespace
    """Of the group and its topics. All names and queues below have it already."""
    settings: ConsumerSettings
    offsets: OffsetStore
    subscriptions: Mapping[str, SubscriptionData]
    """By topic, as they are now."""
    gate: PullGate
    """Which queues may be pulled now."""
    max_span: int = UNLIMITED_SPAN
    """How far apart the first and the last unsettled message of a queue may lie; only what is consumed out of order
    can leave a wide gap behind."""
    polls: bool = False
    """Whether the application polls, and says what is committed; then nothing is committed by pulls, either."""
    posts_subscription: bool = False
    """Whether each pull carries the subscription, instead of relying on the heartbeat's."""
    bodies: UnpackedBodies
    """The bodies that are decompressed now."""
    unreachable: dict[str, set[str]] = field(default_factory=dict)
    """Why pulls do not reach brokers, by their names: told once, not by each of their queues."""

    @property
    def clustering(self) -> bool:
        """Whether the group's members share the messages."""
        return self.settings.message_model is MessageModel.CLUSTERING

    @property
    def client_id(self) -> str:
        """The member's id."""
        return self.client.client_id
