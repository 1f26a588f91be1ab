"""What may be said about a query that feeds an output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

from streamkit.errors import ConfigurationError

__all__ = ["Delivery", "QueryArguments", "QuerySettings"]

Delivery = Literal["at-least-once", "deduplicated"]


class QueryArguments(TypedDict, total=False):
    """What may be said about a query where it is declared, by the names of :class:`QuerySettings`."""

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
        checkpoint: Directory of its checkpoint: where it goes on. Without one it is found below the session's
            `spark.sql.streaming.checkpointLocation`, by the names of application and output. Without that the query
            begins anew with each start, which a warning tells.
        trigger: When a batch is made, as for `DataStreamWriter.trigger`; as soon as the last one is done if not given.
        output_mode: `append`, or where the application sends also `update` or `complete`.
        delivery: Have executors send by the binder's Spark format, `deduplicated` where its broker can refuse what a
            repeated batch has stored already; if not given, the application sends, at least once.
        options: Further options of the query, or of the binder's format.
        restart_after: How long after a failure it is started again; None: never.

    Raises:
        ConfigurationError: Executors are to send, and not in mode `append`: Spark gives them no other.
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
                "mode 'append' only; leave delivery out, and the application sends"
            )
