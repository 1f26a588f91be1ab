"""What the author of a binder tells the contract about the system under test."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from streamkit.binder.capabilities import Capability
from streamkit.clock import Clock

__all__ = ["ContractEnvironment"]

R = TypeVar("R")

Settings = Mapping[str, str]


class ContractEnvironment(ABC):
    """A messaging system to run the cases against, and the times that hold there.

    Attributes:
        name: What reports call it; the binder's type, if it does not say.
        binder_type: The binder's type.
        binder_plugins: Its plugin by its type, where it is not installed with an entry point.
        capabilities: What the binder declares; cases that need more assert the refusal.
        clock: What stamps messages, or None for the machine's.
        is_virtual: Whether time is virtual: cases that take minutes run only then.
        patience: Seconds a case waits for what must come.
        quiet: Seconds after which a case believes that nothing comes.
        slack: Seconds that something may be late.
        back_off: The pause before the second attempt that cases set, in seconds.
        redelivery_delays: Seconds before the first, second, ... redelivery in concurrent mode.
        delay_levels: Seconds of delay level 1, 2, ...
        delay_precision: Seconds by which a delay that is no level may be longer.
        suspend: The pause of an ordered queue that cases set, in seconds.
        consume_timeout: The shortest `consume_timeout` that can be set, in seconds.
        transaction_check_interval: Seconds after which, again and again, a checker is asked.
        transaction_checks: How often it is asked at most.
        put_aside: Where messages go that no checker could tell about; None: nowhere anybody can see.
    """

    name: str
    binder_type: str
    binder_plugins: Mapping[str, object] = MappingProxyType({})
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
        """The capabilities that the case under way asked for and the binder lacks."""
        return set()

    @property
    @abstractmethod
    def properties(self) -> Settings:
        """Settings of every application: where the system is."""

    @abstractmethod
    def consumer_properties(self, binding: str, portable: Mapping[str, object]) -> Settings:
        """Return the binder's own settings of a consumer binding.

        Args:
            binding: The binding's name.
            portable: What they must mean, by names of :class:`streamkit.binder.delivery.Delivery`: ``ordered``,
                ``broadcast``, ``max_reconsume_times``, ``redelivery_level``, ``suspend`` (seconds),
                ``consume_timeout`` (seconds), ``tags``, ``sql``, ``start`` (``earliest`` or ``latest``),
                ``batch_size``.
        """

    def producer_properties(self, binding: str, portable: Mapping[str, object]) -> Settings:
        """Return the binder's own settings of a producer binding.

        Args:
            binding: The binding's name.
            portable: What they must mean: ``transactional`` (bool), ``group`` (the producer group).
        """
        prefix = f"spring.cloud.stream.{self.binder_type}.bindings.{binding}.producer"
        return {f"{prefix}.{name}": str(value) for name, value in portable.items()}

    def member(self, number: int) -> Settings:
        """Return what tells the ``number``-th application of a case from the others, in this one process."""
        return {}

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run a case to its end."""
        return asyncio.run(main)

    def around(self) -> AbstractAsyncContextManager[object]:
        """Return a context for each case: entered on its loop before anything else."""
        return nullcontext()

    async def create_topic(self, name: str, partitions: int) -> None:  # noqa: B027  # most need nothing
        """Make a topic with that many partitions, where systems do not make topics by themselves."""
