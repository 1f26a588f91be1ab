"""How a batch is divided among tasks. The same ranges and the same plan always give the same partitions."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocket_client.blocking import QueueRange


@dataclass(frozen=True)
class Plan:
    """What decides about partitions.

    Attributes:
        min_partitions: Least partitions, made by dividing large ranges; 0: no matter.
        max_records: Most messages of a partition; 0: no matter.
        pack_below: Fewer messages than this are read by one task: starting tasks takes longer than reading.
    """

    min_partitions: int = 0
    max_records: int = 0
    pack_below: int = 0

    def to_json(self) -> dict[str, int]:
        """The plan as it stands in a checkpoint, under the options' names."""
        return {
            "minPartitions": self.min_partitions,
            "maxRecordsPerPartition": self.max_records,
            "packBelow": self.pack_below,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Plan":
        """The plan that a checkpoint has."""
        return Plan(value["minPartitions"], value["maxRecordsPerPartition"], value["packBelow"])


class RangePartition(InputPartition):
    """What one task reads.

    Attributes:
        ranges: Parts of queues, those of one broker next to each other.
    """

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"RangePartition({', '.join(f'{r.queue} {r.start}..{r.end}' for r in self.ranges)})"


def partitions(ranges: Sequence[QueueRange], plan: Plan) -> list[RangePartition]:
    """The partitions that read the ranges: one for each queue, divided or packed as the plan says."""
    ranges = sorted(ranges, key=lambda each: (each.queue.topic, each.queue.broker_name, each.queue.queue_id))
    total = sum(each.end - each.start for each in ranges)
    if not total:
        return []
    if total < plan.pack_below and not (plan.min_partitions > 1 or 0 < plan.max_records < total):
        return [RangePartition(ranges)]
    size = plan.max_records or total
    if len(ranges) < plan.min_partitions:
        size = min(size, max(1, total // plan.min_partitions))
    return [RangePartition([piece]) for each in ranges for piece in _divided(each, size)]


def _divided(whole: QueueRange, size: int) -> list[QueueRange]:
    """Pieces of the range, of nearly the same size, none above `size`."""
    length = whole.end - whole.start
    count = -(-length // size)
    cuts = [whole.start + length * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in itertools.pairwise(cuts)]
