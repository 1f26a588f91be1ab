"""Which queues this member consumes: divides each topic's queues among the group's members, and acts on it.

::

    when        at start, when a broker says that members changed, when a route changed, every 20 s;
                again soon (0.1 s, 0.2 s … 20 s) while a queue could not be taken over
    how         as `shares` says
    revoked     dropped, its pull ended, its offset committed, once calls under way ended or after 0.15 s;
                in orderly mode committed again, if nobody can have its lock yet, and unlocked once its call ended
    assigned    in orderly mode locked first, else where there are other members 0.3 s later: one of them may have
                it still; begins at the committed offset, or by `consume_from_where`
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from rocket_client.connection.client import cancel
from rocket_client.consuming.locks import QueueLocks
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.pulling import ILLEGAL_OFFSET_PATIENCE, Consumption, PullLimits, PullLoop
from rocket_client.consuming.shares import Shares
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.settings import ConsumeFromWhere
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import is_retry_topic

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.1
UNLOCK_PATIENCE = 24 * 3600.0
UNDISPUTED = 50.0
"""Seconds from a lock's renewal in which surely no other member has it: brokers keep it for 60."""
GIVE_BACK_PATIENCE = 0.15
TAKE_OVER_PAUSE = 0.3
"""Members hear of a change at the same time. Who takes a queue over waits until who had it has committed, longer than
that one waits for its calls; else all that was consumed since the last commit, in up to 5 s, would come again."""
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class Rebalancer:
    """The queues assigned to one consumer, and how they come and go."""

    def __init__(
        self,
        member: Membership,
        shares: Shares,
        consumption: Consumption,
        locks: QueueLocks | None,
        listeners: Sequence[Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], None]] = (),
    ) -> None:
        self._member = member
        self._client = member.client
        self._group = member.group
        self._settings = member.settings
        self._offsets = member.offsets
        self._shares = shares
        self._consumption = consumption
        self._locks = locks
        self._listeners = listeners
        self._limits: dict[str, PullLimits] = {}
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        # Being given back, their offset not committed or their lock not released yet: not to be taken again now.
        self._leaving: dict[MessageQueue, ProcessQueue] = {}
        self._in_trouble: set[str] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Rebalancer {self._group}: {sorted(self._queues)}>"

    # What is assigned

    def queues(self) -> Collection[ProcessQueue]:
        """Process queues of all queues assigned."""
        return self._queues.values()

    def assigned(self) -> frozenset[MessageQueue]:
        """The queues assigned."""
        return frozenset(self._queues)

    # When

    def soon(self) -> None:
        """Divide anew as soon as the loop comes to it."""
        self._wanted.set()

    async def start(self) -> None:
        """Divide now, and go on when there is cause, and every `rebalance_interval`."""
        complete = await self.rebalance()
        self._running = asyncio.create_task(self._run(complete), name=f"rebalance of {self._group}")

    async def _run(self, complete: bool) -> None:
        interval = self._settings.rebalance_interval.total_seconds()
        retry = FIRST_RETRY
        while True:
            pause = interval if complete else retry
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                complete = await self.rebalance()
            except Exception:
                logger.exception("group %s: rebalancing failed", self._group)
                complete = False
            retry = FIRST_RETRY if complete else min(2 * retry, interval)

    # How

    async def rebalance(self) -> bool:
        """Divide the queues of all topics now; False when a topic or a queue has to be tried again soon."""
        complete, before = True, self.assigned()
        topics = list(self._member.subscriptions)
        await self._revoke([queue for queue in self._queues if queue.topic not in topics])
        coming: list[MessageQueue] = []
        failure: Exception | None = None
        for topic in topics:
            try:
                mine = await self._share(topic)
                if mine is None:
                    complete = False
                    continue
                coming += [queue for queue in mine if queue not in self._queues]
                self._in_trouble.discard(topic)
            except RemotingError as error:
                level = (
                    logging.DEBUG if topic in self._in_trouble or is_retry_topic(topic) else logging.WARNING
                )
                logger.log(level, "group %s: rebalancing topic %s failed: %s", self._group, topic, error)
                self._in_trouble.add(topic)
                complete = False
            except Exception as error:  # of the strategy: other topics have gone on
                failure = error
        if coming and self._locks is None and self._shares.has_others:
            await asyncio.sleep(TAKE_OVER_PAUSE)
        complete &= all(await asyncio.gather(*map(self._assign, coming)))
        if before != self.assigned():
            self._divide_limits()
            self._tell(before ^ self.assigned())
        if failure is not None:
            raise failure
        return complete

    def _tell(self, changed: Collection[MessageQueue]) -> None:
        namespace = self._member.namespace
        for topic in sorted({queue.topic for queue in changed}):
            route = self._client.routes.get(topic)
            everything = map(namespace.unwrap_queue, route.subscribe_queues if route is not None else ())
            mine = (namespace.unwrap_queue(queue) for queue in self._queues if queue.topic == topic)
            told = namespace.unwrap(topic), frozenset(everything), frozenset(mine)
            for listener in self._listeners:
                try:
                    listener(*told)
                except Exception:
                    logger.exception("group %s: the rebalance listener %r failed", self._group, listener)

    async def _share(self, topic: str) -> Collection[MessageQueue] | None:
        """This member's queues of the topic, others given back; None when it cannot be known now."""
        route = self._client.routes.get(topic)
        if route is None or not route.subscribe_queues:
            return ()  # its route is looked for elsewhere, and a change of it leads here again
        share = await self._shares.of(topic, route.subscribe_queues)
        if share is None:
            return None
        mine = set(share)
        await self._revoke([queue for queue in self._queues if queue.topic == topic and queue not in mine])
        return mine

    async def _revoke(self, queues: Iterable[MessageQueue]) -> None:
        """Let the queues go: calls under way finish, what is settled is committed."""
        going = {queue: self._queues.pop(queue) for queue in list(queues)}
        if not going:
            return
        self._leaving.update(going)
        for process_queue in going.values():
            process_queue.dropped = True
            self._consumption.detach(process_queue)
        await cancel([self._pulls.pop(queue) for queue in going if queue in self._pulls])
        if self._locks is None:
            await asyncio.gather(*(queue.idle(GIVE_BACK_PATIENCE) for queue in going.values()))
        await self._commit(list(filter(self._is_undisputed, going.values())))
        for queue, process_queue in going.items():
            if self._locks is not None:
                self._spawn(self._release(self._locks, process_queue), "unlock")
            else:
                self._offsets.remove(queue)
                self._leaving.pop(queue, None)  # a shutdown meanwhile has ended all of them
        logger.info("group %s: %s gave back %s", self._group, self._client.client_id, sorted(going))

    async def _commit(self, process_queues: Collection[ProcessQueue]) -> None:
        """Commit what is settled of queues that are no longer this member's, or will not be."""
        if not self._member.polls:  # what was polled is settled, and noted, by whoever polls
            for process_queue in process_queues:
                offset = process_queue.smallest_unsettled()
                if offset != NOTHING_TO_COMMIT:
                    self._offsets.update(process_queue.message_queue, offset, increase_only=True)
        await self._offsets.persist([process_queue.message_queue for process_queue in process_queues])

    def _is_undisputed(self, process_queue: ProcessQueue) -> bool:
        """Whether a queue that is given back can have no other member yet, as far as that is known."""
        return self._locks is None or not process_queue.lock_expired(self._loop.time(), UNDISPUTED)

    async def _release(self, locks: QueueLocks, process_queue: ProcessQueue) -> None:
        queue = process_queue.message_queue
        try:
            await process_queue.idle(UNLOCK_PATIENCE)
            if self._is_undisputed(process_queue):
                await self._commit([process_queue])
            await locks.unlock([queue])
        finally:
            self._offsets.remove(queue)
            del self._leaving[queue]
            self.soon()

    async def _assign(self, queue: MessageQueue) -> bool:
        """Take the queue over and pull it; False when that is not possible now."""
        if queue in self._leaving:
            return False
        process_queue = ProcessQueue(queue)
        try:
            if self._locks is not None and await self._locks.lock([process_queue]):
                logger.info("group %s: %s is locked by another member still", self._group, queue)
                return False
            offset = await self._first_offset(queue)
        except RemotingError as error:
            logger.warning("group %s: %s cannot be taken over now: %s", self._group, queue, error)
            if self._locks is not None:
                await self._locks.unlock([queue])
            return False
        self._begin(process_queue, offset)
        logger.info(
            "group %s: %s took over %s from offset %d", self._group, self._client.client_id, queue, offset
        )
        return True

    def _begin(self, process_queue: ProcessQueue, offset: int) -> None:
        queue = process_queue.message_queue
        limits = self._limits.setdefault(queue.topic, PullLimits(self._settings))
        self._queues[queue] = process_queue
        self._consumption.attach(process_queue)
        pull_loop = PullLoop(self._member, self._consumption, process_queue, limits)
        self._pulls[queue] = asyncio.create_task(
            self._pull(pull_loop, process_queue, offset),
            name=f"pull {queue.topic} {queue.broker_name} {queue.queue_id} of {self._group}",
        )

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Go on in the queue at that offset, without what was pulled already; False when it is not assigned."""
        former = self._queues.get(queue)
        if former is None or former.dropped:
            return False
        former.dropped = True
        self._consumption.detach(former)
        await cancel([self._pulls.pop(queue)] if queue in self._pulls else [])
        if self._queues.get(queue) is not former:
            return False  # revoked meanwhile
        process_queue = ProcessQueue(queue)
        process_queue.locked_at = former.locked_at
        process_queue.skip_to(offset)
        self._begin(process_queue, offset)
        return True

    async def _pull(self, pull_loop: PullLoop, process_queue: ProcessQueue, offset: int) -> None:
        while True:
            try:
                wanted = await pull_loop.run(offset)
            except Exception:
                logger.exception("group %s: pulling %s failed", self._group, process_queue.message_queue)
                await asyncio.sleep(self._settings.pull_time_delay_when_exception.total_seconds())
                offset = max(offset, process_queue.smallest_unsettled())
            else:
                break
        if wanted is not None and not process_queue.dropped:
            await self.restart_at({process_queue.message_queue: wanted})

    async def restart_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Give assigned queues back with these offsets committed, once their calls ended or after 10 s."""
        going = {queue: self._queues[queue] for queue in offsets if queue in self._queues}
        for process_queue in going.values():
            process_queue.dropped = True
        await asyncio.gather(
            *(process_queue.idle(ILLEGAL_OFFSET_PATIENCE) for process_queue in going.values())
        )
        for queue, process_queue in going.items():
            process_queue.clear()
            self._offsets.update(queue, offsets[queue])
        await self._revoke([queue for queue in going if queue in self._queues])
        # They come back, so that no difference is seen then; but nobody may go by what it knew of them.
        self._tell(going)
        self.soon()

    async def _first_offset(self, queue: MessageQueue) -> int:
        committed = await self._offsets.fetch(queue)
        if committed is not None and committed >= 0:
            return committed
        where = self._settings.consume_from_where
        if where is ConsumeFromWhere.FIRST_OFFSET:
            return 0
        if is_retry_topic(queue.topic):
            # Redeliveries of this group: none may be missed, unless a point in time was asked for.
            return (
                0 if where is ConsumeFromWhere.LAST_OFFSET else await self._client.requests.max_offset(queue)
            )
        if where is ConsumeFromWhere.LAST_OFFSET:
            return await self._client.requests.max_offset(queue)
        stamp = self._settings.consume_timestamp
        moment = (
            int(stamp.timestamp() * 1000)
            if stamp is not None
            else self._client.started_at_ms - _HALF_AN_HOUR_MS
        )
        return await self._client.requests.search_offset(queue, moment)

    def _divide_limits(self) -> None:
        for topic, limits in self._limits.items():
            limits.divide(sum(queue.topic == topic for queue in self._queues))

    # Locks

    async def lock_again(self, process_queue: ProcessQueue) -> bool:
        """Renew one queue's lock that has expired here; gives the queue back when another member has it."""
        return await self._renew([process_queue])

    async def renew_locks(self) -> None:
        """Renew the locks of all assigned queues."""
        await self._renew([queue for queue in self._queues.values() if not queue.dropped])

    async def _renew(self, process_queues: Collection[ProcessQueue]) -> bool:
        if self._locks is None:
            return True
        try:
            refused = await self._locks.lock(process_queues)
        except RemotingError as error:
            logger.warning("group %s: locks not renewed: %s", self._group, error)
            return False
        if refused:
            lost = [queue.message_queue for queue in refused]
            logger.warning("group %s: lost the locks of %s", self._group, sorted(lost))
            # Not awaited: a queue's own driver may have asked, and it ends with the queue.
            self._spawn(self._revoke([queue for queue in lost if queue in self._queues]), "give back")
            self.soon()
        return not refused

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self._group}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Shutdown

    async def stop_pulling(self) -> None:
        """Take no more queues, and pull none."""
        if self._running is not None:
            await cancel([self._running])
        pulls, self._pulls = list(self._pulls.values()), {}
        await cancel(pulls)
        if self._locks is None:
            await self._end_handovers()

    async def _end_handovers(self) -> None:
        """Commit now what was being given back: in a moment it is another member's, which knows better."""
        leaving = list(self._leaving.values())
        await asyncio.gather(*(process_queue.idle(GIVE_BACK_PATIENCE) for process_queue in leaving))
        await self._commit(leaving)
        self._leaving.clear()

    async def give_all_back(self) -> None:
        """Commit everything settled and unlock everything; for the end, with no call under way."""
        for process_queue in self._queues.values():
            process_queue.dropped = True
        leaving = list(filter(self._is_undisputed, self._leaving.values()))
        await cancel(self._background)
        # Queues on their way out may not be committed yet: the end may have come between.
        await self._commit([*self._queues.values(), *leaving])
        if self._locks is not None:
            await self._locks.unlock_all()
        self._queues.clear()
