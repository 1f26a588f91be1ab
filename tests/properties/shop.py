"""An application with a binding of every kind, its users, and how often each of its messages must be handled."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Annotated

from dependency_injector import providers

from streamkit import Accept, Reject, Requeue, Settlement, StreamApplication, send_to
from streamkit.errors import ApplicationError, BinderError, MessagingError
from streamkit.listeners.listener import Header
from streamkit.messaging.headers import TRANSACTION_ID
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState
from streamkit.testing.contract import ContractEnvironment
from tests.contract.rocket_environment import VirtualRocketEnvironment

CLOUD = "spring.cloud.stream"
KINDS = ("ok", "again", "fail", "reject")
CALLS = {"ok": 1, "again": 2, "fail": 2, "reject": 1}
"""How often a listener is called with a message of a kind, if nothing is repeated without need."""

LISTENING = {"single": {}, "ordered": {"ordered": True}, "batch": {"batch_size": 2}, "polled": {}}
TAKES = 0.3
"""Seconds of a call."""


class Shop:
    """An application, and what its listeners received over all its runs; another one beside it shares the work."""

    def __init__(self, environment: ContractEnvironment, *, takes: float = TAKES, beside: "Shop | None" = None) -> None:
        self.environment = environment
        self.calls: Counter[str] = Counter() if beside is None else beside.calls
        self.sent: set[str] = set() if beside is None else beside.sent
        self.books: set[str] = set() if beside is None else beside.books
        self._numbers = count() if beside is None else beside._numbers
        self.refused: list[str] = []
        self._takes = takes
        self._starting: asyncio.Task[None] | None = None
        self._meddling: list[asyncio.Task[None]] = []
        self.app = self._app(self._settings())
        self.app.stream_listener("ordered")(self.work)
        self.app.stream_listener("batch")(self.work_off)
        self.app.stream_listener("news")(self.hear)
        self.app.transaction_listener("till")(self.look_up)
        self._polled = self.app.pollable_source("polled")

        @self.app.stream_listener("single")
        @send_to("results")
        async def work_and_tell(text: str) -> str:
            await self.work(text)
            return text

    # Settings

    def _settings(self) -> dict[str, str]:
        found = {
            f"{CLOUD}.output-bindings": "results;direct;sales",
            f"{CLOUD}.bindings.batch.consumer.batch-mode": "true",
            f"{CLOUD}.bindings.news.destination": "direct",
            f"{CLOUD}.bindings.single.consumer.concurrency": "2",
            **self.environment.producer_properties("sales", {"transactional": True, "group": "till"}),
        }
        for output in ("results", "direct", "sales"):
            found[f"{CLOUD}.bindings.{output}.destination"] = output
        for name, portable in LISTENING.items():
            found[f"{CLOUD}.bindings.{name}.destination"] = name
            found[f"{CLOUD}.bindings.{name}.group"] = f"{name}-workers"
            found |= self.environment.consumer_properties(name, {"start": "earliest", **portable})
        return found

    def _app(self, settings: Mapping[str, str]) -> StreamApplication:
        properties = {
            f"{CLOUD}.default-binder": self.environment.binder_type,
            **self.environment.properties,
            **self.environment.member(next(self._numbers)),
            **settings,
        }
        app = StreamApplication(config_location="optional:/none", properties=properties)
        app.container.clock.override(providers.Object(self.environment.clock))
        return app

    # Listeners

    async def work(self, text: str) -> None:
        """Take some time, then settle the message as its kind says."""
        self.calls[text] += 1
        await asyncio.sleep(self._takes)
        kind, is_first = text.partition(" ")[0], self.calls[text] == 1
        if kind == "again" and is_first:
            raise Requeue
        if kind == "fail" and is_first:
            raise ValueError(text)
        if kind == "reject":
            raise Reject("as it says")

    async def work_off(self, texts: list[str]) -> list[Settlement]:
        """Take some time; reject messages of that kind."""
        self.calls.update(texts)
        await asyncio.sleep(self._takes)
        return [Reject("as it says") if text.startswith("reject") else Accept() for text in texts]

    async def hear(self, text: str) -> None:
        """Receive messages without a group."""
        await asyncio.sleep(self._takes)

    async def work_polled(self, message: Message[str]) -> None:
        """As `work`."""
        await self.work(message.payload)

    async def look_up(self, text: str, transaction: Annotated[str, Header(TRANSACTION_ID)]) -> TransactionState:
        """Return whether a sale is recorded."""
        return TransactionState.COMMIT if text in self.books else TransactionState.ROLLBACK

    # What its users do

    async def fill(self) -> None:
        """Store waiting messages for each of the listeners."""
        feeder = self._app({})
        for name in (*LISTENING, "results", "direct", "sales"):
            await self.environment.create_topic(name, 2)
        await feeder.start(watch_loop=False)
        for name in LISTENING:
            for kind in KINDS:
                await feeder.bridge.asend(name, f"{kind} {name}")
        await feeder.stop()

    async def use(self) -> None:
        """Poll, send and sell until the application stops."""
        with suppress(ApplicationError, MessagingError, BinderError):
            for number in range(6):
                await self._polled.poll(self.work_polled, str)
                await self._send(f"direct {next(self._numbers)}")
                sale = f"sale {next(self._numbers)}"
                async with self.app.channel("sales").transaction(Message(sale)):
                    await asyncio.sleep(self._takes / 2)
                    self.books.add(sale)
                await asyncio.sleep(self._takes * (number % 2))

    async def _send(self, text: str) -> None:
        could = self.app.is_running
        try:
            await self.app.channel("direct").asend(Message(text))
        except (MessagingError, BinderError):
            if could:
                self.refused.append(text)
            raise
        self.sent.add(text)

    async def live(self, *, until_done: bool) -> None:
        """Start, work for a while or until everything is done, and stop."""
        self._starting = asyncio.create_task(self.app.start(watch_loop=False))
        with suppress(ApplicationError, BinderError, asyncio.CancelledError):
            await self._starting
            await self.use()
            if until_done:
                await asyncio.gather(*self._meddling)
                await self._until_done()
        await self.app.stop()
        await self.app.stop()
        while meddling := [task for task in self._meddling if not task.done()]:
            await asyncio.gather(*meddling)
        assert not self.app.is_running

    # What happens at a step

    def stop(self) -> None:
        """Stop as a program does."""
        self._meddling.append(asyncio.create_task(self.app.stop()))

    def give_up(self) -> None:
        """Cancel as a signal does."""
        if self._starting is None or not self._starting.cancel():
            self.stop()

    def restart_bindings(self) -> None:
        """Restart all bindings by hand, concurrently."""
        self._meddling += [asyncio.create_task(self._restart(name)) for name in (*LISTENING, "news")]

    async def _restart(self, name: str) -> None:
        with suppress(ApplicationError):  # there are no bindings yet, or no longer
            await self.app.binding(name).stop()
            await self.app.binding(name).start()

    def pause_bindings(self) -> None:
        """Pause the bindings for a moment."""
        self._meddling += [asyncio.create_task(self._pause(name)) for name in (*LISTENING, "news")]

    async def _pause(self, name: str) -> None:
        with suppress(ApplicationError):
            await self.app.binding(name).pause()
            await asyncio.sleep(self._takes)
            await self.app.binding(name).resume()

    def lose_broker(self) -> None:
        """Stop while the broker stops; its name server stays."""
        assert isinstance(self.environment, VirtualRocketEnvironment)
        self._meddling.append(asyncio.create_task(self.environment.broker.broker.stop()))
        self.stop()

    # How it ends

    async def _until_done(self) -> None:
        async with asyncio.timeout(600):
            while not self.calls >= expected_calls():
                await self._polled.poll(self.work_polled, str)
                await asyncio.sleep(1)
        await asyncio.sleep(self.environment.transaction_check_interval * 2)

    async def found(self, *destinations: str) -> list[Counter[str]]:
        """Return the messages of each destination."""
        seen: list[Counter[str]] = [Counter() for _ in destinations]
        settings: dict[str, str] = {}
        for number, destination in enumerate(destinations):
            name = f"watch{number}"
            settings[f"{CLOUD}.bindings.{name}.destination"] = destination
            settings[f"{CLOUD}.bindings.{name}.group"] = name
            settings |= self.environment.consumer_properties(name, {"start": "earliest"})
        app = self._app(settings)
        for number, texts in enumerate(seen):
            app.stream_listener(f"watch{number}")(_noting(texts))
        await app.start(watch_loop=False)
        await asyncio.sleep(30)
        await app.stop()
        return seen

    async def _found_everywhere(self) -> tuple[Counter[str], Counter[str], Counter[str], list[Counter[str]]]:
        """Return the results, the direct messages, the sales, and the rejected messages of each listener."""
        dead_letters = (f"%DLQ%{name}-workers" for name in LISTENING)
        results, direct, sales, *rejected = await self.found("results", "direct", "sales", *dead_letters)
        return results, direct, sales, rejected

    async def check_nothing_was_lost(self) -> None:
        """Check that every sent message was handled;

        settlements that did not reach a stopped broker may be repeated.
        """
        assert self.calls >= expected_calls(), self.calls
        results, direct, sales, rejected = await self._found_everywhere()
        assert results.keys() == {f"{kind} single" for kind in KINDS if kind != "reject"}
        assert [texts.keys() for texts in rejected] == [{f"reject {name}"} for name in LISTENING]
        assert direct.keys() >= self.sent
        assert sales == Counter(self.books)

    async def check_changed_hands(self) -> None:
        """Check that nothing was lost, and that short and ordered calls were made the right number of times."""
        await self.check_nothing_was_lost()
        for text, calls in expected_calls().items():
            if text in ("ok single", "ok batch") or text.endswith("ordered"):
                assert self.calls[text] == calls, self.calls

    async def check(self) -> None:
        """Check that nothing was lost or repeated, and no send was interrupted."""
        assert self.refused == []
        assert self.calls == expected_calls(), self.calls
        results, direct, sales, rejected = await self._found_everywhere()
        assert results == Counter(f"{kind} single" for kind in KINDS if kind != "reject")
        assert rejected == [Counter([f"reject {name}"]) for name in LISTENING]
        assert max(direct.values(), default=1) == 1
        assert direct.keys() >= self.sent
        assert sales == Counter(self.books)


def _noting(seen: Counter[str]) -> Callable[[str], Awaitable[None]]:
    async def note(text: str) -> None:
        seen[text] += 1

    return note


def expected_calls() -> Counter[str]:
    """Return how often each message must be handled."""
    return Counter(
        {f"{kind} {name}": 1 if name == "batch" else calls for kind, calls in CALLS.items() for name in LISTENING}
    )
