"""The output of Spark's driver for the demo: a line for each start of the query, each batch and each failure."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

STARTED, BATCH, FAILED = "started", "batch ", "failed "


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A batch that is done.

    Attributes:
        batch: Its number; it stays the same when the batch is done again after a kill.
        read: Messages that the query has read since it began, this batch included.
        seconds: How long the batch took.
        flights: How many flights it had.
        watermark: The watermark of the batch, as ISO 8601.
    """

    batch: int
    read: int
    seconds: float
    flights: int
    watermark: str

    @classmethod
    def of(cls, progress: "StreamingQueryProgress") -> "BatchProgress":
        """Return the progress of Spark's own report."""
        (source,) = progress.sources
        offsets = json.loads(source.endOffset)["offsets"]
        ends = [end for brokers in offsets.values() for queues in brokers.values() for end in queues.values()]
        return cls(
            batch=progress.batchId,
            read=sum(ends),
            seconds=progress.durationMs["triggerExecution"] / 1000,
            flights=progress.numInputRows,
            watermark=progress.eventTime["watermark"],
        )

    def to_line(self) -> str:
        """Return the line for the demo."""
        return BATCH + json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "BatchProgress":
        """Return the batch of a line."""
        return cls(**json.loads(line.removeprefix(BATCH)))
