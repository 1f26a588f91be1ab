"""A shop that takes orders over an outbox, and its stock, on the cluster while its masters are killed.

In the end each order that was taken is reserved, once, and the outbox knows that.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from streamkit.patterns.outbox import Consumptions, Outbox
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, ProducerMessage
from tests.outbox_campaign.services import KEYS, STOCK_SETTINGS, Place, Reserved, Taken
from tests.outbox_campaign.stage import Database

logger = logging.getLogger(__name__)

PAUSE: Final = 0.1
"""Seconds between two orders."""
SHOP_SETTINGS: Final = {"streamkit.outbox.lease": "30s", "streamkit.outbox.check-after": "3s"}
"""A relay that is not killed keeps its lease, also on a machine on which a send takes seconds. Questions about orders
are further apart than answers take, because only the answer to the last question counts."""
MOMENT: Final = 0.2
LONG: Final = 10.0
"""Seconds without a confirmation that are logged."""
NAMESPACE: Final = "shop"
TOPICS: Final = (f"{NAMESPACE}%orders", f"{NAMESPACE}%orders-check")


class Orders:
    """The orders of one run, in a database of their own.

    Attributes:
        longest_pause: Seconds, at most, in which no order was confirmed.
    """

    def __init__(self, directory: Path, name_server: str) -> None:
        self._database = Database("sqlite", f"sqlite:///{directory}/orders.db")
        self._engine = self._database.engine
        for table in (*PRODUCER_TABLES, *CONSUMER_TABLES, Taken.__table__, Reserved.__table__):
            table.create(self._engine)  # type: ignore[attr-defined]
        self._place = Place(self._database.url, "default", name_server, NAMESPACE)
        self._engines = (self._place.engine(), self._place.engine())
        self._is_over = False
        self.longest_pause = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run shop and stock while the context lasts, and take orders until `end`."""
        shop, stock = self._place.application(SHOP_SETTINGS), self._place.application(STOCK_SETTINGS)
        outbox = Outbox(shop, self._engines[0], "orders")
        outbox.reconcile("orders")
        consumptions = Consumptions(stock, self._engines[1])

        @consumptions.listener("orders")
        async def reserve(order: dict[str, int], session: AsyncSession) -> None:
            session.add(Reserved(number=order["number"]))

        async with self._disposed(), stock, shop:
            self._taking = asyncio.create_task(self._take(outbox))
            watching = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                for task in (self._taking, watching):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    @asynccontextmanager
    async def _disposed(self) -> AsyncIterator[None]:
        """Close the connections of both engines at the end."""
        try:
            yield
        finally:
            for engine in self._engines:
                await engine.dispose()

    async def end(self) -> None:
        """Take no more orders."""
        self._is_over = True
        await self._taking

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    async def _take(self, outbox: Outbox) -> None:
        number = 0
        while not self._is_over:
            with contextlib.suppress(OperationalError):  # SQLite has one writer, and may be busy for too long
                async with outbox.transaction() as session:
                    session.add(Taken(number=number))
                    outbox.send("orders", {"number": number}, id=str(number), key=f"k{number % KEYS}")
                number += 1
            await asyncio.sleep(PAUSE)

    async def _watch(self) -> None:
        confirmed, since = 0, time.monotonic()
        while True:
            await asyncio.sleep(MOMENT)
            now = time.monotonic()
            if (found := await asyncio.to_thread(self.confirmed)) != confirmed:
                self.longest_pause = max(self.longest_pause, now - since)
                if now - since > LONG:
                    logger.info("no order was confirmed for %.0f s, of %d taken", now - since, self.taken)
                confirmed, since = found, now

    def confirmed(self) -> int:
        """Return how many orders the stock has confirmed."""
        consumed = ProducerMessage.message_status == str(MessageStatus.CONSUMED)
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.count()).select_from(ProducerMessage).where(consumed)) or 0)

    @property
    def is_done(self) -> bool:
        """Whether every order that was taken is confirmed."""
        return self.confirmed() >= self.taken

    @property
    def taken(self) -> int:
        """How many orders were taken."""
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.count()).select_from(Taken)) or 0)

    def audit(self) -> list[str]:
        """Return the broken promises."""
        with self._engine.connect() as connection:
            taken = set(connection.scalars(select(Taken.number)))
            reserved = Counter(connection.scalars(select(Reserved.number)))
        confirmed = self.confirmed()
        problems = []
        if missing := sorted(taken - reserved.keys()):
            problems.append(f"{len(missing)} orders were taken and not reserved: {missing[:10]}")
        if twice := sorted(number for number, times in reserved.items() if times > 1):
            problems.append(f"{len(twice)} orders were reserved more than once: {twice[:10]}")
        if confirmed < len(taken):
            problems.append(f"{confirmed} of {len(taken)} orders are confirmed")
        return problems
