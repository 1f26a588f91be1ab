"""Delivers the fetched records of a paused partition after it is resumed.

kafka-python puts the fetched records of a paused partition aside, and takes them up again only while it holds no other
records (`Fetcher._next_partition_records` is None). It holds records that are used up until it fetches others, and it
fetches nothing for a partition whose records are put aside: while no other partition has anything new, a resumed one is
never delivered. The defect came with 3.0.0, which keeps the fetched records of paused partitions (dpkp/kafka-python
pull request 2981); seen in 3.0.10 to 3.0.12.
"""

from typing import Any

__all__ = ["drop_consumed_records"]


def drop_consumed_records(consumer: Any) -> None:
    """Drop records that were returned already; called before each poll of a consumer."""
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None
