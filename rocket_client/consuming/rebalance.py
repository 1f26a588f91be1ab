"""Rebalancing: divides each topic's queues among the group's members, takes queues over and gives queues back.

::

    when        at start, when a broker reports a change of the members, when a route changed, every 20 s;
                again soon (after 0.1 s, 0.2 s … 20 s) while a queue could not be taken over
    division    every member computes the same division by itself, see `shares`
    revoked     the queue is dropped and its pull cancelled; its offset is committed
    assigned    pulling begins at the committed offset; without one, `consume_from_where` decides

All members hear of a change at about the same time. Without locks (concurrent mode and polls), time separates the two
members of a queue that moves::

                0                      0.15 s            0.3 s
    old member  |drop, wait for calls  |commit           |
    new member  |wait                                    |fetch the offset, pull

In orderly mode the broker's lock separates them. The new member is refused until the old one unlocks, and tries again
as above. The old member unlocks when its call has ended, and commits once more before that. It omits this commit when
its last renewal is 50 s old: the broker's lock lasts 60 s, so a new member may have committed later offsets by then.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from rocket_client.connection.client import cancel
from rocket_client.consuming.locks import QueueLocks
from rocket_client.consuming.membership import Membership
from rocket_client.consuming.pulling import ILLEGAL_OFFSET_TIMEOUT, Consumption, PullLimits, PullLoop
from rocket_client.consuming.shares import Shares
from rocket_client.consuming.start_offset import StartOffsets
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import is_retry_topic

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.1
UNLOCK_TIMEOUT = 24 * 3600.0
"""Seconds to wait at most for the last listener call of a revoked queue before the queue is unlocked. Its lock is not
renewed meanwhile: the broker gives it to another member 60 s after the last renewal, whether the call has ended or not.
Apache's RebalancePushImpl (5.3) unlocks 20 s after the last renewal, even if a call is under way."""
LOCK_SURELY_HELD = 50.0
"""Seconds after a lock's renewal in which no other member can have the lock: brokers keep a lock for 60."""
GIVE_BACK_TIMEOUT = 0.15
"""Seconds to wait for the calls of a revoked queue before its offset is committed; without locks only."""
TAKE_OVER_PAUSE = 0.3
"""Seconds to wait before a queue is taken over without locks. This must exceed `GIVE_BACK_TIMEOUT`, so that the former
member has committed; otherwise all messages consumed since its last commit, up to 5 s ago, are delivered again."""


