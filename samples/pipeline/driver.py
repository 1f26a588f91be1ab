"""`python -m samples.pipeline.driver`: the process Spark's driver runs in, until its standard input ends.

It writes lines: when the query starts, when a batch is done, when the query fails.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from samples.pipeline import query
from samples.pipeline.progress import FAILED, STARTED, BatchProgress
from streamkit import StreamApplication
from streamkit.spark.events import query_failed, query_progressed, query_started

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

SETTINGS = Path(__file__).with_name("query.properties")
LONGEST_ERROR = 500


def main(name_server: str) -> None:
    """Run the query."""
    settings = {"spring.cloud.stream.rocketmq.binder.name-server": name_server}
    app = StreamApplication(query, config_location=SETTINGS, properties=settings)
    with (
        query_started.connected_to(print_start),
        query_progressed.connected_to(print_batch),
        query_failed.connected_to(print_failure),
        app,
    ):
        sys.stdin.read()


def print_start(application: object, *, binding: str, query: object) -> None:
    """Print that the query runs."""
    print(STARTED, flush=True)


def print_batch(application: object, *, binding: str, progress: "StreamingQueryProgress") -> None:
    """Print the progress of the query."""
    print(BatchProgress.of(progress).to_line(), flush=True)


def print_failure(application: object, *, binding: str, error: str) -> None:
    """Print why the query failed; it is started again."""
    print(FAILED + " ".join(error.split())[:LONGEST_ERROR], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
