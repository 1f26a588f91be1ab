"""The position of a stream in Spark's checkpoint.

::

    {"v": 1,
     "offsets": {topic: {broker: {"queue id": offset}}},
     "from":    {topic: {broker: {"queue id": offset}}},   queues that begin here, not where the last batch ended
     "plan":    {"minPartitions": 0, "maxRecordsPerPartition": 0, "packBelow": 20000}}

Spark compares places by their text, so it is always written in one order. What a batch's partitions depend on
stands in it too: a batch that is planned again after a crash has the same ones, whatever was changed meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_rocketmq.errors import OffsetError
from pyspark_rocketmq.partitions import Plan
from rocket_client.blocking import MessageQueue, QueueRange

VERSION = 1


@dataclass(frozen=True)
class StreamOffset:
    """The position of a stream in each queue.

    Attributes:
        offsets: The next message of each queue.
        begins: Queues that the batch that ends here reads from another offset than the one before ended at:
            new ones, and those that were made anew. In a query's first batch all.
        plan: How the batch that ends here is divided.
    """

    offsets: Mapping[MessageQueue, int]
    plan: Plan
    begins: Mapping[MessageQueue, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the position for Spark's checkpoint."""
        return {
            "v": VERSION,
            "offsets": _nested(self.offsets),
            "from": _nested(self.begins),
            "plan": self.plan.to_json(),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "StreamOffset":
        """Return the position of a checkpoint.

        Raises:
            OffsetError: A newer version wrote it, or another format did.
        """
        version = value.get("v")
        if version != VERSION:
            raise OffsetError(
                f"the checkpoint holds offsets of version {version!r}, this release reads version {VERSION}:"
                " it was written by a newer pyspark_rocketmq, or by another source"
            )
        try:
            return StreamOffset(_flat(value["offsets"]), Plan.from_json(value["plan"]), _flat(value["from"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OffsetError(f"the checkpoint's offsets cannot be read ({error!r}): {value!r}") from None

    def ranges_from(self, start: "StreamOffset") -> list[QueueRange]:
        """Return the range of each queue in the batch from `start` to here, in a fixed order."""
        return [
            QueueRange(queue, begin, end)
            for queue, end in sorted(self.offsets.items())
            if (begin := self.begins.get(queue, start.offsets.get(queue, end))) < end
        ]


def _nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    return {
        MessageQueue(topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