class Rebalancer:
    """The queues assigned to one consumer; takes queues over and gives queues back."""

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
        self._start_offsets = StartOffsets(member.client, member.group, member.settings, member.offsets)
        self._shares = shares
        self._consumption = consumption
        self._locks = locks
        self._listeners = listeners
        self._limits: dict[str, PullLimits] = {}
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        # Queues being given back: their offset is not committed, or their lock not released yet. Until then this member
        # must not take them over again, or it would begin at an old offset.
        self._leaving: dict[MessageQueue, ProcessQueue] = {}
        self._failing_topics: set[str] = set()
        self._fails_to_renew = False
        self._background: set[asyncio.Task[None]] = set()
        self._requested = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Rebalancer {self._group}: {sorted(self._queues)}>"

    # Assigned queues

    def queues(self) -> Collection[ProcessQueue]:
        """Return the process queues of all assigned queues."""
        return self._queues.values()

    def assigned(self) -> frozenset[MessageQueue]:
        """Return the assigned queues."""
        return frozenset(self._queues)

    # Causes

    def request(self) -> None:
        """Rebalance in the background, without delay."""
        self._requested.set()

    async def start(self) -> None:
        """Rebalance now; from then on after each `request`, and every `rebalance_interval`."""
        complete = await self.rebalance()
        self._running = asyncio.create_task(self._run(complete), name=f"rebalance of {self._group}")

    async def _run(self, complete: bool) -> None:
        interval = self._settings.rebalance_interval.total_seconds()
        retry = FIRST_RETRY
        while True:
            pause = interval if complete else retry
            try:
                async with asyncio.timeout(pause):
                    await self._requested.wait()
            except TimeoutError:
                pass
            # Cleared before the rebalance: a change that is reported while the rebalance runs causes another one.
            self._requested.clear()
            try:
                complete = await self.rebalance()
            except Exception:
                logger.exception("group %s: rebalancing failed", self._group)
                complete = False
            retry = FIRST_RETRY if complete else min(2 * retry, interval)

    # One rebalance

    async def rebalance(self) -> bool:
        """Rebalance all topics; return False if a topic or a queue has to be tried again soon.

        Queues are given back topic by topic; then all new queues are taken over together, after one pause.
        """
        complete, before = True, self.assigned()
        topics = list(self._member.subscriptions)
        await self._revoke([queue for queue in self._queues if queue.topic not in topics])
        new: list[MessageQueue] = []
        failure: Exception | None = None
        for topic in topics:
            try:
                mine = await self._share(topic)
                if mine is None:
                    complete = False
                    continue
                new += [queue for queue in mine if queue not in self._queues]
                self._failing_topics.discard(topic)
            except RemotingError as error:
                level = logging.DEBUG if topic in self._failing_topics or is_retry_topic(topic) else logging.WARNING
                logger.log(level, "group %s: rebalancing topic %s failed: %s", self._group, topic, error)
                self._failing_topics.add(topic)
                complete = False
            except Exception as error:  # of the allocation strategy; the other topics are rebalanced
                failure = error
        # A member that is alone needs no pause: a member that has left committed its offsets before it unregistered.
        # Apache's RebalanceImpl never pauses before it fetches the offset.
        if new and self._locks is None and self._shares.has_others:
            await asyncio.sleep(TAKE_OVER_PAUSE)
        complete &= all(await asyncio.gather(*map(self._assign, new)))
        if before != self.assigned():
            self._divide_limits()
            self._notify_listeners(before ^ self.assigned())
        if failure is not None:
            raise failure
        return complete

    def _notify_listeners(self, changed: Collection[MessageQueue]) -> None:
        namespace = self._member.namespace
        for topic in sorted({queue.topic for queue in changed}):
            route = self._client.routes.get(topic)
            everything = map(namespace.unwrap_queue, route.subscribe_queues if route is not None else ())
            mine = (namespace.unwrap_queue(queue) for queue in self._queues if queue.topic == topic)
            arguments = namespace.unwrap(topic), frozenset(everything), frozenset(mine)
            for listener in self._listeners:
                try:
                    listener(*arguments)
                except Exception:
                    logger.exception("group %s: the rebalance listener %r failed", self._group, listener)

    async def _share(self, topic: str) -> Collection[MessageQueue] | None:
        """Give back the topic's queues that are another member's now; return this member's.

        Returns:
            This member's queues of the topic; None if the members cannot be known now.
        """
        route = self._client.routes.get(topic)
        if route is None or not route.subscribe_queues:
            return ()  # `RocketClient` looks for the route; its change causes a rebalance
        share = await self._shares.of(topic, route.subscribe_queues)
        if share is None:
            return None
        mine = set(share)
        await self._revoke([queue for queue in self._queues if queue.topic == topic and queue not in mine])
        return mine

    async def _revoke(self, queues: Iterable[MessageQueue]) -> None:
        """Give queues back: stop pulling, let calls under way finish, commit the settled offsets.

        With locks, only the commit and the end of the pulls are awaited. The lock is released in the background, when
        the queue's last call has ended.
        """
        # Removed before the first await: from here on no seek, reset or other revocation finds these queues.
        revoked = {queue: self._queues.pop(queue) for queue in list(queues)}
        if not revoked:
            return
        self._leaving.update(revoked)
        # Before anything is awaited: the answer of a pull that arrives now is discarded, and no call of the queue
        # begins.
        for process_queue in revoked.values():
            process_queue.dropped = True
            self._consumption.detach(process_queue)
        await cancel([self._pulls.pop(queue) for queue in revoked if queue in self._pulls])
        if self._locks is None:
            await asyncio.gather(*(queue.wait_idle(GIVE_BACK_TIMEOUT) for queue in revoked.values()))
        await self._commit(list(filter(self._surely_locked, revoked.values())))
        for queue, process_queue in revoked.items():
            if self._locks is not None:
                self._spawn(self._unlock(self._locks, process_queue), "unlock")
            else:
                self._offsets.remove(queue)
                self._leaving.pop(queue, None)  # gone already if `stop_pulling` cleared it meanwhile
        logger.info("group %s: %s gave back %s", self._group, self._client.client_id, sorted(revoked))

    async def _commit(self, process_queues: Collection[ProcessQueue]) -> None:
        """Commit the settled offsets of queues that this member gives back."""
        # A lite pull consumer notes its offsets in `detach`, and only with `auto_commit`.
        if not self._member.polls:
            # Calls that ended after their queue was dropped have settled their messages, but have not noted the offset.
            for process_queue in process_queues:
                offset = process_queue.smallest_unsettled()
                if offset != NOTHING_TO_COMMIT:
                    self._offsets.update(process_queue.message_queue, offset, increase_only=True)
        await self._offsets.persist([process_queue.message_queue for process_queue in process_queues])

    def _surely_locked(self, process_queue: ProcessQueue) -> bool:
        """Return whether no other member can have the queue's lock yet; True without locks."""
        return self._locks is None or not process_queue.lock_expired(self._loop.time(), LOCK_SURELY_HELD)

    async def _unlock(self, locks: QueueLocks, process_queue: ProcessQueue) -> None:
        queue = process_queue.message_queue
        try:
            await process_queue.wait_idle(UNLOCK_TIMEOUT)
            if self._surely_locked(process_queue):
                await self._commit([process_queue])
            await locks.unlock([queue])
        finally:
            self._offsets.remove(queue)
            del self._leaving[queue]
            self.request()

    async def _assign(self, queue: MessageQueue) -> bool:
        """Take the queue over and begin to pull it; return False if that is not possible now."""
        if queue in self._leaving:
            return False
        process_queue = ProcessQueue(queue)
        try:
            # The lock before the offset, as in Apache's RebalanceImpl: the former member commits once more before it
            # unlocks, so an offset that is fetched without the lock may be too old.
            if self._locks is not None and await self._locks.lock([process_queue]):
                logger.info("group %s: %s is still locked by another member", self._group, queue)
                return False
            offset = await self._start_offsets.find(queue)
        except RemotingError as error:
            logger.warning("group %s: %s cannot be taken over now: %s", self._group, queue, error)
            # The broker may have granted the lock although no answer came. The lock would then keep the queue from
            # the other members until it expires.
            if self._locks is not None:
                await self._locks.unlock([queue])
            return False
        self._begin(process_queue, offset)
        logger.info("group %s: %s took over %s from offset %d", self._group, self._client.client_id, queue, offset)
        return True

    def _begin(self, process_queue: ProcessQueue, offset: int) -> None:
        queue = process_queue.message_queue
        process_queue.begun_at = offset
        limits = self._limits.setdefault(queue.topic, PullLimits(self._settings))
        self._queues[queue] = process_queue
        self._consumption.attach(process_queue)
        pull_loop = PullLoop(self._member, self._consumption, process_queue, limits)
        self._pulls[queue] = asyncio.create_task(
            self._pull(pull_loop, process_queue, offset),
            name=f"pull {queue.topic} {queue.broker_name} {queue.queue_id} of {self._group}",
        )

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Continue the queue at an offset, and drop the messages pulled already; return False if it is not assigned."""
        former = self._queues.get(queue)
        if former is None or former.dropped:
            return False
        former.dropped = True
        self._consumption.detach(former)
        await cancel([self._pulls.pop(queue)] if queue in self._pulls else [])
        if self._queues.get(queue) is not former:
            return False  # the queue was revoked, or another seek came first
        process_queue = ProcessQueue(queue)
        # Makes this the offset to commit, even if no message is pulled from there.
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
                # The offset that the loop had reached is lost. All messages from the smallest unsettled one on are
                # pulled again: `ProcessQueue.put` drops those still unsettled, and those settled behind it are
                # delivered a second time.
                offset = max(offset, process_queue.smallest_unsettled())
            else:
                break
        if wanted is not None and not process_queue.dropped:
            await self.restart_at({process_queue.message_queue: wanted})

    async def restart_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Give assigned queues back with these offsets committed, and rebalance, which takes them over again there.

        Waits up to 10 s for the listener calls under way. Called when an operator resets offsets, and when a broker
        answers that the offset of a pull is out of range.
        """
        revoked = {queue: self._queues[queue] for queue in offsets if queue in self._queues}
        for process_queue in revoked.values():
            process_queue.dropped = True
        await asyncio.gather(*(process_queue.wait_idle(ILLEGAL_OFFSET_TIMEOUT) for process_queue in revoked.values()))
        for queue, process_queue in revoked.items():
            # An empty process queue has no offset to commit, so `_revoke` commits the offset that is noted here.
            process_queue.clear()
            self._offsets.update(queue, offsets[queue])
        await self._revoke([queue for queue in revoked if queue in self._queues])
        # The rebalance assigns the same queues again and sees no difference. But the positions have moved, so that the
        # rebalance listeners are called now.
        self._notify_listeners(revoked)
        self.request()

    def _divide_limits(self) -> None:
        for topic, limits in self._limits.items():
            limits.divide(sum(queue.topic == topic for queue in self._queues))

    # Locks

    async def renew_lock(self, process_queue: ProcessQueue) -> bool:
        """Renew the expired lock of one queue; give the queue back if another member has the lock.

        Returns:
            Whether this member has the lock.
        """
        return await self._renew([process_queue])

    def void_locks(self, broker_name: str) -> None:
        """Make no further call for the broker's queues before it grants their locks again.

        A broker that was restarted knows no locks, and neither does a slave that became the master. It may grant them
        to another member, which its heartbeat introduced first.
        """
        if self._locks is None:
            return
        for process_queue in self._queues.values():
            if process_queue.message_queue.broker_name == broker_name:
                process_queue.locked_at = None

    async def renew_locks(self) -> None:
        """Renew the locks of all assigned queues."""
        await self._renew([queue for queue in self._queues.values() if not queue.dropped])

    async def _renew(self, process_queues: Collection[ProcessQueue]) -> bool:
        if self._locks is None:
            return True
        try:
            refused = await self._locks.lock(process_queues)
        except RemotingError as error:
            level = logging.DEBUG if self._fails_to_renew else logging.WARNING
            self._fails_to_renew = True
            logger.log(level, "group %s: could not renew locks: %s", self._group, error)
            return False
        self._fails_to_renew = False
        if refused:
            lost = sorted(queue.message_queue for queue in refused)
            logger.warning("group %s: another member has the locks of %s now", self._group, lost)
            # Not awaited: the caller may be the queue's driver, which is cancelled when the queue is revoked.
            self._spawn(self._give_back(refused), "give back")
            self.request()
        return not refused

    async def _give_back(self, process_queues: Collection[ProcessQueue]) -> None:
        """Revoke those of the queues that are still assigned: another renewal, or a rebalance, may have come first."""
        await self._revoke(
            [each.message_queue for each in process_queues if self._queues.get(each.message_queue) is each]
        )

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self._group}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Shutdown

    async def stop_pulling(self) -> None:
        """Stop rebalancing and pulling; without locks, also end the give-backs under way."""
        if self._running is not None:
            await cancel([self._running])
        pulls, self._pulls = list(self._pulls.values()), {}
        await cancel(pulls)
        # With locks this can wait until the last calls have ended: no other member commits before this one unlocks,
        # or before the lock expires, and `give_all_back` omits queues whose lock may have expired.
        if self._locks is None:
            await self._commit_leaving()

    async def _commit_leaving(self) -> None:
        """Commit the queues being given back now: later, their new members may have committed higher offsets."""
        leaving = list(self._leaving.values())
        await asyncio.gather(*(process_queue.wait_idle(GIVE_BACK_TIMEOUT) for process_queue in leaving))
        await self._commit(leaving)
        self._leaving.clear()

    async def give_all_back(self) -> None:
        """Commit all settled offsets and release all locks, at shutdown, when no call is under way."""
        for process_queue in self._queues.values():
            process_queue.dropped = True
        leaving = list(filter(self._surely_locked, self._leaving.values()))
        await cancel(self._background)
        # Give-backs were just cancelled, perhaps before their commit.
        await self._commit([*self._queues.values(), *leaving])
        # After the commits: a new member fetches the offset as soon as it has the lock.
        if self._locks is not None:
            await self._locks.unlock_all()
        self._queues.clear()
