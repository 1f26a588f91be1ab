"""Examines the messaging systems of bindings, without binding anything."""

import asyncio
from collections.abc import Iterable, Sequence

from streamkit.binder.binder import Binder, ConsumerDestination, ProducerDestination
from streamkit.binder.binding import Binding, InputBinding, OutputBinding
from streamkit.findings import Finding, Severity

__all__ = ["examine_bindings"]


async def examine_bindings(bindings: Iterable[Binding], *, watch: float, answer_within: float) -> list[Finding]:
    """Return what the binders of these bindings find (:meth:`Binder.examine`); all binders are asked at once.

    Args:
        bindings: Bindings that are not bound.
        watch: Seconds between the two measurements that show whether lag grows; 0 measures once.
        answer_within: Seconds that a server may take to answer.
    """
    destinations: dict[Binder, tuple[list[ConsumerDestination], list[ProducerDestination]]] = {}
    for binding in bindings:
        consumers, producers = destinations.setdefault(binding.binder.binder, ([], []))
        if isinstance(binding, InputBinding):
            consumers.extend(binding.consumer_destinations)
        elif isinstance(binding, OutputBinding):
            producers.append(binding.destination)

    async def of(binder: Binder) -> Sequence[Finding]:
        try:
            return await binder.examine(*destinations[binder], watch=watch, answer_within=answer_within)
        except Exception as error:  # the other findings are worth having, whatever this binder does
            text = f"binder {binder.name} could not be examined: {str(error) or repr(error)}"
            return [Finding(severity=Severity.WARNING, check="binders", about=(binder.name,), found=text)]

    return [finding for found in await asyncio.gather(*map(of, destinations)) for finding in found]
