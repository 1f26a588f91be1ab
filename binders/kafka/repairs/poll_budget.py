"""Ends polls when they have enough bytes.

kafka-python counts the records of a poll only, and a record may have any size: 500 records of 1 MiB, which is what a
poll brings by default, take 500 MiB. It has no setting for bytes after decompression (seen in 3.0.10 to 3.0.12).
`Fetcher._append` adds the records of one partition to those of the poll and returns how many it added; the poll ends
when it has as many as it wanted.
"""

from binders.kafka.record_size import PollBudget
from kafka.consumer.fetcher import Fetcher

__all__ = ["bound_polls"]


def bound_polls(fetcher: Fetcher, budget: PollBudget) -> None:
    """Make a consumer's fetcher end a poll when the poll's budget is used up.

    Args:
        fetcher: kafka-python's fetcher.
        budget: What a poll may bring; whoever polls begins it anew.
    """
    append = fetcher._append

    def append_within_budget(drained: object, part: object, max_records: int, update_offsets: bool) -> int:
        count: int = append(drained, part, max_records, update_offsets)
        # The poll asks for further records until there are as many as it wanted.
        return count if budget.left > 0 else max_records

    fetcher._append = append_within_budget
