"""The in-memory binder fulfils the contract, in virtual time."""

from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from binders.inmemory.binder import CAPABILITIES
from binders.inmemory.broker import InMemoryBroker
from streamkit.testing.contract import BinderContract, ContractEnvironment
from streamkit.testing.virtual_time import VirtualTime

R = TypeVar("R")


class InMemoryEnvironment(ContractEnvironment):
    """All applications of a case share one broker; hours take milliseconds."""

    name = "in memory"
    binder_type = "inmemory"
    capabilities = CAPABILITIES
    is_virtual = True
    patience = 60.0
    quiet = 30.0
    slack = 0.01
    back_off = 1.0
    suspend = 1.0
    put_aside: str | None = "TRANS_CHECK_MAX_TIME_TOPIC"

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._broker = f"contract-{uuid4().hex}"
        self.clock = time.clock

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the name of the case's shared broker."""
        return {
            "spring.cloud.stream.inmemory.binder.broker": self._broker,
            "spring.cloud.stream.inmemory.binder.stands-in-for": "inmemory",
        }

    def consumer_properties(self, binding: str, portable: Mapping[str, object]) -> Mapping[str, str]:
        """Return the in-memory binder's names, which are the portable ones."""
        prefix = f"spring.cloud.stream.inmemory.bindings.{binding}.consumer"
        return {f"{prefix}.{name}": _text(name, value) for name, value in portable.items()}

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run on the virtual loop."""
        return self._time.run(main)

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Drop the broker at the end."""
        yield
        InMemoryBroker.forget(self._broker)


def _text(name: str, value: object) -> str:
    if name in ("suspend", "consume_timeout"):
        return f"{timedelta(seconds=float(str(value))) / timedelta(milliseconds=1):g}ms"
    return str(value)


class TestInMemory(BinderContract):
    """Every case."""

    @pytest.fixture
    def environment(self) -> Iterator[InMemoryEnvironment]:
        with VirtualTime() as time:
            yield InMemoryEnvironment(time)
