"""Keeps ordinary stops out of the log.

A client that is closed cancels its requests. kafka-python logs the metadata request among them as an error,
`Metadata refresh: failed Cancelled`, so every other stop looks like a failure. Seen in 3.0.12.
"""

import logging

from kafka.errors import Cancelled


def ignore_cancelled_refreshes() -> None:
    """Drop the records about metadata requests that were cancelled; may be called again."""
    logging.getLogger("kafka.cluster").addFilter(_is_of_interest)


def _is_of_interest(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, Cancelled) for each in arguments)
