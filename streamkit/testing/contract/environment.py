"""The system under test and its times, as the author of a binder describes them to the contract."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

from streamkit.binder.capabilities import Capability
from streamkit.clock import Clock

__all__ = ["ContractEnvironment"]

R = TypeVar("R")

Settings = Mapping[str, str]


class ContractEnvironment(ABC):
    """A messaging system to run the cases against, with its capabilities and times.

    Attributes:
        name: The name of the environment in reports; by default the binder's type.
        binder_type: The binder's type.
        plugins: The plugin that provides the binder, if no entry point does.
        capabilities: The capabilities that the binder declares; a case that needs another one asserts the refusal.
        clock: The clock for timestamps of messages; None for the system's.
        is_virtual: Whether time is virtual: cases that take minutes run only then.
        patience: Seconds after which a case fails because an expected message has not come.
        quiet: Seconds without a message after which a case assumes that no more will come.
        slack: Seconds by which a delivery may be late.
        back_off: The back-off before the second attempt that cases set, in seconds.
        redelivery_delays: Seconds before the first, second and third redelivery in concurrent mode.
        delay_levels: Seconds of delay level 1, 2, ...
        delay_precision: Seconds by which the system may round up a delay that is not a delay level.
        suspend: The pause between deliveries in ordered mode that cases set, in seconds.
        consume_timeout: The shortest `consume_timeout` that can be set, in seconds.
        transaction_check_interval: Seconds between two checks of an unknown transaction.
        transaction_checks: The number of checks after which the system gives the transaction up.
        put_aside: The destination of messages whose transaction stayed unknown; None if there is none.
    """

    name: str
    binder_type: str
    plugins: Sequence[object] = ()
    capabilities: frozenset[Capability]
    clock: Clock | None = None
    is_virtual = False
    patience = 20.0
    quiet = 0.7
    slack = 2.0
    back_off = 0.1
    redelivery_delays: tuple[float, ...] = (10, 30, 60)
    delay_levels: tuple[float, ...] = (1, 5, 10)
    delay_precision = 0.0
    suspend = 0.2
    consume_timeout = 60.0
    transaction_check_interval = 60.0
    transaction_checks = 15
    put_aside: str | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not hasattr(cls, "name") and hasattr(cls, "binder_type"):
            cls.name = cls.binder_type

    @cached_property
    def lacking(self) -> set[Capability]:
        """The capabilities that the current case needs and the binder lacks."""
        return set()

    @property
    @abstractmethod
    def properties(self) -> Settings:
        """The settings that every application needs, such as the address of the system."""

    @abstractmethod
    def consumer_properties(self, binding: str, portable: Mapping[str, object]) -> Settings:
        """Return the binder's own settings of a consumer binding.

        Args:
            binding: The binding's name.
            portable: The values to express, by names of :class:`streamkit.binder.delivery.Delivery`: ``ordered``,
                ``broadcast``, ``max_reconsume_times``, ``redelivery_level``, ``suspend`` (seconds),
                ``consume_timeout`` (seconds), ``tags``, ``sql``, ``start`` (``earliest`` or ``latest``),
                ``batch_size``.
        """

    def producer_properties(self, binding: str, portable: Mapping[str, object]) -> Settings:
        """Return the binder's own settings of a producer binding.

        Args:
            binding: The binding's name.
            portable: The values to express: ``transactional`` (bool), ``group`` (the producer group).
        """
        prefix = f"spring.cloud.stream.{self.binder_type}.bindings.{binding}.producer"
        return {f"{prefix}.{name}": str(value) for name, value in portable.items()}

    def member(self, number: int) -> Settings:
        """Return settings that distinguish the ``number``-th application of a case from the others."""
        return {}

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run a case on an event loop and return its result."""
        return asyncio.run(main)

    def around(self) -> AbstractAsyncContextManager[object]:
        """Return an asynchronous context that surrounds each case."""
        return nullcontext()

    async def create_topic(self, name: str, partitions: int) -> None:  # noqa: B027  # most need nothing
        """Create a topic; does nothing by default, for systems that create topics when they are used."""
