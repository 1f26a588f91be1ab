"""The embedded broker in a thread with an event loop of its own, for programs and tests without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rocket_broker.embedded import EmbeddedBroker
from streamkit.chaos import Chaos

__all__ = ["ThreadedBroker"]

T = TypeVar("T")

STOP_SECONDS = 30.0


class ThreadedBroker:
    """A name server and a broker on ports of 127.0.0.1, over TCP, for clients in any language.

    Args:
        store: Directory of the store, kept after `stop`. None: a temporary directory, removed by `stop`.
        name_server_port: Port of the name server; 0 takes a free port.
        broker_port: Port of the broker; 0 takes a free port.
        settings: Further settings of the broker, by the keys of ``broker.conf``.
        chaos: Faults that the broker injects, for tests.

    Attributes:
        name_server: Address of the name server, ``127.0.0.1:port``; set by `start`.
        address: Address of the broker; set by `start`.
    """

    name_server: str
    address: str

    def __init__(
        self,
        store: Path | None = None,
        *,
        name_server_port: int = 0,
        broker_port: int = 0,
        settings: Mapping[str, str] | None = None,
        chaos: Chaos | None = None,
    ) -> None:
        self._embedded = EmbeddedBroker(
            store, name_server_port=name_server_port, broker_port=broker_port, settings=settings, chaos=chaos
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="rocket broker", daemon=True)

    def start(self) -> None:
        """Start both and wait until the broker serves.

        Raises:
            TimeoutError: The start took more than `STOP_SECONDS`.
            Exception: Whatever `EmbeddedBroker.start` raises.
        """
        self._thread.start()
        try:
            self._call(self._embedded.start())
        except BaseException:
            self._end()
            raise
        self.name_server = self._embedded.name_server_address
        self.address = self._embedded.broker_address

    def stop(self) -> None:
        """Stop both and wait until they have stopped. Does nothing if they are stopped already."""
        if self._thread.is_alive():
            self._call(self._embedded.stop())
            self._end()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<ThreadedBroker {getattr(self, 'name_server', 'not started')}>"
