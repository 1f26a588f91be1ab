"""An application that sends and receives continuously, and fails if other clients of its broker disturb it."""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from binders.rocket.header_names import MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, RECONSUME_TIMES
from streamkit import Message, StreamApplication
from streamkit.events import message_failed, send_failed
from streamkit.messaging.headers import PARTITION

ROCKET = "spring.cloud.stream.rocketmq"
PATIENCE = 20.0

NEVER = "(?!)"

_PAUSE = 0.002
_OURS = ("streamkit", "binders", "rocket_client")


class Warnings(logging.Handler):
    """Records the warnings of an application and its client."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reported: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.append(record.getMessage())

    def __enter__(self) -> Self:
        for name in _OURS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in _OURS:
            logging.getLogger(name).removeHandler(self)


def settings(name_server: str, **more: str) -> dict[str, str]:
    """Return settings of an application with the broker, and further ones below `spring.cloud.stream`.

    The application's sends are never retried, and their timeouts allow for a busy machine.
    """
    return {
        "spring.cloud.stream.default-binder": "rocketmq",
        f"{ROCKET}.binder.name-server": name_server,
        f"{ROCKET}.default.producer.send-message-timeout": "30000",
        f"{ROCKET}.default.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
        "spring.lifecycle.timeout-per-shutdown-phase": "5s",
        **{f"spring.cloud.stream.{key}": value for key, value in more.items()},
    }


class HonestShop:
    """Sends one number after the other to topic `orders` and hears them.

    Leaving the block checks that every number was heard, each once, and that nothing failed or had to be tried again:
    that would be warned of.

    Attributes:
        app: The application.
        heard: The numbers as they were heard.
        queues: The queues they came from.
        sent: How many were sent.
        warnings: What the application and its client warned of.
    """

    def __init__(self, name_server: str, *, may_warn: str = NEVER, may_repeat: bool = False, **more: str) -> None:
        """Make it.

        Args:
            name_server: Where its broker is known.
            may_warn: Pattern of the warnings that are right.
            may_repeat: Whether numbers may come twice.
            more: Further settings, by their keys below `spring.cloud.stream`.
        """
        keys = {
            "bindings.in.destination": "orders",
            "bindings.in.group": "kitchen",
            "rocketmq.binder.provisioning": "create",
        }
        self.app = StreamApplication(
            config_location="optional:/none", properties=settings(name_server, **(keys | more))
        )
        self.app.stream_listener("in")(self._hear)
        self.heard: list[int] = []
        self.queues: set[object] = set()
        self.sent = 0
        self.warnings = Warnings()
        self._first: dict[int, Mapping[str, object]] = {}
        self._repeated: list[str] = []
        self._may_warn = re.compile(may_warn)
        self._may_repeat = may_repeat
        self._failures: list[object] = []
        self._feeding: asyncio.Task[None] | None = None
        self._is_closing = False
        self._more = asyncio.Event()
        self._closing = ExitStack()

    async def _hear(self, message: Message[int]) -> None:
        self.heard.append(message.payload)
        first = self._first.setdefault(message.payload, message.headers)
        if first is not message.headers:
            self._repeated.append(f"{message.payload} at {_place(first)} and at {_place(message.headers)}")
        self.queues.add(message.headers.get(PARTITION))
        self._more.set()

    def _failed(self, sender: object, **what: Any) -> None:
        self._failures.append(what["error"])

    async def _feed(self) -> None:
        while not self._is_closing:
            await self.app.bridge.asend("orders", self.sent)
            self.sent += 1
            await asyncio.sleep(_PAUSE)

    async def hears_from(self, queues: set[int]) -> None:
        """Wait until a message came from each of the queues."""
        async with asyncio.timeout(PATIENCE):
            while not queues <= self.queues:
                await self.goes_on(1)

    async def goes_on(self, count: int = 20) -> None:
        """Wait until so many more numbers were sent and received."""
        await self._until_heard(self.sent + count)

    async def _until_heard(self, wanted: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(set(self.heard)) < wanted:
                assert self._feeding is None or not self._feeding.done(), "sending failed"
                self._more.clear()
                await self._more.wait()

    async def __aenter__(self) -> Self:
        # The attackers share this loop: how long they hold it up is not the application's doing.
        await self.app.start(watch_loop=False)
        # From here on: that a consumer waits for its new topic is told, and right.
        self._closing.enter_context(self.warnings)
        self._closing.enter_context(send_failed.connected_to(self._failed, sender=self.app))
        self._closing.enter_context(message_failed.connected_to(self._failed, sender=self.app))
        self._feeding = asyncio.create_task(self._feed(), name="feed the honest shop")
        await self.goes_on()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        feeding, self._feeding = self._feeding, None
        assert feeding is not None
        try:
            if error is None:
                if feeding.done():
                    feeding.result()
                await self._check()
                # What is sent and not heard would come to the next shop of the broker, beside its own numbers.
                self._is_closing = True
                await feeding
                if not self._may_repeat:
                    await self._until_heard(self.sent)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await self.app.stop()
            self._closing.close()

    async def _check(self) -> None:
        assert self._feeding is None
        await self._until_heard(self.sent)
        assert self._failures == []
        assert [reported for reported in self.warnings.reported if not self._may_warn.search(reported)] == []
        assert self._may_repeat or self._repeated == [], self._repeated


def _place(headers: Mapping[str, object]) -> str:
    """Return the identity of a message and its position, which shows whether it was sent or delivered again."""
    return " ".join(str(headers.get(name)) for name in (MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, RECONSUME_TIMES))
