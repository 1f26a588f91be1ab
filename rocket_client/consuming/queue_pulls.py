"""Single pulls of a queue: the request, the broker to ask, and the messages of the answer.

::

    suggested broker    each answer names the broker for the next pull: a slave while the messages are not in the
                        master's memory any more, or the master cannot be reached
    tags                the broker compares hash codes; the client compares the tags themselves
    topic               without the namespace; of a redelivered message, for a listener, the topic it failed in
    body                as the broker stores it; a compressed body is decompressed when it is consumed
"""

from contextlib import suppress
from typing import NamedTuple

from rocket_client.connection.client import RocketClient
from rocket_client.core.pull_answer import PullAnswer, PullStatus
from rocket_client.core.pull_request import pull_header
from rocket_client.core.pull_target import PullTarget
from rocket_client.core.topic_route import MASTER_ID
from rocket_client.errors import BrokerNotFoundError
from rocket_client.namespace import Namespace
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemotingError
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import (
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
)
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.topics import is_dead_letter_topic, retry_topic


class PullTerms(NamedTuple):
    """The parameters that all pulls of a queue share."""

    batch_size: int
    hold_ms: int
    """Milliseconds for which the broker may hold a pull that finds nothing; 0 for an answer at once."""
    timeout: float
    """Seconds for a whole pull."""
    posts_subscription: bool
    """Whether each pull carries the subscription."""
    lite: bool = False
    """Whether the application polls; then pulls are sent as LITE_PULL_MESSAGE, which brokers can serve apart."""


class QueuePulls:
    """The pulls of one queue for one group.

    Args:
        client: Sends the requests.
        group: The consumer group.
        queue: The queue, as brokers know it.
        namespace: The namespace that is removed from the messages' topics.
        hides_retries: Whether messages of the group's retry topic get the topic that they failed in. False for polls:
            the application needs the queue that a message came from, to commit and seek.
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
        self._are_dead_letters = is_dead_letter_topic(queue.topic)
        self._renames = self._hides_retries or self._topic != queue.topic
        self._target = PullTarget(client.routes, queue.broker_name)

    def __repr__(self) -> str:
        return f"<QueuePulls of {self._queue} by {self._group}>"

    async def pull(
        self, subscription: SubscriptionData, offset: int, terms: PullTerms, *, commit: int = 0, last: bool = False
    ) -> PullAnswer:
        """Send one pull and return the answer.

        Args:
            subscription: The filter.
            offset: The first offset.
            terms: Number of messages and times.
            commit: The group's offset to commit with the pull; 0 for none. Only sent to a master.
            last: As in `Connection.invoke_async`.

        Raises:
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        address, broker_id = self._target.address() or await self._found_address()
        header = pull_header(
            self._group,
            self._queue,
            offset,
            subscription,
            max_messages=terms.batch_size,
            hold_ms=terms.hold_ms,
            # The master has the group's offsets. Apache's client sends no commit to a slave either (PullAPIWrapper):
            # a slave of 4.9 ignores it, a slave of 5.3 stores it.
            commit=commit if broker_id == MASTER_ID else 0,
            posts_subscription=terms.posts_subscription,
            lite=terms.lite,
        )
        requests = self._client.requests
        ask = requests.lite_pull if terms.lite else requests.pull
        try:
            answer = await ask(address, header, terms.timeout, last=last)
        except (ConnectError, ConnectionLost):
            await self._turn_away(broker_id)
            raise
        self._target.answered(answer.suggest_which_broker_id)
        return answer

    async def _turn_away(self, broker_id: int) -> None:
        """Pull from another broker of the name next, if there is one: the last one cannot be reached."""
        if not self._target.unreachable(broker_id):
            return
        # Its answer may suggest the first one again, which the name server may know to be gone.
        with suppress(RemotingError):
            await self._client.routes.refresh(self._queue.topic)

    async def _found_address(self) -> tuple[str, int]:
        await self._client.routes.refresh(self._queue.topic)
        found = self._target.address()
        if found is None:
            raise BrokerNotFoundError(self._queue.broker_name)
        return found

    def messages(self, answer: PullAnswer, subscription: SubscriptionData) -> list[MessageExt]:
        """Return the messages of the answer that match the tags, as the application gets them; bodies as stored."""
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
        if self._are_dead_letters:
            # The stored number counts redeliveries to the group that gave the message up. With it, one failure in this
            # group would be one too many.
            for message in messages:
                message.reconsume_times = 0
        if self._renames:
            for message in messages:
                message.topic = self._topic_of(message)
        return messages

    def _topic_of(self, message: MessageExt) -> str:
        if not self._hides_retries:
            return self._topic
        return self._namespace.unwrap(message.properties.get(PROPERTY_RETRY_TOPIC, message.topic))
