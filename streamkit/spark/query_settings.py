"""The settings of a query that feeds an output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

from streamkit.errors import ConfigurationError

__all__ = ["Delivery", "QueryArguments", "QuerySettings"]

Delivery = Literal["at-least-once", "deduplicated"]


class QueryArguments(TypedDict, total=False):
    """Keyword arguments of a query's declaration, with the names of :class:`QuerySettings`."""

    checkpoint: str | None
    trigger: Mapping[str, str | bool]
    output_mode: str
    delivery: Delivery | None
    options: Mapping[str, str]
    restart_after: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """How a query runs.

    Attributes:
        checkpoint: Directory of the checkpoint. By default it is a directory below the session's
            `spark.sql.streaming.checkpointLocation`, named after application and output. Without that setting the query
            begins anew with each start, and a warning says so.
        trigger: When a batch is made, as for `DataStreamWriter.trigger`; by default, when the last batch is done.
        output_mode: `append`; if the application sends, also `update` or `complete`.
        delivery: `at-least-once` or `deduplicated`: executors send by the binder's Spark format; `deduplicated` needs a
            broker that refuses rows which a repeated batch has stored already. By default the application sends, at
            least once.
        options: Further options of the query, or of the binder's format.
        restart_after: The time from a failure to the next start; None: never start again.

    Raises:
        ConfigurationError: `delivery` is given with another mode than `append`, the only one of sinks in Python.
    """

    checkpoint: str | None = None
    trigger: Mapping[str, str | bool] = field(default_factory=dict)
    output_mode: str = "append"
    delivery: Delivery | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    restart_after: timedelta | None = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.delivery is not None and self.output_mode.lower() != "append":
            raise ConfigurationError(
                f"output_mode={self.output_mode!r} and delivery={self.delivery!r}: Spark's executors send in "
                "mode 'append' only; leave delivery out to have the application send the rows"
            )
