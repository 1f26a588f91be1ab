"""A small restaurant on a cluster, so that each page of the console has something to show, and a console of it.

::

    till ──── orders ──── kitchen      a member that cooks, and fails twice: two dead letters
                     ╲─── billing      no member, so that messages wait
    tellers ─ orders                   a transaction that stays open
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypedDict, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from rocket_admin.application_bindings import ApplicationBinding
from rocket_admin.browsing import browse
from rocket_admin.offsets import End
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    LocalTransactionState,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_console.pages.outbox import OutboxPages
from rocket_console.pages.section import Section
from rocket_remoting import Message, MessageExt
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from streamkit.patterns.outbox.administration import OutboxRow
from streamkit.patterns.outbox.status import MessageStatus
from tests.peer.console_outbox import rows_with, write_outbox, written
from tests.unit.rocket_admin.letters import bury
from tests.unit.rocket_console.browser import RunningConsole

_PATIENCE: Final = timedelta(seconds=60)
ORDERS: Final = 8
"""How many guests order at first: two of them what the kitchen cannot cook."""
_BURNT_DISHES: Final = ("lobster", "soufflé")
_MENU: Final = ("soup", "risotto", "lobster", "espresso", "lasagne", "soufflé", "goulash")


class NoSuchDishError(Exception):
    """The kitchen does not know a dish."""

    __module__ = "kitchen"


class OvenBusyError(Exception):
    """The oven is not free."""

    __module__ = "kitchen"


@dataclass(frozen=True, kw_only=True)
class ConsoleStage:
    """What the pages are about.

    Attributes:
        console: The console.
        portal: Calls coroutines from the thread of the test, whose own loop Playwright keeps running.
        admin: Asks and changes the cluster.
        tellers: Begins transactions, of which it never knows whether they have committed.
        names: The values of the parameters in pages' addresses, such as `topic`.
        over_limits: Messages of the outbox over a limit: each test takes its own ones.
    """

    console: RunningConsole
    portal: BlockingPortal
    admin: Admin
    tellers: TransactionProducer
    names: dict[str, str]
    over_limits: Iterator[OutboxRow]

    def address(self, path: str) -> str:
        """Return the address of a page on this stage.

        Args:
            path: The page's path, such as `/topics/{topic}`.

        Raises:
            KeyError: The path has a parameter of which the stage has no value.
        """
        return path.format_map(self.names)

    def create_topic(self, topic: str) -> None:
        """Create a topic."""
        self.portal.call(self.admin.create_topic, topic, 2)

    def send(self, topic: str, body: bytes) -> None:
        """Send a message."""

        async def send() -> None:
            settings = ProducerSettings(name_servers=self.names["name_server"], send_timeout=_PATIENCE)
            async with Producer("till", settings) as producer:
                await producer.send(Message(topic, body))

        self.portal.call(send)

    def bury(self, group: str, count: int) -> None:
        """Store dead letters of a group."""
        self.portal.call(bury, self.names["name_server"], group, self.names["topic"], ["KeyError"] * count)

    def begin_transaction(self) -> str:
        """Begin a transaction that stays open; return the id of its message."""
        begun = self.portal.call(self.tellers.begin, order(self.names["topic"], 0))
        return begun.send_result.msg_id

    def delay(self) -> str:
        """Send a message that is due in an hour; return its id."""
        message = order(self.names["topic"], 0)
        message.deliver_at_ms = int((time.time() + 3600) * 1000)

        async def send() -> str:
            async with Producer("till", ProducerSettings(name_servers=self.names["name_server"])) as producer:
                return (await producer.send(message)).msg_id

        return self.portal.call(send)

    def create_group(self, group: str) -> None:
        """Create a group that has consumed nothing of the topic `orders`."""

        async def create() -> None:
            await self.admin.create_group(SubscriptionGroupConfig(group_name=group))
            for queue in (await self.admin.topic_route(self.names["topic"])).subscribe_queues:
                await self.admin.commit_offset(queue, group, 0)

        self.portal.call(create)


@contextmanager
def console_stage(
    name_server: str,
    directory: Path,
    *,
    prefix: str = "",
    redeliveries: int = 0,
    client_ip: str | None = None,
    has_outbox: bool = False,
) -> Iterator[ConsoleStage]:
    """Open the restaurant and a console.

    Args:
        name_server: The cluster.
        directory: For the console's audit log, and the database of the outbox.
        prefix: Begins the names of topics and groups, on a cluster that others use too.
        redeliveries: How often the kitchen tries a dish again before the order is a dead letter.
        client_ip: The address in the ids of clients; by default this machine's.
        has_outbox: Whether there are pages about an outbox.
    """
    restaurant = _restaurant(name_server, prefix, redeliveries, client_ip)
    bindings = (
        ApplicationBinding(binding="cook-in-0", topics=(f"{prefix}orders",), group=f"{prefix}kitchen"),
        ApplicationBinding(binding="receipts", topics=(f"{prefix}receipts",)),
    )
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        admin, tellers, names = stack.enter_context(portal.wrap_async_context_manager(restaurant))
        sections: tuple[Section, ...] = ()
        over_limits: Iterator[OutboxRow] = iter(())
        if has_outbox:
            database = stack.enter_context(written(directory / "till.db", write_outbox))
            sections = (OutboxPages(database).section,)
            over_limits = iter(rows_with(database, MessageStatus.CONFIRMATION_RETRIES_EXCEEDED))
            (given_up, *_) = rows_with(database, MessageStatus.ROLLED_BACK)
            names |= {"over": str(next(over_limits).number), "rolled_back": str(given_up.number)}
        running = RunningConsole(name_server, directory, bindings=bindings, more_sections=sections)
        console = stack.enter_context(running)
        yield ConsoleStage(
            console=console, portal=portal, admin=admin, tellers=tellers, names=names, over_limits=over_limits
        )


class _Settings(TypedDict):
    """The settings that all clients share."""

    name_servers: str
    request_timeout: timedelta
    client_ip: str | None


@asynccontextmanager
async def _restaurant(
    name_server: str, prefix: str, redeliveries: int, client_ip: str | None
) -> AsyncIterator[tuple[Admin, TransactionProducer, dict[str, str]]]:
    orders, receipts = f"{prefix}orders", f"{prefix}receipts"
    kitchen, billing = f"{prefix}kitchen", f"{prefix}billing"
    settings = _Settings(name_servers=name_server, request_timeout=_PATIENCE, client_ip=client_ip)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(ClientSettings(**settings)))
        for topic, queues in ((orders, 4), (receipts, 4), (f"%DLQ%{kitchen}", 1)):
            await admin.create_topic(topic, queues)
        for group in (kitchen, billing):
            await admin.create_group(SubscriptionGroupConfig(group_name=group))
        for queue in (await admin.topic_route(orders)).subscribe_queues:
            await admin.commit_offset(queue, billing, 0)

        till = Producer(f"{prefix}till", ProducerSettings(send_timeout=_PATIENCE, **settings))
        await stack.enter_async_context(till)
        ids = [(await till.send(order(orders, number))).offset_msg_id or "" for number in range(ORDERS)]
        tellers_settings = TransactionProducerSettings(send_timeout=_PATIENCE, **settings)
        tellers = await stack.enter_async_context(TransactionProducer(f"{prefix}tellers", tellers_settings, _unknown))
        open_order = await tellers.begin(order(orders, ORDERS))

        cooked = asyncio.Event()
        await stack.enter_async_context(_cook(orders, kitchen, redeliveries, cooked, **settings))
        await cooked.wait()
        (letters,) = (await admin.topic_route(f"%DLQ%{kitchen}")).subscribe_queues
        while await admin.max_offset(letters) < len(_BURNT_DISHES):
            continue  # each look is a request, which takes its time
        (broker,) = await admin.masters()
        first, second = (await browse(admin, f"%DLQ%{kitchen}", End.EARLIEST)).messages
        yield (
            admin,
            tellers,
            {
                "topic": orders,
                "group": kitchen,
                "idle": billing,
                "receipts": receipts,
                "id": ids[0],
                "failed": ids[2],
                "broker": broker,
                "name_server": name_server,
                "letter": first.offset_message_id,
                "other_letter": second.offset_message_id,
                "open": open_order.send_result.msg_id,
            },
        )
        await open_order.rollback()


async def _unknown(message: Message) -> LocalTransactionState:
    return LocalTransactionState.UNKNOWN


def order(topic: str, number: int) -> Message:
    """Return a guest's order."""
    dish = _MENU[number % len(_MENU)]
    if dish in _BURNT_DISHES and number >= ORDERS and number % 60:
        dish = "salad"
    body = {"order": number, "table": 1 + number % 5, "dish": dish, "notes": ["no salt"] if number % 2 == 0 else []}
    properties = {"contentType": "application/json", "room": "terrace" if number % 2 else "hall"}
    return Message(
        topic,
        json.dumps(body, ensure_ascii=False).encode(),
        tags="lunch",
        keys=f"order-{number}",
        properties=properties,
    )


def _cook_dish(dish: str) -> None:
    if dish == _BURNT_DISHES[0]:
        raise NoSuchDishError(f"the kitchen has no recipe for {dish}")
    if dish == _BURNT_DISHES[1]:
        raise OvenBusyError("no oven is free for 40 minutes")


# Dead letters name the module and the file of an error, which are none of the tests in the pictures of the docs.
_cook_dish.__code__ = _cook_dish.__code__.replace(co_filename="kitchen/cooking.py")


@asynccontextmanager
async def _cook(
    topic: str, group: str, redeliveries: int, cooked: asyncio.Event, **settings: Unpack[_Settings]
) -> AsyncIterator[None]:
    seen: set[str] = set()

    async def cook(messages: list[MessageExt], context: ConsumeContext) -> None:
        for message in messages:
            seen.add(message.msg_id)
            if len(seen) >= ORDERS:
                cooked.set()
            _cook_dish(json.loads(message.body)["dish"])

    consumer = PushConsumer(
        group,
        PushConsumerSettings(
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET, max_reconsume_times=redeliveries, **settings
        ),
    )
    consumer.subscribe(topic)
    consumer.listen_concurrently(cook)
    async with consumer:
        yield
