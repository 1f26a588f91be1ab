"""Single pulls of a queue: the request, the broker to ask, and the messages of the answer.

::

    suggested broker    each answer says whom to ask next: a slave while a master's backlog is not in its memory
    tags                the broker compares hash codes, the tags themselves are compared here
    topic               without the namespace; of a redelivered message, as a listener wants it: that it failed in
    body                as the broker stores it: a compressed one is decompressed when it is consumed
"""

from typing import NamedTuple

from rocket_client.connection.client import RocketClient
from rocket_client.core.pull_answer import PullAnswer, PullStatus
from rocket_client.core.topic_route import MASTER_ID
from rocket_client.errors import BrokerNotFoundError
from rocket_client.namespace import Namespace
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.headers import PullMessageRequestHeader
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import (
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
)
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.sys_flag import (
    PULL_COMMIT_OFFSET,
    PULL_LITE,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from rocket_remoting.wire.topics import retry_topic


class PullTerms(NamedTuple):
    """How a queue is pulled, again and again."""

    batch_size: int
    hold_ms: int
    """How long the broker may hold a pull that finds nothing; 0: not at all."""
    timeout: float
    """Seconds for a whole pull."""
    posts_subscription: bool
    """Whether each pull carries the subscription."""
    lite: bool = False
    """Whether for an application that polls; brokers that can serve such pulls apart from push consumers'."""


class QueuePulls:
    """The pulls of one queue for one group.

    Args:
        client: What asks.
        group: In whose name.
        queue: The queue, as brokers know it.
        namespace: What messages' topics are freed of.
        hides_retries: Whether messages of the group's retry topic show the topic they failed in instead. Who polls must
            know from which queue a message is.
    """

    def __init__(
        self,
        client: RocketClient,
        group: str,
        queue: MessageQueue,
        namespace: Namespace,
        *,
        hides_retries: bool = False,
    ) -> None:
        self._client = client
        self._group = group
        self._queue = queue
        self._namespace = namespace
        self._hides_retries = hides_retries and queue.topic == retry_topic(group)
        self._topic = namespace.unwrap(queue.topic)
        self._renames = self._hides_retries or self._topic != queue.topic
        self.broker_id = MASTER_ID
        """Which member of the broker is asked next."""

    def __repr__(self) -> str:
        return f"<QueuePulls of {self._queue} by {self._group}>"

    async def pull(
        self, subscription: SubscriptionData, offset: int, terms: PullTerms, *, commit: int = 0
    ) -> PullAnswer:
        """One answer of the broker.

        Args:
            subscription: What is wanted.
            offset: From where on.
            terms: How many, and how long it may take.
            commit: The group's offset, for the master to keep; 0 for none.

        Raises:
            RemotingError: No broker was found, it did not answer, or it refused.
        """
        address, broker_id = await self._address()
        flag = PULL_SUSPEND if terms.hold_ms else 0
        if commit > 0 and broker_id == MASTER_ID:
            flag |= PULL_COMMIT_OFFSET
        else:
            commit = 0
        expression = subscription.sub_string if terms.posts_subscription else None
        if expression is not None:
            flag |= PULL_SUBSCRIPTION
        if terms.lite:
            flag |= PULL_LITE
        queue = self._queue
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=terms.batch_size,
            sys_flag=flag,
            commit_offset=commit,
            suspend_timeout_millis=terms.hold_ms,
            subscription=expression,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        requests = self._client.requests
        ask = requests.lite_pull if terms.lite else requests.pull
        answer = await ask(address, header, terms.timeout)
        self.broker_id = answer.suggest_which_broker_id
        return answer

    async def _address(self) -> tuple[str, int]:
        routes, broker_name = self._client.routes, self._queue.broker_name
        found = routes.address(broker_name, self.broker_id)
        if found is None:
            await routes.refresh(self._queue.topic)
            found = routes.address(broker_name, self.broker_id)
            if found is None:
                raise BrokerNotFoundError(broker_name)
        return found

    def messages(self, answer: PullAnswer, subscription: SubscriptionData) -> list[MessageExt]:
        """Return the messages of the answer as the application gets them, but for compressed bodies."""
        if answer.status is not PullStatus.FOUND:
            return []
        messages = decode_records(answer.records, decompress=False)
        if subscription.tags_set:
            wanted = frozenset(subscription.tags_set)
            messages = [message for message in messages if message.properties.get(PROPERTY_TAGS) in wanted]
        smallest, largest, broker_name = (
            str(answer.min_offset),
            str(answer.max_offset),
            self._queue.broker_name,
        )
        for message in messages:
            properties = message.properties
            properties[PROPERTY_MIN_OFFSET] = smallest
            properties[PROPERTY_MAX_OFFSET] = largest
            message.broker_name = broker_name
            if self._renames:
                message.topic = self._topic_of(message)
        return messages

    def _topic_of(self, message: MessageExt) -> str:
        if not self._hides_retries:
            return self._topic
        return self._namespace.unwrap(message.properties.get(PROPERTY_RETRY_TOPIC, message.topic))
