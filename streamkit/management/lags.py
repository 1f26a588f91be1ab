"""How far an application's inputs are behind: asked of its binders when somebody looks at the metrics."""

import logging
from collections.abc import Iterable, Mapping

from streamkit.binder.binder import Binder
from streamkit.management.answers import NoAnswer, answers

__all__ = ["Lags"]

logger = logging.getLogger(__name__)


class Lags:
    """Asks one application's binders, again and again; one that does not tell is logged once, until it tells."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def ask(self, binders: Iterable[Binder]) -> Mapping[str, int]:
        """Return how many messages each input has not settled, by the bindings' names, of binders that tell in time."""
        lags: dict[str, int] = {}
        for binder, answer in (await answers(binders, lambda binder: binder.lags())).items():
            if not isinstance(answer, NoAnswer):
                self._silent.discard(binder)
                lags |= answer
            elif binder not in self._silent:
                self._silent.add(binder)
                logger.warning(
                    "Binder %r does not tell how far its inputs are behind: %s", binder, answer.reason
                )
        return lags
