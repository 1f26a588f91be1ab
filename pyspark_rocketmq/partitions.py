"""The division of a batch among tasks. The same ranges and the same plan always give the same partitions."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocket_client.blocking import QueueRange


@dataclass(frozen=True)
class Plan:
    """The settings that decide about partitions.

    Attributes:
        min_partitions: Least partitions, made by dividing large ranges; 0: no matter.
        max_records: Maximum number of messages of a partition; 0: no matter.
        pack_below: Fewer messages than this are read by one task: starting tasks takes longer than reading.
    """

    min_partitions: int = 0
    max_records: int = 0
    pack_below: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the plan for a checkpoint, under the options' names."""
        return {
            "minPartitions": self.min_partitions,
            "maxRecordsPerPartition": self.max_records,
            "packBelow": self.pack_below,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Plan":
        """Return the plan of a checkpoint."""
        return Plan(value["minPartitions"], value["maxRecordsPerPartition"], value["packBelow"])


class RangePartition(InputPartition):
    """The part of one task.

    Attributes:
        ranges: Parts of queues, those of one broker next to each other.
    """

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"RangePartition({', '.join(f'{r.queue} {r.start}..{r.end}' for r in self.ranges)})"


def partitions(ranges: Sequence[QueueRange], plan: Plan) -> list[RangePartition]:
    """Return the partitions that read the ranges: one for each queue, divided or packed as the plan says."""
    ranges = sorted((each for each in ranges if each.start < each.end), key=lambda each: each.queue)
    total = sum(each.end - each.start for each in ranges)
    if not total:
        return []
    if total < plan.pack_below and not (plan.min_partitions > 1 or 0 < plan.max_records < total):
        return [RangePartition(ranges)]
    wanted = plan.min_partitions if plan.min_partitions > len(ranges) else 0
    pieces: list[QueueRange] = []
    for each in ranges:
        length = each.end - each.start
        by_count = round(length * wanted / total)
        by_size = -(-length // plan.max_records) if plan.max_records else 1
        pieces += _divided(each, max(1, by_count, by_size))
    return [RangePartition([piece]) for piece in pieces]


def _divided(whole: QueueRange, count: int) -> list[QueueRange]:
    """Return `count` pieces of the range, of nearly the same size."""
    length = whole.end - whole.start
    cuts = [whole.start + length * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in itertools.pairwise(cuts) if start < end]
