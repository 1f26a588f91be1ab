"""Hears what Spark tells of one query. Never raises and never blocks: Spark's listener bus is shared by all."""

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
    """Tells of one query by its name: its progress, and its end with the error, if there is one."""

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
        """Take note of the run, by which the end is told."""
        if event.name == self._name:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the progress on."""
        if event.progress.name == self._name:
            self._pass_on(lambda: self._progressed(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Pass the end on."""
        if event.runId == self._run:
            self._pass_on(lambda: self._terminated(event.exception))

    def _pass_on(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # Spark would log it where nobody looks
            logger.exception("What Spark told of query %r was not understood", self._name)
