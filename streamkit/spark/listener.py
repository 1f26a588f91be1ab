"""The listener of one query's events. It never raises or blocks, because all queries share Spark's listener bus."""

import logging
from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

__all__ = ["QueryListener"]

logger = logging.getLogger(__name__)


class QueryListener(StreamingQueryListener):
    """Passes on the events of one query, by its name: its progress, and its end with the error, if any."""

    def __init__(
        self,
        name: str,
        progressed: Callable[[StreamingQueryProgress], None],
        terminated: Callable[[str | None], None],
    ) -> None:
        self._name = name
        self._run: object = None
        self._progressed = progressed
        self._terminated = terminated

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Remember the run, which identifies the query's end."""
        if event.name == self._name:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the progress on."""
        if event.progress.name == self._name:
            self._pass_on(lambda: self._progressed(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the end on."""
        if event.runId == self._run:
            self._pass_on(lambda: self._terminated(event.exception))

    def _pass_on(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # Spark would log it in its own log only
            logger.exception("Could not handle an event of query %r", self._name)
