"""A consumer binding: a member of a group. A thread fetches for it, and a driver calls the receiver."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from binders.kafka.dead_letter import DeadLetters
from binders.kafka.fetching import Batch, ConsumerClient, FetchThread, Subscription
from binders.kafka.handling import PartitionSettler
from binders.kafka.partition import AssignedPartition, Delivery
from streamkit.binder.binder import BindingState, ConsumerBinding, ConsumerDestination
from streamkit.binder.drivers import ConcurrentDriver, Driver, OrderedDriver
from streamkit.binder.receiver_calls import ReceiverCall


@dataclass(frozen=True, slots=True)
class Membership:
    """The settings and parts of a member of a group.

    Attributes:
        destination: The destination and settings of the binding.
        group: The group's name in Kafka; an anonymous or broadcasting member has a group of its own.
        client: The consumer's configuration.
        subscription: The topics or partitions that the consumer reads.
        dead_letters: Keeps rejected messages.
        batch_size: The largest number of messages in a list that the receiver gets.
        forget: Deletes the member's own group at the end; None if the group is shared.
    """

    destination: ConsumerDestination
    group: str
    client: ConsumerClient
    subscription: Subscription
    dead_letters: DeadLetters
    batch_size: int = 1
    forget: Callable[[], Awaitable[None]] | None = None


class KafkaMember(ConsumerBinding):
    """The membership of a binding in its group.

    Attributes:
        binding: The binding's name.
        thread: The thread that fetches records.
    """

    def __init__(self, membership: Membership) -> None:
        """Prepare a member; `start` joins the group."""
        self.binding = membership.destination.binding
        self._dead_letters = membership.dead_letters
        self._forget = membership.forget
        self.thread = FetchThread(
            self.binding,
            membership.client,
            membership.subscription,
            self._take,
            self._wake,
            recall=self._recall,
        )
        self._state = BindingState.STOPPED

    @property
    def state(self) -> BindingState:
        """The state of the binding: running, paused or stopped."""
        return self._state

    @property
    def is_open(self) -> bool:
        """Whether settlements are still carried out: the binding is not stopped."""
        return self._state is not BindingState.STOPPED

    async def start(self) -> None:
        """Join the group and start to receive messages.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        self._state = BindingState.RUNNING
        try:
            await self.thread.start()
        except BaseException:
            self._state = BindingState.STOPPED
            raise

    async def pause(self) -> None:
        """Stop fetching until `resume`; the member stays in the group and keeps its partitions."""
        self.thread.pause()
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Start fetching again."""
        self.thread.resume()
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group; delete it at the brokers if it is the member's own.

        Args:
            timeout: How long calls in flight may take to finish and be committed, in seconds.
        """
        if self._state is BindingState.STOPPED:
            return
        self._state = BindingState.STOPPED
        self.thread.pause()
        await self._finish(timeout)
        await self.thread.stop()
        await self._dead_letters.close()
        if self._forget is not None:
            await self._forget()

    def _take(self, batches: Sequence[Batch]) -> None:
        """Add fetched records to their partitions, and wake the calls of these partitions."""
        if self._state is BindingState.STOPPED:
            return
        for partition, records in batches:
            if not partition.is_lost:
                partition.take(records)
                self._wake(partition)

    def _wake(self, partition: AssignedPartition) -> None:
        """Handle a partition that has waiting records and may have calls again."""

    def _recall(self, partition: AssignedPartition) -> None:
        """Withdraw calls of a partition that wait for a permit: no call of the partition may begin now."""

    async def _finish(self, timeout: float) -> None:
        """Begin no more calls, and wait for calls in flight, up to `timeout` seconds."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.binding!r} {self._state.value}>"


class KafkaConsumerBinding(KafkaMember):
    """A consumer binding that calls the receiver with single messages or batches.

    In order, there is at most one call at a time for each partition; otherwise only the permits limit the calls.
    """

    def __init__(self, membership: Membership, call_receiver: ReceiverCall[Delivery]) -> None:
        """Prepare a member; `start` joins the group.

        Args:
            membership: The settings and parts of the member.
            call_receiver: Calls the receiver and returns settlements.
        """
        super().__init__(membership)
        destination = membership.destination
        kind = OrderedDriver if destination.delivery.ordered else ConcurrentDriver
        settler = PartitionSettler(membership.dead_letters, self.thread.wake_if_room)
        self._driver: Driver[AssignedPartition, Delivery] = kind(
            destination, settler, call_receiver, size=membership.batch_size
        )

    def _wake(self, partition: AssignedPartition) -> None:
        self._driver.wake(partition)

    def _recall(self, partition: AssignedPartition) -> None:
        self._driver.recall(partition)

    async def _finish(self, timeout: float) -> None:
        # Calls that wait for a permit end with the binding's permits, which are closed after this step.
        self._driver.interrupt()
        await asyncio.sleep(0)
        await self._driver.finish(timeout)
