"""What Spark's driver tells the demo: a line for each start of the query, each batch and each failure."""

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
        aircraft: Of how many aircraft Spark keeps the state.
        watermark: Up to when flights were taken as complete while it ran, as ISO 8601.
    """

    batch: int
    read: int
    seconds: float
    aircraft: int
    watermark: str

    @classmethod
    def of(cls, progress: "StreamingQueryProgress") -> "BatchProgress":
        """What Spark's own report comes to."""
        (source,) = progress.sources
        offsets = json.loads(source.endOffset)["offsets"]
        ends = [end for brokers in offsets.values() for queues in brokers.values() for end in queues.values()]
        aircraft = sum(
            state.numRowsTotal
            for state in progress.stateOperators
            if state.operatorName.startswith("transformWithState")
        )
        return cls(
            batch=progress.batchId,
            read=sum(ends),
            seconds=progress.durationMs["triggerExecution"] / 1000,
            aircraft=aircraft,
            watermark=progress.eventTime["watermark"],
        )

    def to_line(self) -> str:
        """The line that tells it."""
        return BATCH + json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "BatchProgress":
        """The batch that a line tells of."""
        return cls(**json.loads(line.removeprefix(BATCH)))
