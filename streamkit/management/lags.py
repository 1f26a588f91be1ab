"""The lags of an application's inputs, asked from its binders whenever the metrics are read."""

import logging
from collections.abc import Iterable, Mapping

from streamkit.binder.binder import Binder
from streamkit.management.answers import NoAnswer, answers

__all__ = ["Lags"]

logger = logging.getLogger(__name__)


class Lags:
    """Asks an application's binders for their lags; a binder that fails is logged once, until it answers again."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def ask(self, binders: Iterable[Binder]) -> Mapping[str, int]:
        """Return the number of unsettled messages by input binding, of the binders that answer in time."""
        lags: dict[str, int] = {}
        for binder, answer in (await answers(binders, lambda binder: binder.lags())).items():
            if not isinstance(answer, NoAnswer):
                self._silent.discard(binder)
                lags |= answer
            elif binder not in self._silent:
                self._silent.add(binder)
                logger.warning("Binder %r could not read the lag of its inputs: %s", binder, answer.reason)
        return lags
