"""Samples the cluster for all viewers together, and only while somebody watches.

::

    every 5 s      each broker's own figures: one request for each broker
                   the next 50 groups: two requests for each group and master, so that all have their turn
                   the groups whose pages are open
    every 60 s     the names of the groups

So a cluster with 1,000 groups is asked some twenty requests a second, however many pages are open, and nothing 15
seconds after the last one is closed. The sums of lags are those of the last look at each group.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.brokers import BrokerList, list_brokers
from rocket_admin.groups import group_names
from rocket_client import Admin
from rocket_console.live.group_looks import GroupLook, look_at_group
from rocket_console.live.ring import Ring
from rocket_remoting import RemotingError
from rocket_remoting.clock import SystemClock

__all__ = ["ClusterWatch"]

logger = logging.getLogger(__name__)

EVERY: Final = 5.0
"""Seconds between two samples."""
LEASE: Final = 15.0
"""Seconds for which a look at the figures keeps them fresh."""
GROUPS_IN_TURN: Final = 50
"""Groups that are looked at for each sample."""
NAMES_EVERY: Final = 60.0
"""Seconds between two looks for new groups."""
MOST_OPEN: Final = 20
"""Groups with open pages that are looked at for each sample."""
AT_ONCE: Final = 16
"""Groups that are looked at at the same time."""


@dataclass(frozen=True, kw_only=True)
class _Open:
    """A group whose page is open."""

    until: float
    lag: Ring


class ClusterWatch:
    """What is known about a cluster's figures.

    Attributes:
        sends: Messages that all masters stored per second.
        deliveries: Messages that all masters delivered per second.
        lag: Messages that all groups have not consumed yet, as far as known.
        brokers: The brokers at the last sample; None before the first.
        problem: Why the last sample failed; empty if it did not.
        looks: The last look at each group, by name.
    """

    def __init__(self, admin: Admin) -> None:
        """Create the watch; it samples from the first `keep_fresh` on.

        Args:
            admin: Asks the cluster.
        """
        self.sends, self.deliveries, self.lag = Ring(), Ring(), Ring()
        self.brokers: BrokerList | None = None
        self.problem = ""
        self.looks: dict[str, GroupLook] = {}
        self._admin = admin
        self._clock = admin.clock or SystemClock()
        self._names: Sequence[str] = ()
        self._names_until = 0.0
        self._next = 0
        self._until = 0.0
        self._open: dict[str, _Open] = {}
        self._sampling: asyncio.Task[None] | None = None
        self._sampled = asyncio.Event()

    @property
    def groups(self) -> int:
        """The number of groups of applications, as far as known."""
        return len(self._names)

    @property
    def looked_at(self) -> int:
        """The number of those that have been looked at."""
        return sum(name in self.looks for name in self._names)

    def keep_fresh(self) -> None:
        """Sample for the next 15 seconds, at least."""
        self._until = _now() + LEASE
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._sample_while_watched(), name="console samples")

    def keep_group_fresh(self, group: str) -> Ring:
        """Sample a group for the next 15 seconds, too; return its lag over time."""
        self.keep_fresh()
        known = self._open.pop(group, None)
        lag = Ring() if known is None or known.until < _now() else known.lag
        self._open[group] = _Open(until=_now() + LEASE, lag=lag)
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        return lag

    async def first_sample(self) -> None:
        """Wait until there is a sample."""
        self.keep_fresh()
        await self._sampled.wait()

    async def look_at(self, groups: Collection[str], *, within: float) -> Mapping[str, GroupLook]:
        """Look at groups now, and return what is known about them then.

        Args:
            groups: Their names.
            within: Seconds; of groups that take longer the last look is returned, if there is one.
        """
        try:
            async with asyncio.timeout(within):
                await self._look_at(groups, await self._admin.masters())
        except TimeoutError:
            pass
        return {group: self.looks[group] for group in groups if group in self.looks}

    async def stop(self) -> None:
        """Sample no more."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)

    async def _sample_while_watched(self) -> None:
        while _now() < self._until:
            begun = _now()
            try:
                await self._sample()
                self.problem = ""
            except (RemotingError, TimeoutError) as error:
                self.problem = str(error) or "the cluster did not answer in time"
            except Exception:
                self.problem = "the console made a mistake; its log has the details"
                logger.exception("a sample of the cluster failed")
            self._sampled.set()
            await asyncio.sleep(max(0.0, EVERY - (_now() - begun)))
        self._sampled.clear()

    async def _sample(self) -> None:
        brokers = await list_brokers(self._admin)
        self.brokers = brokers
        masters = [broker for broker in brokers.brokers if broker.broker_id == 0]
        at = self._clock.now_ms() / 1000
        for ring, rates in (
            (self.sends, [broker.sends_per_second for broker in masters]),
            (self.deliveries, [broker.deliveries_per_second for broker in masters]),
        ):
            known = [rate for rate in rates if rate is not None]
            if known:
                ring.add(at, sum(known))
        await self._sample_groups()

    async def _sample_groups(self) -> None:
        if _now() >= self._names_until:
            found = await group_names(self._admin)
            self._names, self._names_until = found.names, _now() + NAMES_EVERY
            for group in self.looks.keys() - set(self._names):
                del self.looks[group]
        self._open = {group: each for group, each in self._open.items() if each.until > _now()}
        addresses = await self._admin.masters()
        await self._look_at({*self._in_turn(), *self._open}, addresses)
        at = self._clock.now_ms() / 1000
        for group, each in self._open.items():
            look = self.looks.get(group)
            if look is not None and look.lag is not None:
                each.lag.add(at, look.lag)
        if self.looked_at == self.groups:  # the sum of some groups would seem to grow while others are looked at
            self.lag.add(at, sum(self.looks[name].lag or 0 for name in self._names))

    def _in_turn(self) -> Sequence[str]:
        """Return the groups whose turn it is."""
        if self._next >= len(self._names):
            self._next = 0
        first = self._next
        self._next += GROUPS_IN_TURN
        return self._names[first : self._next]

    async def _look_at(self, groups: Collection[str], masters: Mapping[str, str]) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def look(group: str) -> None:
            async with turns:
                self.looks[group] = await look_at_group(self._admin, group, masters)

        await asyncio.gather(*map(look, groups))

    @property
    def failures(self) -> Sequence[BrokerFailure]:
        """The brokers that did not answer at the last sample."""
        return () if self.brokers is None else self.brokers.failures


def _now() -> float:
    return asyncio.get_running_loop().time()
