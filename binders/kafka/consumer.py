"""A consumer binding: one member of a group, fed by its thread, whose calls a driver makes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from binders.kafka.dead_letter import DeadLetters
from binders.kafka.fetching import Batch, ConsumerClient, FetchThread, Subscription
from binders.kafka.handling import ConcurrentDriver, Driver, Hand, OrderedDriver, Work
from binders.kafka.partition import AssignedPartition
from streamkit.binder.binder import BindingState, ConsumerBinding, ConsumerDestination


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member of a group needs.

    Attributes:
        destination: What it is bound to.
        group: The group's name in Kafka; an anonymous or broadcasting member's is its own.
        client: The consumer's configuration.
        subscription: What it reads.
        dead_letters: Where rejected messages go.
        forget: Removes the group in the end, where it is the member's own.
    """

    destination: ConsumerDestination
    group: str
    client: ConsumerClient
    subscription: Subscription
    dead_letters: DeadLetters
    forget: Callable[[], Awaitable[None]] | None = None


class KafkaMember(ConsumerBinding):
    """One binding's membership in its group.

    Attributes:
        binding: The binding's name.
        thread: What fetches for it.
    """

    def __init__(self, membership: Membership) -> None:
        """Make a member that has not joined yet."""
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
        """Running, paused or stopped."""
        return self._state

    @property
    def is_open(self) -> bool:
        """Whether settlements count still."""
        return self._state is not BindingState.STOPPED

    async def start(self) -> None:
        """Join the group; messages arrive from now on.

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
        """Fetch nothing more until `resume`; the group and its partitions are kept."""
        self.thread.pause()
        self._state = BindingState.PAUSED

    async def resume(self) -> None:
        """Fetch again."""
        self.thread.resume()
        self._state = BindingState.RUNNING

    async def stop(self, timeout: float) -> None:
        """Leave the group; calls in flight get `timeout` seconds to finish and be committed."""
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
        """Have what came be handled, or wait to be polled."""
        if self._state is BindingState.STOPPED:
            return
        for partition, records in batches:
            if not partition.is_lost:
                partition.take(records)
                self._wake(partition)

    def _wake(self, partition: AssignedPartition) -> None:
        """There is something in ``partition``."""

    def _recall(self, partition: AssignedPartition) -> None:
        """Nothing of ``partition`` may begin, for now or ever."""

    async def _finish(self, timeout: float) -> None:
        """Begin no more calls, and give those under way `timeout` seconds."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.binding!r} {self._state.value}>"


class KafkaConsumerBinding(KafkaMember):
    """Hands over what comes, one message or one batch at a time per partition, or as many as there are permits."""

    def __init__(self, membership: Membership, hand: Hand) -> None:
        """Make a member that has not joined yet; `hand` calls the receiver."""
        super().__init__(membership)
        destination = membership.destination
        size = destination.delivery.batch_size if destination.properties.batch_mode else 1
        kind = OrderedDriver if destination.delivery.ordered else ConcurrentDriver
        work = Work(destination, hand, size, membership.dead_letters, self.thread.made_room)
        self._driver: Driver = kind(work)

    def _wake(self, partition: AssignedPartition) -> None:
        self._driver.wake(partition)

    def _recall(self, partition: AssignedPartition) -> None:
        self._driver.recall(partition)

    async def _finish(self, timeout: float) -> None:
        # Calls that wait for a permit end with the binding's permits, which are closed after this step.
        self._driver.interrupt()
        await asyncio.sleep(0)
        await self._driver.finish(timeout)
